"""A key that was sent in the wrong place comes back in no answer and stands in no log line, event or page."""

import json
import logging
import logging.config
import uuid
from typing import Any

import pytest
from django.conf import settings
from django.urls import reverse

from coordination import events
from coordination.models import Event
from titen.errors import CODES, Refused, invalid
from titen.redaction import redact, redacted

from .cases.routes import PREFIXES, offered
from .cast import Agent, Company
from .servers import Server
from .visitors import Visit

KEY = "titen_sk_" + "Ab-_9" * 8 + "xyz"
HOOK = "whsec_" + "Ab+/9" * 8 + "xyz="
SECRETS = [KEY, HOOK, KEY.upper()]


def bare(secret: str) -> str:
    """What may stand nowhere: the part behind the prefix."""
    return secret.rpartition("_sk_" if secret.startswith("titen") else "whsec_")[2].upper()


def holds_one(text: str) -> bool:
    """Whether one of the secrets stands in a text."""
    return any(bare(secret) in text.upper() for secret in SECRETS)


def test_no_route_sends_one_back(agent: Agent, web: Server) -> None:
    ids = {name: f"{prefix}_{uuid.uuid4().hex}" for name, prefix in PREFIXES.items()}
    answered = 0
    for call in offered():
        path = call.path(ids)
        sound = call.body(ids) or {}
        body = None if call.method == "GET" else sound
        for query, content, headers in (
            ({KEY: "1", HOOK: ["1", "2"]}, body, {}),
            (dict.fromkeys(("wait", "cursor", "status", "limit"), KEY), body, {}),
            ({}, {**sound, KEY: 1, HOOK: 1}, {}),
            ({}, {name: {KEY: HOOK} for name in (*sound, "scopes", "kinds")}, {}),
            ({}, {**sound, "items": [{KEY: 1}], "resources": [{KEY: 1}], "options": [{HOOK: 1}]}, {}),
            ({}, {**dict.fromkeys(sound, KEY), "epoch": HOOK}, {}),
            ({}, body, {"Idempotency-Key": KEY + "x" * 200, "If-Match": HOOK}),
        ):
            answer = agent.client.request(
                call.method, f"/v1{path}", params=query, json=content, headers=headers
            )
            if answer.status_code >= 400:  # else it is one's own text in one's own object
                answered += 1
                assert not holds_one(answer.text), (call, query, content)
        if call.names:
            wrong = agent.client.request(call.method, f"/v1{call.path(dict.fromkeys(ids, KEY))}", json=body)
            assert not holds_one(wrong.text), call
        raw, kind = f'{{"{KEY}": 1, "{KEY}": 2}}'.encode(), {"Content-Type": "application/json"}
        twice = agent.client.request(call.method, f"/v1{path}", content=raw, headers=kind)
        assert not holds_one(twice.text), call
    assert answered > 150
    assert not holds_one(web.log.read_text(errors="replace"))


@pytest.mark.parametrize("secret", SECRETS)
def test_sections_send_it_back_neither(secret: str, agent: Agent) -> None:
    path = "/api/v1/documents/handbook/sections/intro/lease"
    for query, body in (({secret: 1}, {}), ({}, {secret: 1}), ({}, {"leaseDurationSeconds": secret})):
        answer = agent.client.post(path, params=query, json=body)
        assert answer.status_code == 400
        assert bare(secret) not in answer.text.upper()


def test_the_board_shows_it_neither(company: Company, visit: Visit) -> None:
    ada = visit(company.human("admin"))
    ada.open("/keys")
    page = ada.form(f"/keys/{KEY}/revoke")
    assert page.status_code == 404
    assert not holds_one(page.text)
    made = ada.form(reverse("make-key"), agent=KEY, scopes=[HOOK], days=KEY, label="x")
    assert made.status_code == 400
    assert not holds_one(made.text.partition('class="problem"')[2].partition("</p>")[0])


def test_every_refusal_is_redacted_where_it_is_made() -> None:
    problem = invalid(KEY, f"is not {HOOK}.")
    told = json.dumps([problem.message, problem.details, str(problem)])
    assert bare(KEY) not in told.upper()
    assert bare(HOOK) not in told.upper()
    assert list(problem.details["fields"]) == ["titen_sk_[redacted]"]
    refused = Refused("CONFLICT", object=KEY, state="here", details={"deep": [{KEY: [KEY, 1, None]}]})
    assert refused.details == {"deep": [{"titen_sk_[redacted]": ["titen_sk_[redacted]", 1, None]}]}
    for code, kind in CODES.items():
        assert redact(kind.message) == kind.message, code


def test_log_lines_and_their_tracebacks_are_redacted() -> None:
    written: list[str] = []

    class Kept(logging.Handler):
        """Keeps what the configured formatter makes of a line."""

        def emit(self, record: logging.LogRecord) -> None:
            written.append(self.format(record))

    handler, logger = Kept(), logging.getLogger(f"titen.{uuid.uuid4().hex}")
    configured: Any = settings.LOGGING
    (formatter,) = {each["formatter"] for each in configured["handlers"].values()}
    made = logging.config.DictConfigurator({"version": 1, **configured}).configure_formatter(
        dict(configured["formatters"][formatter])
    )
    handler.setFormatter(made)
    logger.addHandler(handler)
    logger.propagate = False
    try:
        raise ValueError(f"cannot read {KEY}")
    except ValueError:
        logger.exception("asked for %s with %s", f"/v1/tasks/{KEY}", HOOK)
    (line,) = written
    assert "Traceback" in line
    assert "titen_sk_[redacted]" in line
    assert bare(KEY) not in line.upper()
    assert bare(HOOK) not in line.upper()


def test_events_are_redacted_where_they_are_written(company: Company) -> None:
    own = company.organization.pk
    events.record("policy.changed", organization_id=own, actor_id=None, tool=KEY, was={KEY: [HOOK]})
    event = Event.objects.get(organization_id=own, kind="policy.changed")
    assert event.data == {"tool": "titen_sk_[redacted]", "was": {"titen_sk_[redacted]": ["whsec_[redacted]"]}}


@pytest.mark.parametrize("text", ["titen_sk_…", "whsec_ begins a secret", "a titen_sk_ key", ""])
def test_words_about_keys_stay(text: str) -> None:
    assert redact(text) == text
    assert redacted({text: text}) == {text: text}
