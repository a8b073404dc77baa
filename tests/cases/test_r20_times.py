"""R20: a time means the same instant wherever the server runs, and says its zone."""

import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from tests.cast import Agent, Company
from tests.servers import Server, run_web

from .tools import events_of

TIME = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d")
PRINTED = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
INDIA = timezone(timedelta(hours=5, minutes=30))


@pytest.fixture(scope="module", params=["Asia/Kolkata", "America/New_York"])
def abroad(request: Any, database: None) -> Iterator[Server]:
    """A server in another zone."""
    with run_web(workers=1, TZ=request.param) as server:
        yield server
        assert not server.trouble()


@pytest.fixture
def far(agent: Agent, abroad: Server, company: Company) -> Iterator[Agent]:
    """`agent`, asking that server."""
    far = Agent(agent.principal, agent.secret, abroad.url)
    yield far
    far.close()


@pytest.fixture
def claim(far: Agent) -> Any:
    """A run under which to ask."""
    far.create("Some work")
    return far.claim()


def body(claim: Any, expires_at: Any) -> dict[str, Any]:
    """An approval with this deadline."""
    run = {"run_id": claim["run"]["id"], "epoch": claim["lease"]["epoch"]}
    return {**run, "question": "Go?", "options": ["Yes", "No"], "expires_at": expires_at}


def zoned(moment: datetime) -> list[str]:
    """One instant, written in several ways."""
    east, west = moment.astimezone(INDIA), moment.astimezone(timezone(-timedelta(hours=9)))
    return [
        moment.strftime("%Y-%m-%dT%H:%M:%SZ"),
        moment.isoformat(),
        east.isoformat(),
        west.isoformat(),
        east.strftime("%Y-%m-%dT%H:%M:%S.000+05:30"),
        moment.strftime("%Y%m%dT%H%M%SZ"),
    ]


BAD: list[Callable[[datetime], Any]] = [
    lambda soon: soon.strftime("%Y-%m-%dT%H:%M:%S"),
    lambda soon: soon.strftime("%Y-%m-%d %H:%M:%SZ"),
    lambda soon: soon.strftime("%Y-%m-%d"),
    lambda soon: soon.strftime("%Y-%m-%dT%H:%M:60Z"),
    lambda soon: soon.strftime("%Y-%m-%dT25:00:00Z"),
    lambda soon: soon.strftime("%Y-%m-%dT%H:%M:%S UTC"),
    lambda soon: soon.strftime("%Y-%m-%dT%H:%M:%S+99:00"),
    lambda soon: soon.strftime("%Y-02-30T%H:%M:%SZ"),
    lambda _: "9999-12-31T23:59:59Z",
    lambda _: "9999-12-31T23:59:59-12:00",
    lambda _: "0001-01-01T00:00:00Z",
    lambda _: "0001-01-01T00:00:00+12:00",
    lambda soon: int(soon.timestamp()),
    lambda soon: str(int(soon.timestamp())),
    lambda soon: (soon - timedelta(days=1)).isoformat(),
    lambda soon: (soon + timedelta(days=31)).isoformat(),
    lambda _: "tomorrow",
    lambda _: "",
    lambda _: None,
    lambda _: ["2030-01-01T00:00:00Z"],
]


def test_a_zoned_time_is_the_same_instant_everywhere(far: Agent, claim: Any) -> None:
    soon = (datetime.now(UTC) + timedelta(hours=3)).replace(microsecond=0)
    for text in zoned(soon):
        asked = far.post("/approvals", body(claim, text))
        assert asked["expires_at"] == soon.strftime("%Y-%m-%dT%H:%M:%S.000Z"), text
        far.post(f"/approvals/{asked['id']}/cancel")
    for text in zoned(soon):
        assert far.create(not_before=text)["not_before"] == soon.strftime("%Y-%m-%dT%H:%M:%S.000Z"), text
    assert far.claim() is None


def test_the_end_of_a_handoff_is_the_same_instant_everywhere_or_refused(far: Agent, company: Company) -> None:
    company.agent("target")
    soon = (datetime.now(UTC) + timedelta(hours=3)).replace(microsecond=0)
    offer = {"to_principal": "target", "subject_id": "rollout"}
    for text in zoned(soon):
        made = far.post("/handoffs", {**offer, "expires_at": text})
        assert made["expires_at"] == soon.strftime("%Y-%m-%dT%H:%M:%S.000Z"), text
        assert [written for written in times_in(made) if not PRINTED.fullmatch(written)] == []
    for write in BAD:
        error = far.refused("VALIDATION_ERROR", "/handoffs", {**offer, "expires_at": write(soon)})
        assert list(error["details"]["fields"]) == ["expires_at"], write(soon)


def test_midnight_of_24_hours_is_the_next_day_or_refused(far: Agent, claim: Any) -> None:
    today = datetime.now(UTC)
    answer = far.send("POST", "/approvals", body(claim, today.strftime("%Y-%m-%dT24:00:00Z")))
    if answer.status_code == 201:
        tomorrow = today + timedelta(days=1)
        assert answer.json()["data"]["expires_at"] == tomorrow.strftime("%Y-%m-%dT00:00:00.000Z")
    else:
        assert answer.status_code == 400
        assert list(answer.json()["error"]["details"]["fields"]) == ["expires_at"]


def test_a_time_without_a_zone_or_out_of_reach_is_refused(far: Agent, claim: Any) -> None:
    soon = datetime.now(UTC) + timedelta(hours=3)
    for write in BAD:
        error = far.refused("VALIDATION_ERROR", "/approvals", body(claim, write(soon)))
        assert list(error["details"]["fields"]) == ["expires_at"], write(soon)
    assert far.get("/approvals")["approvals"] == []
    assert far.get(f"/tasks/{claim['task']['id']}")["status"] == "in_progress"


def times_in(content: Any) -> list[str]:
    """Every text in an answer that looks like a time."""
    if isinstance(content, dict):
        return [text for value in content.values() for text in times_in(value)]
    if isinstance(content, list):
        return [text for value in content for text in times_in(value)]
    return [content] if isinstance(content, str) and TIME.search(content) else []


def leased(far: Agent) -> list[Any]:
    """Every answer about a lease, its refusal to somebody else among them."""
    lease = far.post("/leases", {"resource_type": "deploy", "resource_id": "checkout"})
    path = f"/leases/{lease['lease_id']}"
    answers = [lease, far.send("PATCH", path, {}).json(), far.post(f"{path}/jeopardy"), far.get("/leases")]
    return [*answers, far.get(path), far.send("DELETE", path).json(), far.get(path)]


def test_every_printed_time_says_utc(far: Agent, claim: Any) -> None:
    now = datetime.now(UTC)
    run, task = claim["run"]["id"], claim["task"]["id"]
    asked = far.post(
        "/approvals",
        {"run_id": run, "epoch": 1, "question": "Go?", "options": ["Yes", "No"], "expires_in_seconds": 60},
    )
    answers = [
        claim,
        asked,
        far.post(f"/runs/{run}/heartbeat", {"epoch": 1}),
        far.create(not_before=(now + timedelta(hours=1)).isoformat()),
        *(far.get(path) for path in ("/tasks", f"/tasks/{task}", "/runs", f"/runs/{run}", "/approvals")),
        far.get("/keys"),
        *leased(far),
        events_of(far),
        far.post(f"/approvals/{asked['id']}/cancel"),
        far.post(f"/runs/{run}/complete", {"epoch": 1}),
    ]
    found = times_in(answers)
    assert len(found) > 30
    assert [text for text in found if not PRINTED.fullmatch(text)] == []
    told = datetime.fromisoformat(asked["expires_at"])
    assert abs((told - now).total_seconds() - 60) < 20
