"""What the hub reads of a request for a live page: cookies as Django does, and a query as strict as a body."""

from collections.abc import Iterator

import httpx
import pytest

from .cast import Company
from .hub import run_hub
from .servers import Server
from .sessions import People

# Cookies that other programs on the host may have set; some are none by the book.
FOREIGN = [
    'prefs={"a":1}',
    "a b=c",
    "=nameless",
    "flag",
    'quoted="semi; colon"',
    "näme=wört",
    "$Version=1",
    "list=[1,2]; x/y=z",
]


@pytest.fixture(scope="module")
def hub(static_files: None) -> Iterator[Server]:
    """The hub on a port of its own."""
    with run_hub() as server:
        yield server
        assert not server.trouble()


@pytest.mark.parametrize("foreign", FOREIGN)
@pytest.mark.parametrize("place", ["before", "after"])
def test_other_cookies_end_no_session(
    hub: Server, company: Company, people: People, foreign: str, place: str
) -> None:
    session = f"sessionid={people['viewer'].client.cookies['sessionid']}"
    cookies = f"{foreign}; {session}" if place == "before" else f"{session}; {foreign}"
    headers = [(b"Cookie", cookies.encode()), (b"Accept", b"text/event-stream")]
    for path in ("/live/board", "/live/approvals", "/live/leases", "/live/messages"):
        url = f"{hub.url}{path}?org={company.organization.slug}"
        with httpx.stream("GET", url, headers=headers, timeout=20) as stream:
            assert stream.status_code == 200
            # The page as it stands, or the word that the session has ended.
            first = next(line for line in stream.iter_lines() if line.startswith(("event:", "data:")))
            assert first.startswith("data:"), (path, first)


BAD = ["org=%00", "org=a&org=b", "id=%00", "org=a%00b", "status=%00&org=x"]


@pytest.mark.parametrize("query", BAD)
@pytest.mark.parametrize("page", ["board", "leases", "messages", "task", "approvals", "approval"])
def test_a_bad_query_is_named(hub: Server, page: str, query: str) -> None:
    answer = httpx.get(f"{hub.url}/live/{page}?{query}", timeout=20)
    assert answer.status_code == 400, answer.text
    assert list(answer.json()["error"]["details"]["fields"]) == [query.partition("=")[0]]
