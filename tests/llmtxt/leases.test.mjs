// The published client of section leases, unchanged, against a running server.
//   TITEN_URL              where it is
//   ADA_KEY, BERT_KEY      API keys of the principals `ada` and `bert`

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';

import { LeaseConflictError, LeaseManager } from 'llmtxt';

const { TITEN_URL: url, ADA_KEY, BERT_KEY } = process.env;
const ada = () => new LeaseManager(url, ADA_KEY);
const bert = () => new LeaseManager(`${url}/`, BERT_KEY);
const uuid = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;
const printed = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/;

test('acquire gives lease, holder and expiry, and the manager keeps them', async () => {
  const manager = ada();
  const lease = await manager.acquire('my-doc', 'acquired', 60, 'Rewriting introduction');
  assert.match(lease.leaseId, uuid);
  assert.equal(lease.holder, 'ada');
  assert.match(lease.expiresAt, printed);
  assert.deepEqual([manager.leaseId, manager.expiresAt], [lease.leaseId, lease.expiresAt]);
  assert.equal((await manager.acquire('my-doc', 'acquired', 60)).leaseId, lease.leaseId);
});

test('a conflict names the holder and when it ends', async () => {
  const lease = await ada().acquire('my-doc', 'contested', 60);
  await assert.rejects(bert().acquire('my-doc', 'contested', 60), (error) => {
    assert.ok(error instanceof LeaseConflictError);
    assert.deepEqual([error.holder, error.expiresAt], ['ada', lease.expiresAt]);
    return true;
  });
});

test('renew moves the end and keeps the lease', async () => {
  const manager = ada();
  const lease = await manager.acquire('my-doc', 'renewed', 5);
  const renewed = await manager.renew(120);
  assert.equal(renewed.leaseId, lease.leaseId);
  assert.ok(Date.parse(renewed.expiresAt) - Date.parse(lease.expiresAt) > 100_000);
  assert.equal(manager.expiresAt, renewed.expiresAt);
});

test('auto-renew keeps a short lease alive', async () => {
  const manager = ada();
  const lease = await manager.acquire('my-doc', 'kept', 3);
  manager.startAutoRenew(10);
  try {
    const patience = Date.now() + 10_000;
    while (manager.expiresAt === lease.expiresAt && Date.now() < patience) await sleep(20);
  } finally {
    manager.stopAutoRenew();
  }
  assert.ok(Date.parse(manager.expiresAt) - Date.parse(lease.expiresAt) > 50_000);
  await assert.rejects(bert().acquire('my-doc', 'kept', 60), LeaseConflictError);
});

test('release frees the section, and once more is no error', async () => {
  const manager = ada();
  await manager.acquire('my-doc', 'released', 60);
  await manager.release();
  assert.deepEqual([manager.leaseId, manager.expiresAt], [null, null]);
  await manager.release();
  assert.equal((await bert().acquire('my-doc', 'released', 60)).holder, 'bert');
});

test('what was lost in between: release of nobody\'s is no error, of another\'s it is', async () => {
  const [first, second] = [ada(), ada()];
  await first.acquire('my-doc', 'lost', 60);
  await second.acquire('my-doc', 'lost', 60);
  await second.release();
  await assert.rejects(first.renew(60), /renew failed: 404 \{"error":"NO_ACTIVE_LEASE"\}/);
  await bert().acquire('my-doc', 'lost', 60);
  await assert.rejects(first.release(), /release failed: 403/);
  const third = ada();
  await third.acquire('my-doc', 'given back', 60);
  const same = ada();
  await same.acquire('my-doc', 'given back', 60);
  await same.release();
  await third.release();
});

test('section ids with slashes, colons and any letters are sections of their own', async () => {
  const ids = ['a/b', 'a%2Fb', 'a', 'b', 'x/lease', 'lease', 'sections/x', ':', 'chapter:1', 'ü', 'u\u0308', '中/😀', 'a b', 'v1.2', '?', '#'];
  const leases = new Map();
  for (const id of ids) leases.set(id, (await ada().acquire('my doc: ü', id, 60)).leaseId);
  assert.equal(new Set(leases.values()).size, ids.length);
  for (const id of ids) {
    assert.equal((await ada().acquire('my doc: ü', id, 60)).leaseId, leases.get(id));
    await assert.rejects(bert().acquire('my doc: ü', id, 60), LeaseConflictError);
  }
});

test('a bad key and a bad duration are told', async () => {
  await assert.rejects(new LeaseManager(url, 'llmtxt_myapikey').acquire('my-doc', 'x', 60), /acquire failed: 401 .*UNAUTHENTICATED/);
  await assert.rejects(ada().acquire('my-doc', 'x', 301), /acquire failed: 400 .*leaseDurationSeconds/);
});
