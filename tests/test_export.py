"""The log as JSON Lines: whole, in order, in little memory, and as much of it as the reader may see."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import httpx
import pytest
from django.core.management import CommandError
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from coordination import events
from coordination import export as exporting
from coordination.api.exports import Seats
from coordination.models import EventPosition
from titen.errors import Refused

from .cast import Agent, Company, founded
from .locking import until
from .logbook import event_at, export, forget, positions, sql, write
from .openapi import document
from .servers import REPOSITORY, Server, run_web

LONG = 50_000
PATH = "/v1/events/export"
MEGABYTE = 1024


@pytest.fixture(scope="module")
def long_log(web: Server) -> Iterator[Company]:
    """An organization with a long log."""
    with founded(web.url) as company:
        write(company, LONG)
        yield company
        forget(company)


def download(agent: Agent, **query: str) -> tuple[list[dict[str, Any]], str]:
    """The lines, and the cursor to go on from."""
    answer = agent.client.get(PATH, params=query)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "application/jsonl"
    lines = [json.loads(line) for line in answer.text.splitlines()]
    shape = Draft202012Validator(document()["components"]["schemas"]["ExportedEvent"])
    assert all(shape.is_valid(line) for line in lines)
    return lines, answer.headers["titen-cursor"]


def test_the_command_writes_every_line_with_its_digest(company: Company, agent: Agent) -> None:
    agent.create()
    agent.claim()
    lines = export(company)
    places = EventPosition.objects.filter(organization=company.organization).order_by("position")
    assert [line["cursor"] for line in lines] == [str(place.position) for place in places]
    assert [line["digest"] for line in lines] == [bytes(place.digest).hex() for place in places]
    paged = agent.get("/events", params={"after": "0", "limit": 200})["events"]
    assert [{key: line[key] for key in line if key != "digest"} for line in lines] == paged


def test_the_command_writes_a_part(company: Company) -> None:
    write(company, 10)
    assert [line["cursor"] for line in export(company, "--after", "3", "--until", "6")] == ["4", "5", "6"]
    assert export(company, "--after", "1000") == []
    with pytest.raises(CommandError, match="There is no organization nobody"):
        export(Company(type(company.organization)(slug="nobody"), ""))


def test_a_damaged_log_is_not_exported_as_if_it_were_whole(company: Company) -> None:
    write(company, 10)
    sql("DELETE FROM coordination_event WHERE id = %(e)s", e=event_at(company, 5))
    with pytest.raises(CommandError, match="position 5 is missing"):
        export(company)
    forget(company)


def test_a_key_downloads_all_and_goes_on_from_the_cursor(company: Company, agent: Agent) -> None:
    agent.create()
    lines, cursor = download(agent)
    assert lines == export(company)
    assert cursor == lines[-1]["cursor"]
    task = agent.create()
    (more,), _ = download(agent, after=cursor)
    assert more["task_id"] == task["id"]


def test_a_key_gets_what_it_may_see_and_no_digests(company: Company, claimed: Any) -> None:
    reader = company.agent(scopes="events:read leases:read")
    lines, cursor = download(reader)
    kinds = {line["kind"].partition(".")[0] for line in lines}
    assert kinds <= {"lease", "section", "document"}
    assert not any("digest" in line for line in lines)
    events.number()
    assert int(cursor) == positions(company)[-1], "the cursor passes what is hidden"


@pytest.mark.parametrize(
    ("query", "field"), [({"after": "x"}, "after"), ({"after": "-1"}, "after"), ({"until": "5"}, "until")]
)
def test_a_bad_query_is_refused_before_the_first_byte(
    agent: Agent, query: dict[str, str], field: str
) -> None:
    error = agent.refused("VALIDATION_ERROR", "/events/export", method="GET", params=query)
    assert field in error["details"]["fields"]


def test_it_needs_its_scope(company: Company) -> None:
    company.agent(scopes="tasks:read").refused("FORBIDDEN", "/events/export", method="GET")


def test_head_says_what_a_download_would_end_with(agent: Agent) -> None:
    agent.create()
    _, cursor = download(agent)
    answer = agent.client.head(PATH)
    assert (answer.status_code, answer.content) == (200, b"")
    assert answer.headers["titen-cursor"] == cursor


def test_few_download_at_once_and_a_principal_once() -> None:
    seats, (one, two, three) = Seats(2), [uuid4() for _ in range(3)]
    seats.take(one)
    with pytest.raises(Refused, match="RATE_LIMITED"):
        seats.take(one)
    seats.take(two)
    with pytest.raises(Refused, match="RATE_LIMITED"):
        seats.take(three)
    seats.leave(one)
    seats.take(three)


@pytest.fixture
def small_web(database: None) -> Iterator[Server]:
    """One process with four threads."""
    with run_web(workers=1, threads=4) as server:
        yield server
        assert not server.trouble()


def test_a_reader_that_stalls_holds_up_only_itself(long_log: Company, small_web: Server) -> None:
    stalled = [long_log.agent() for _ in range(2)]
    headers = [{"Authorization": f"Bearer {agent.secret}"} for agent in stalled]
    with httpx.Client(base_url=small_web.url, timeout=20) as client:
        with client.stream("GET", PATH, headers=headers[0]), client.stream("GET", PATH, headers=headers[1]):
            again = client.get(PATH, headers=headers[0])
            assert (again.status_code, again.headers["retry-after"]) == (429, "10")
            late = client.get(PATH, headers={"Authorization": f"Bearer {long_log.agent().secret}"})
            assert (late.status_code, late.json()["error"]["code"]) == (429, "RATE_LIMITED")
            for _ in range(8):
                assert client.get("/v1/principal", headers=headers[0]).status_code == 200
        # Who hangs up makes room, and what comes then is whole.
        until(lambda: client.get(PATH, headers=headers[0]).status_code == 200, "room")


REVOKE = "UPDATE coordination_apikey SET revoked_at = clock_timestamp() WHERE principal_id = %(p)s"


def test_a_download_ends_unfinished_when_its_key_does(long_log: Company, small_web: Server) -> None:
    agent = long_log.agent()
    headers = {"Authorization": f"Bearer {agent.secret}"}
    with (
        httpx.Client(base_url=small_web.url, timeout=20) as client,
        client.stream("GET", PATH, headers=headers) as answer,
    ):
        parts = answer.iter_raw()
        first = next(parts)
        sql(REVOKE, p=agent.principal.pk)
        lines = (first + b"".join(parts)).splitlines()
    assert 0 < len(lines) < LONG
    assert json.loads(lines[-1])["error"]["code"] == "UNAUTHENTICATED"


# The peak of this very program: what `getrusage` says begins with the size of the process that started it.
MEASURE = """
import sys
sys.argv[1:] = ["export_log", "--org", sys.argv[1], "--until", sys.argv[2]]
import runpy
try:
    runpy.run_path("manage.py", run_name="__main__")
finally:
    peak = [line for line in open("/proc/self/status") if line.startswith("VmHWM")]
    print(peak[0].split()[1], file=sys.stderr)
"""


def test_a_long_log_is_exported_in_little_memory(long_log: Company, web: Server) -> None:
    def peak(until: int) -> int:
        """Kilobytes."""
        ran = subprocess.run(
            [sys.executable, "-c", MEASURE, long_log.organization.slug, str(until)],
            cwd=REPOSITORY,
            env=os.environ,
            capture_output=True,
            check=False,
        )
        assert ran.returncode == 0, ran.stderr.decode()
        assert ran.stdout.count(b"\n") == until
        return int(ran.stderr.split()[-1])

    short, long = peak(1000), peak(LONG)
    print(f"\nexport_log: {short / MEGABYTE:.0f} MB for 1,000 events, {long / MEGABYTE:.0f} MB for {LONG:,}")
    assert long - short < 20 * MEGABYTE
    assert exporting.PAGE < 5000
