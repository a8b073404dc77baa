"""Who sees which events: by the scopes of the key, alike in pages and in streams."""

from collections.abc import Iterator
from typing import Any

import pytest

from coordination.callers import SCOPES
from coordination.visibility import NEEDED, OTHERWISE

from .cast import Agent, Company, founded
from .following import STREAM, follow, messages_of, write_events
from .hub import eventually, run_hub
from .leasing import named
from .servers import Server

WORDS = [*NEEDED, "key", "member", "principal", "user", "test"]


@pytest.fixture(scope="module")
def hub(database: None) -> Iterator[Server]:
    with run_hub("tests.hub_quick:application") as server:
        yield server
        assert not server.trouble()


@pytest.fixture(scope="module")
def full(web: Server) -> Iterator[Company]:
    """An organization whose log has an event of every sort."""
    with founded(web.url) as company:
        for word in WORDS:
            write_events(company, 1, f"{word}.happened")
        yield company


def kinds_in(agent: Agent) -> tuple[set[str], str]:
    """The first words of the kinds that an agent sees in pages, and where its cursor ends."""
    seen: set[str] = set()
    cursor = "0"
    while True:
        page = agent.get("/events", params={"after": cursor})
        seen |= {event["kind"].partition(".")[0] for event in page["events"]}
        if page["cursor"] == cursor:
            return seen, cursor
        cursor = page["cursor"]


@pytest.mark.parametrize("scope", [*SCOPES, "*"])
def test_a_scope_opens_its_sorts_of_events_and_no_other(full: Company, scope: str) -> None:
    agent = full.agent(scopes=f"events:read {scope}")
    everything = scope == "*"
    wanted = {word for word in WORDS if everything or NEEDED.get(word, OTHERWISE) == scope}
    seen, cursor = kinds_in(agent)
    assert seen & set(WORDS) == wanted
    # What may not be seen is passed over all the same.
    assert int(cursor) >= len(WORDS)
    answer = agent.client.get(STREAM, params={"after": "0"})
    messages = messages_of(answer.content)
    streamed = {one.event.partition(".")[0] for one in messages if one.event != "cursor"}
    assert streamed == seen
    assert int(messages[-1].id) >= len(WORDS)


def test_a_live_stream_leaves_out_the_same(hub: Server, full: Company) -> None:
    agent, witness = full.agent(scopes="events:read leases:read"), full.agent()
    with follow(agent, hub.url) as stream, follow(witness, hub.url) as whole:
        eventually(lambda: stream.messages and whole.messages)
        for word in WORDS:
            write_events(full, 1, f"{word}.happened")
        eventually(lambda: len(whole.events) >= len(WORDS))
        eventually(lambda: len(stream.events) >= 3)
        eventually(lambda: stream.last == whole.last)
        kinds = [event["kind"].partition(".")[0] for event in stream.events]
        assert sorted(kinds) == ["document", "lease", "section"]


@pytest.mark.parametrize(
    ("scopes", "sees"),
    [("leases:read", False), ("leases:read leases:admin", True), ("*", True)],
)
def test_holders_are_shown_to_themselves_and_to_who_may_know(
    hub: Server, full: Company, scopes: str, sees: bool
) -> None:
    holder = full.agent(scopes="events:read leases:read leases:write")
    reader = full.agent(scopes=f"events:read {scopes}")
    with follow(reader, hub.url) as stream, follow(holder, hub.url) as own:
        eventually(lambda: stream.messages and own.messages)
        start = stream.last
        lease = holder.post("/leases", named(f"shop-{reader.principal.name}", purpose="Quietly"))
        eventually(lambda: stream.events and own.events)
        ids: dict[bool, Any] = {False: None, True: f"agent_{holder.principal.pk.hex}"}
        (event,) = [one for one in stream.events if one["lease_id"] == lease["lease_id"]]
        (mine,) = [one for one in own.events if one["lease_id"] == lease["lease_id"]]
        assert event["actor_id"] == ids[sees]
        assert mine["actor_id"] == ids[True]
        assert event in reader.get("/events", params={"after": start})["events"]
        assert "Quietly" not in str(stream.messages)


def test_another_organizations_events_are_in_no_stream(hub: Server, full: Company, web: Server) -> None:
    with founded(web.url) as elsewhere:
        stranger, agent = elsewhere.agent(), full.agent()
        with follow(stranger, hub.url, after="0") as theirs, follow(agent, hub.url) as ours:
            eventually(lambda: theirs.messages and ours.messages)
            task, own = agent.create(), stranger.create()
            eventually(lambda: any(event["task_id"] == own["id"] for event in theirs.events))
            eventually(lambda: any(event["task_id"] == task["id"] for event in ours.events))
            assert not [event for event in theirs.events if event["task_id"] == task["id"]]
            assert not [event for event in ours.events if event["task_id"] == own["id"]]
            # A filter by what belongs to somebody else finds nothing, like one by a random id.
            with follow(stranger, hub.url, after="0", task_id=task["id"]) as none:
                eventually(lambda: none.last == theirs.last)
                assert none.events == []
