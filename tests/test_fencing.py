"""The server's side of fencing: sequencers, their keys, and the question whether an epoch still has standing."""

from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import jwt
import pytest
from django.conf import settings

from coordination import sequencers, takeovers
from coordination.locks import clock
from coordination.models import Lease, Resource
from titen.api.doors import transact
from titen.api.ids import public_id

from .cast import Agent, Company, Human, found_company
from .clockwork import let_lease_run_out, sql, uuid_of
from .dump import changed_since, table_digests
from .servers import Server
from .stack import Stack
from .test_hot_statements import Door, sent_by


def said_by(sequencer: str, url: str, issuer: str = settings.PUBLIC_URL) -> dict[str, Any]:
    """What a sequencer says, checked by the published keys with nothing of ours."""
    keys = {key["kid"]: jwt.PyJWK(key) for key in httpx.get(f"{url}/.well-known/jwks.json").json()["keys"]}
    head = jwt.get_unverified_header(sequencer)
    assert (head["alg"], head["typ"]) == ("EdDSA", "titen-sequencer+jwt")
    said: dict[str, Any] = jwt.decode(sequencer, keys[head["kid"]], algorithms=["EdDSA"], issuer=issuer)
    return said


def whole_seconds(printed: str) -> int:
    return int(datetime.fromisoformat(printed).timestamp())


def test_a_claim_holds_a_sequencer_that_says_who_holds_what_until_when(
    claimed: Any, agent: Agent, company: Company
) -> None:
    lease = claimed["lease"]
    said = said_by(lease["sequencer"], agent.url)
    assert abs(said.pop("iat") - whole_seconds(claimed["server_time"])) <= 1
    assert said == {
        "iss": settings.PUBLIC_URL,
        "org": public_id("org", company.organization.pk),
        "resource_type": "task",
        "resource_id": claimed["task"]["id"],
        "epoch": lease["epoch"],
        "holder": public_id("agent", agent.principal.pk),
        "exp": whole_seconds(lease["expires_at"]),
    }


def test_the_claim_that_comes_with_an_end_holds_one_too(claimed: Any, agent: Agent) -> None:
    task = agent.create("Next")["id"]
    end = {"epoch": 1, "claim_next": True}
    following = agent.post(f"/runs/{claimed['run']['id']}/complete", end)["next"]
    assert said_by(following["lease"]["sequencer"], agent.url)["resource_id"] == task


def test_a_heartbeat_gives_one_on_request_that_lasts_as_long_as_the_lease(claimed: Any, agent: Agent) -> None:
    path = f"/runs/{claimed['run']['id']}/heartbeat"
    assert "sequencer" not in agent.post(path, {"epoch": 1})["lease"]
    lease = agent.post(path, {"epoch": 1, "ttl_seconds": 3600, "sequencer": True})["lease"]
    said, first = (said_by(text, agent.url) for text in (lease["sequencer"], claimed["lease"]["sequencer"]))
    assert said["exp"] == whole_seconds(lease["expires_at"]) > first["exp"]
    assert said | {"iat": 0, "exp": 0} == first | {"iat": 0, "exp": 0}


def test_a_repeated_claim_repeats_the_sequencer(agent: Agent) -> None:
    agent.create()
    key = {"Idempotency-Key": "the-same"}
    first, second = (agent.post("/tasks/claim", {}, headers=key) for _ in range(2))
    assert first["lease"]["sequencer"] == second["lease"]["sequencer"]


def test_a_question_and_a_signed_heartbeat_are_one_statement(claimed: Any, agent: Agent) -> None:
    door = Door(agent)
    sequencers.ready()
    ask = {"resource_type": "task", "resource_id": claimed["task"]["id"], "epoch": 1}
    assert sent_by(lambda: door.post("/fencing/verify", ask)) == ["Execute"]
    path = f"/runs/{claimed['run']['id']}/heartbeat"
    assert sent_by(lambda: door.post(path, {"epoch": 1, "sequencer": True})) == ["Execute"]


def verify(agent: Agent, resource_id: str, epoch: int = 1, resource_type: str = "task") -> tuple[bool, int]:
    asked = {"resource_type": resource_type, "resource_id": resource_id, "epoch": epoch}
    answer = agent.post("/fencing/verify", asked)
    return answer["valid"], answer["current_epoch"]


def test_verify_an_epoch_is_valid_while_its_lease_lives_and_no_other_is(
    claimed: Any, agent: Agent, other: Agent
) -> None:
    task = claimed["task"]["id"]
    assert verify(other, task) == (True, 1)
    assert verify(other, task, 2) == (False, 1)
    agent.post(f"/runs/{claimed['run']['id']}/release", {"epoch": 1})
    assert verify(other, task) == (False, 1)
    other.claim(task_id=task)
    assert [verify(agent, task, epoch) for epoch in (1, 2, 3)] == [(False, 2), (True, 2), (False, 2)]


def test_verify_what_has_run_out_is_not_valid_although_nobody_swept(claimed: Any, agent: Agent) -> None:
    let_lease_run_out(claimed)
    assert verify(agent, claimed["task"]["id"]) == (False, 1)
    assert sql(
        "SELECT ended_at FROM coordination_lease WHERE id = %s", uuid_of(claimed["lease"]["lease_id"])
    ) == [(None,)]


def test_verify_what_was_taken_away_is_not_valid_at_once(claimed: Any, agent: Agent, admin: Human) -> None:
    task = claimed["task"]["id"]
    transact(
        lambda: takeovers.take_over(admin.caller, uuid_of(task), to=None, reason="It is stuck.", epoch=1)
    )
    assert verify(agent, task) == (False, 1)


def test_verify_works_for_sections_as_for_anything(agent: Agent, company: Company) -> None:
    section = {"resource_type": "section", "resource_id": "handbook/intro/§ 1:b"}
    resource = Resource.objects.create(organization=company.organization, epoch=4, **section)
    at = clock()
    Lease.objects.create(
        organization=company.organization,
        resource=resource,
        principal=agent.principal,
        epoch=4,
        ttl_seconds=60,
        granted_because="claim",
        granted_at=at,
        renewed_at=at,
        expires_at=at + timedelta(seconds=60),
    )
    assert verify(agent, section["resource_id"], 4, "section") == (True, 4)
    assert verify(agent, section["resource_id"], 3, "section") == (False, 4)
    # A task never claimed, and what nobody ever leased.
    assert verify(agent, agent.create()["id"]) == (False, 0)
    assert verify(agent, "handbook/intro", 4, "section") == (False, 0)


def test_verify_another_organizations_resource_is_like_one_that_nobody_leased(
    claimed: Any, agent: Agent
) -> None:
    strangers = found_company(agent.url)
    stranger = strangers.agent("stranger")
    before = table_digests()
    assert verify(stranger, claimed["task"]["id"]) == verify(stranger, f"task_{'0' * 32}") == (False, 0)
    assert verify(agent, claimed["task"]["id"]) == (True, 1)
    assert changed_since(before) == []
    stranger.close()


def test_verify_needs_its_scope_and_stores_no_answer(claimed: Any, agent: Agent, company: Company) -> None:
    asked = {"resource_type": "task", "resource_id": claimed["task"]["id"], "epoch": 1}
    refused = company.agent(scopes="tasks:claim tasks:read").refused("FORBIDDEN", "/fencing/verify", asked)
    assert refused["details"] == {"scope": "fencing:verify"}
    recipient = company.agent(scopes="fencing:verify")
    key = {"Idempotency-Key": "again"}
    assert recipient.post("/fencing/verify", asked, headers=key)["valid"]
    let_lease_run_out(claimed)
    assert not recipient.post("/fencing/verify", asked, headers=key)["valid"]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("epoch", value) for value in (0, -1, 2**53, 10**30, "1", True, 1.5, None)),
        *(("resource_type", value) for value in ("", "x" * 81, "a\nb", 7, None)),
        *(("resource_id", value) for value in ("", "x" * 401, "a\x1fb", ["x"], None)),
    ],
)
def test_verify_takes_nothing_strange(agent: Agent, field: str, value: Any) -> None:
    asked = {"resource_type": "deploy", "resource_id": "checkout", "epoch": 1, field: value}
    assert list(agent.refused("VALIDATION_ERROR", "/fencing/verify", asked)["details"]["fields"]) == [field]


def test_the_key_set_is_for_anybody_and_plain(web: Server) -> None:
    answer = httpx.get(f"{web.url}/.well-known/jwks.json")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["cache-control"] == "public, max-age=300"
    assert "set-cookie" not in answer.headers
    for key in answer.json()["keys"]:
        assert key == {**key, "kty": "OKP", "crv": "Ed25519", "use": "sig", "alg": "EdDSA"}
        assert key.keys() == {"kty", "crv", "x", "kid", "use", "alg"}
        assert len(key["x"]) == 43
    assert httpx.post(f"{web.url}/.well-known/jwks.json").status_code == 405
    assert httpx.head(f"{web.url}/.well-known/jwks.json").content == b""


def test_through_the_front_the_issuer_is_the_address_of_up(stack: Stack) -> None:
    firm = stack.found(1)
    firm.agents[0].create()
    sequencer = firm.agents[0].claim()["lease"]["sequencer"]
    assert said_by(sequencer, stack.address, issuer=stack.address)["iss"] == stack.address
    firm.close()


def test_a_sequencer_never_outlives_its_lease(company: Company) -> None:
    expires_at = datetime(2026, 7, 30, 10, 58, 13, 999_000, tzinfo=UTC)
    issued = sequencers.issue(
        organization_id=company.organization.pk,
        resource_type="deploy",
        resource_id="checkout",
        epoch=1,
        holder_id=company.organization.pk,
        expires_at=expires_at,
    )
    said = jwt.decode(issued, options={"verify_signature": False})
    assert said["exp"] == int(expires_at.replace(microsecond=0).timestamp())
