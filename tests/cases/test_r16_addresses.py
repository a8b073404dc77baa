"""R16: no webhook reaches an inner address, however it is written, and none follows a redirect there."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.cast import Agent
from tests.clockwork import sql, uuid_of
from tests.sinks import INNER, Sink, deliver, deliveries, hook, redirect, sink

pytestmark = pytest.mark.usefixtures("nothing_owed")

REFUSED = [
    *("http://127.0.0.1:{port}/", "http://localhost:{port}/", "http://[::1]:{port}/"),
    *("http://[::ffff:127.0.0.1]:{port}/", "http://[::ffff:7f00:1]:{port}/", "http://0x7f000001:{port}/"),
    *(
        "http://2130706433:{port}/",
        "http://0177.0.0.1:{port}/",
        "http://127.1:{port}/",
        "http://0.0.0.0:{port}/",
    ),
    *(
        "http://169.254.169.254/latest/meta-data",
        "http://[fe80::1]/",
        "http://[fe80::1%25lo]/",
        "http://[fd00::1]/",
    ),
    *("http://10.0.0.1/", "http://100.64.0.1/", "https://user:pw@93.184.215.14/", "file:///etc/passwd"),
    *("gopher://93.184.215.14/", "http://localhost.:{port}/", "http://LOCALHOST:{port}/", "http://0:{port}/"),
    *("http://[::127.0.0.1]:{port}/", "http://[64:ff9b::7f00:1]:{port}/", "http://[2002:7f00:1::]:{port}/"),
    *("https://127.0.0.1:{port}/", "//127.0.0.1:{port}/", "http://127.0.0.2@127.0.0.1:{port}/"),
    *(
        "http://127.0.0.1:{port}/#@127.0.0.2/",
        "http://127.0.0.1\\@127.0.0.2:{port}/",
        "http:127.0.0.1:{port}",
    ),
]


@pytest.fixture(autouse=True)
def one_attempt(settings: Any) -> None:
    """The next one is hours away."""
    settings.WEBHOOK_FIRST_RETRY_SECONDS = 8 * 3600


@pytest.fixture
def inner() -> Iterator[Sink]:
    """Something on loopback that no webhook may reach."""
    with sink(host=INNER) as receiver:
        yield receiver
        assert receiver.requests == []


@pytest.mark.parametrize("template", REFUSED)
def test_refused_where_it_is_made_and_where_it_is_changed(agent: Agent, inner: Sink, template: str) -> None:
    url = template.format(port=inner.port)
    error = agent.refused("VALIDATION_ERROR", "/webhooks", {"url": url})
    assert list(error["details"]["fields"]) == ["url"]
    with sink() as allowed:
        made = hook(agent, allowed)
        path = f"/webhooks/{made['webhook_id']}"
        again = agent.refused("VALIDATION_ERROR", path, {"url": url}, method="PATCH")
        assert again["details"] == error["details"]
        assert agent.get(path)["url"] == allowed.url


@pytest.mark.parametrize("template", REFUSED)
def test_judged_again_at_the_attempt(agent: Agent, inner: Sink, template: str) -> None:
    """As when a name, or the list, was another one at the creation."""
    with sink() as allowed:
        made = hook(agent, allowed, kinds=["task.created"])
        url = template.format(port=inner.port)
        sql("UPDATE coordination_webhook SET url = %s WHERE id = %s", url, uuid_of(made["webhook_id"]))
        agent.create()
        deliver()
        assert allowed.requests == []
    (owed,) = deliveries(agent, made)
    assert (owed["status"], owed["attempt_count"], owed["response_status"]) == ("pending", 1, None)
    assert owed["problem"] in ("address_not_allowed", "bad_url", "name_not_resolved")


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_no_redirect_is_followed(agent: Agent, inner: Sink, status: int) -> None:
    with sink(redirect(status, inner.url)) as allowed:
        made = hook(agent, allowed, kinds=["task.created"])
        agent.create()
        deliver()
        assert len(allowed.requests) == 1
    (owed,) = deliveries(agent, made)
    assert (owed["problem"], owed["response_status"]) == ("redirect", status)
    assert "internal words" not in json.dumps(owed)
    row: Any = sql(
        "SELECT to_jsonb(d)::text FROM coordination_delivery d WHERE id = %s", uuid_of(owed["delivery_id"])
    )
    assert "internal words" not in row[0][0]


def test_what_the_operator_lists_is_reached(agent: Agent) -> None:
    with sink() as allowed:
        hook(agent, allowed, kinds=["task.created"])
        agent.create()
        deliver()
        assert len(allowed.requests) == 1
