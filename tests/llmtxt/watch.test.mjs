// The published client's `watchDocument`, unchanged, against a running server.
//   TITEN_URL    where it is, by way of a proxy
//   CUT_URL      a request to it cuts all connections of the proxy
//   ADA_KEY      API key of the principal `ada`

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { LeaseManager, watchDocument } from 'llmtxt';

const { TITEN_URL: url, CUT_URL: cutter, ADA_KEY: apiKey } = process.env;
const ada = () => new LeaseManager(url, apiKey);
const uuid = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;
const printed = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/;

/** Read entries until `done` says so; `also` may act after each. */
async function watched(slug, done, { also = async () => {}, ...options } = {}) {
  const stop = new AbortController();
  const entries = [];
  for await (const entry of watchDocument(url, slug, { apiKey, signal: stop.signal, ...options })) {
    entries.push(entry);
    await also(entry, entries);
    if (done(entries)) break;
  }
  stop.abort();
  return entries;
}

const kinds = (entries) => entries.map((entry) => entry.payload.event);

test('leased, released and expired arrive in order, from the beginning', async () => {
  const [first, second] = [ada(), ada()];
  const lease = await first.acquire('watched', 'intro', 60);
  const entries = await watched('watched', (seen) => seen.length === 4, {
    also: async (entry, seen) => {
      if (seen.length === 1) {
        await first.release();
        await second.acquire('watched', 'outro', 1);
      }
    },
  });
  assert.deepEqual(kinds(entries), ['SECTION_LEASED', 'SECTION_LEASE_RELEASED', 'SECTION_LEASED', 'SECTION_LEASE_EXPIRED']);
  assert.deepEqual(entries.map((entry) => entry.seq), ['1', '2', '3', '4']);
  assert.deepEqual(new Set(entries.map((entry) => entry.event_type)), new Set(['section.edited']));
  assert.equal(entries[0].payload.leaseId, lease.leaseId);
  assert.equal(entries[0].payload.holder, 'ada');
  assert.equal(entries[3].payload.sectionId, 'outro');
  for (const entry of entries) {
    assert.match(entry.id, uuid);
    assert.equal(typeof entry.actor_id, 'string');
    assert.match(entry.created_at, printed);
  }
});

test('it begins after fromSeq', async () => {
  const entries = await watched('watched', (seen) => seen.length === 2, { fromSeq: 2 });
  assert.deepEqual(entries.map((entry) => entry.seq), ['3', '4']);
});

test('after a cut it comes again, misses nothing and repeats nothing', async () => {
  const manager = ada();
  await manager.acquire('cut', 'intro', 60);
  const entries = await watched('cut', (seen) => seen.length === 6, {
    also: async (entry, seen) => {
      if (seen.length === 1 || seen.length === 3) {
        await fetch(cutter);
        await manager.release();
        await manager.acquire('cut', 'intro', 60);
      }
      if (seen.length === 5) await manager.release();
    },
  });
  assert.deepEqual(entries.map((entry) => entry.seq), ['1', '2', '3', '4', '5', '6']);
  assert.deepEqual(kinds(entries).slice(0, 3), ['SECTION_LEASED', 'SECTION_LEASE_RELEASED', 'SECTION_LEASED']);
});

test('an unknown document and a bad key are given up', async () => {
  const options = { apiKey, maxReconnects: 1 };
  await assert.rejects(async () => { for await (const _ of watchDocument(url, 'never-made', options)); }, /circuit breaker/);
  await assert.rejects(async () => { for await (const _ of watchDocument(url, 'cut', { ...options, apiKey: 'x' })); }, /circuit breaker/);
});
