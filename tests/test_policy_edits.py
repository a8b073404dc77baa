"""Editing policy: who may, what is refused and by which name, what the log says, and what "always" comes to."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any
from uuid import UUID, uuid4

import pytest

from approvals import policy, policy_edits
from approvals.actions import Action
from approvals.models import Approval, Decision, Kind, PolicyRule, Risk, ToolEntry
from approvals.policy_terms import RuleTerms, ToolTerms, row_digest
from coordination.locks import clock
from coordination.models import Event, Organization, Role
from titen.api.doors import transact
from titen.api.envelope import as_refusal
from titen.errors import Refused

from . import acting
from .cast import Agent, Company, Human
from .clockwork import sql, uuid_of
from .effecting import ask, authorize, decide, flag
from .locking import Work, second_connection, together, wait_until_blocked

ASKS = RuleTerms(Decision.ASK, tool="deploy*", server="cluster", rank=5, note="Ask the team first.")
HOUR, DAY = 3600, 86_400
SIMPLE = ToolTerms(Kind.OTHER, tool="read_*")


def add_rule(human: Human, terms: RuleTerms = ASKS) -> PolicyRule:
    """A rule that an admin makes."""
    return transact(lambda: policy_edits.add_rule(human.caller, terms))


def add_tool(human: Human, terms: ToolTerms = SIMPLE) -> ToolEntry:
    """A line that an admin makes."""
    return transact(lambda: policy_edits.add_tool(human.caller, terms))


def change(human: Human, row: Any, terms: Any, shown: str = "") -> Any:
    """Other terms for a row."""
    verb: Any = policy_edits.change_rule if isinstance(row, PolicyRule) else policy_edits.change_tool
    return transact(lambda: verb(human.caller, row.pk, terms, shown=shown or row_digest(row)))


def end(human: Human, row: Any, shown: str = "") -> Any:
    """The row holds no more."""
    verb: Any = policy_edits.end_rule if isinstance(row, PolicyRule) else policy_edits.end_tool
    return transact(lambda: verb(human.caller, row.pk, shown=shown or row_digest(row)))


def refused(code: str, work: Callable[[], Any]) -> Refused:
    """The refusal of what must be refused with this code."""
    with pytest.raises(Exception) as raised:  # noqa: PT011  (a constraint's error is a refusal at the door)
        work()
    found = as_refusal(raised.value)
    assert found.code == code, found
    return found


def wrong_fields(human: Human, terms: RuleTerms) -> list[str]:
    """The fields by which a new rule is refused."""
    return list(refused("VALIDATION_ERROR", lambda: add_rule(human, terms)).details["fields"])


def log(company: Company) -> list[Event]:
    """What the log says of the policy."""
    return list(
        Event.objects.filter(organization=company.organization, kind__startswith="policy.").order_by("seq")
    )


# --- events


def test_each_edit_of_a_rule_is_one_event_with_what_was_and_what_is(
    company: Company, admin: Human, agent: Agent
) -> None:
    rule = add_rule(admin, replace(ASKS, agent_id=agent.principal.pk))
    changed = change(
        admin, rule, replace(ASKS, required_role=Role.ADMIN, risk=Risk.HIGH, note="Not alone.", rank=7)
    )
    end(admin, changed)
    added, moved, ended = log(company)
    assert [event.kind for event in (added, moved, ended)] == [
        "policy.rule_added",
        "policy.rule_changed",
        "policy.rule_ended",
    ]
    assert {event.subject_id for event in (added, moved, ended)} == {rule.pk}
    assert {event.actor_id for event in (added, moved, ended)} == {admin.caller.principal_id}
    terms = {
        "id": f"rule_{rule.pk.hex}",
        "rank": 5,
        "decision": "ask",
        "tool": "deploy*",
        "server": "cluster",
        "kind": "",
        "agent": f"agent_{agent.principal.pk.hex}",
        "capability": "",
        "required_role": "approver",
        "risk": "",
        "expires_in_seconds": None,
        "expires_at": None,
    }
    assert added.data == {"now": terms}
    now = {**terms, "agent": None, "required_role": "admin", "risk": "high", "rank": 7}
    assert moved.data == {"was": terms, "now": now, "note_changed": True}
    assert ended.data == {"was": now}
    assert "team" not in str([event.data for event in log(company)])


def test_each_edit_of_the_tool_list_is_one_event(company: Company, admin: Human) -> None:
    entry = add_tool(admin)
    end(admin, change(admin, entry, ToolTerms(Kind.DESTRUCTIVE, rank=2, tool="read_*", server="")))
    added, moved, ended = log(company)
    assert [event.kind for event in (added, moved, ended)] == [
        "policy.tool_added",
        "policy.tool_changed",
        "policy.tool_ended",
    ]
    was = {"id": f"tool_{entry.pk.hex}", "rank": 0, "tool": "read_*", "server": "*", "kind": "other"}
    now = {**was, "rank": 2, "server": "", "kind": "destructive"}
    assert (added.data, moved.data, ended.data) == ({"now": was}, {"was": was, "now": now}, {"was": now})


def test_flags_are_set_with_an_event_of_what_changed(company: Company, admin: Human) -> None:
    organization = company.organization
    flags = {
        "require_approval_for_destructive_tools": True,
        "require_approval_for_outward_actions": False,
        "forbid_self_approval": True,
    }
    shown = row_digest(organization)
    transact(lambda: policy_edits.set_flags(admin.caller, flags, shown=shown))
    (event,) = log(company)
    assert event.kind == "policy.flags_changed"
    assert event.data == {
        "was": {"require_approval_for_outward_actions": True, "forbid_self_approval": False},
        "now": {"require_approval_for_outward_actions": False, "forbid_self_approval": True},
    }
    again = refused(
        "DIGEST_MISMATCH",
        lambda: transact(lambda: policy_edits.set_flags(admin.caller, flags, shown=shown)),
    )
    assert again.details["now"] == flags
    fresh = row_digest(Organization.objects.get(pk=organization.pk))
    transact(lambda: policy_edits.set_flags(admin.caller, flags, shown=fresh))
    assert len(log(company)) == 1


def test_saving_what_stands_already_is_no_event(company: Company, admin: Human) -> None:
    rule, entry = add_rule(admin), add_tool(admin)
    change(admin, rule, ASKS)
    change(admin, entry, SIMPLE)
    assert [event.kind for event in log(company)] == ["policy.rule_added", "policy.tool_added"]


def test_a_changed_rule_stands_under_the_name_of_who_changed_it(company: Company, admin: Human) -> None:
    rule, second = add_rule(admin), company.human("admin")
    assert change(second, rule, replace(ASKS, rank=6)).made_by == second.user


# --- validation

LONG = "a" * 201
BAD_MATCHES = [
    ({"tool": ""}, "tool"),
    ({"tool": "de ploy"}, "tool"),
    ({"tool": "[a-z]"}, "tool"),
    ({"tool": "dëploy"}, "tool"),
    ({"tool": "deploy\n"}, "tool"),
    ({"tool": "deploy\0"}, "tool"),
    ({"tool": LONG}, "tool"),
    ({"server": "a b"}, "server"),
    ({"server": "{a,b}"}, "server"),
    ({"server": LONG}, "server"),
    ({"rank": 1001}, "rank"),
    ({"rank": -1001}, "rank"),
    ({"rank": 10**12}, "rank"),
]
BAD_RULES = [
    *BAD_MATCHES,
    ({"capability": "Ship It"}, "capability"),
    ({"capability": "a" * 81}, "capability"),
    ({"agent_id": uuid4()}, "agent"),
    ({"required_role": Role.OPERATOR}, "required_role"),
    ({"required_role": Role.VIEWER}, "required_role"),
    ({"expires_in_seconds": 59}, "expires_in_seconds"),
    ({"expires_in_seconds": 30 * DAY + 1}, "expires_in_seconds"),
    ({"note": "a" * 401}, "note"),
    ({"decision": Decision.DENY, "risk": Risk.HIGH}, "risk"),
    ({"decision": Decision.ALLOW, "expires_in_seconds": 60}, "expires_in_seconds"),
    ({"decision": Decision.DENY, "required_role": Role.ADMIN}, "required_role"),
]


@pytest.mark.parametrize(("wrong", "field"), BAD_RULES)
def test_a_rule_is_refused_by_the_name_of_its_field(
    company: Company, admin: Human, wrong: dict[str, Any], field: str
) -> None:
    terms = replace(ASKS, **wrong)
    assert wrong_fields(admin, terms) == [field]
    rule = add_rule(admin)
    found = refused("VALIDATION_ERROR", lambda: change(admin, rule, terms))
    assert list(found.details["fields"]) == [field]
    assert [event.kind for event in log(company)] == ["policy.rule_added"]


@pytest.mark.parametrize(("wrong", "field"), BAD_MATCHES)
def test_a_line_of_the_tool_list_is_refused_by_the_name_of_its_field(
    company: Company, admin: Human, wrong: dict[str, Any], field: str
) -> None:
    terms = replace(SIMPLE, **wrong)
    assert list(refused("VALIDATION_ERROR", lambda: add_tool(admin, terms)).details["fields"]) == [field]
    entry = add_tool(admin)
    assert list(refused("VALIDATION_ERROR", lambda: change(admin, entry, terms)).details["fields"]) == [field]


@pytest.mark.parametrize(
    "terms",
    [
        {"tool": "*", "server": "*"},
        {"tool": "a", "server": ""},
        {"tool": "?_*.:/@+-", "server": "a" * 200},
        {"rank": 1000},
        {"rank": -1000},
        {"capability": "deploy:staging"},
        {"expires_in_seconds": 60},
        {"expires_in_seconds": 30 * DAY},
        {"note": "a" * 400},
        {"required_role": Role.ADMIN, "risk": Risk.LOW},
    ],
)
def test_the_edges_of_what_a_rule_may_say_are_taken(admin: Human, terms: dict[str, Any]) -> None:
    rule = add_rule(admin, replace(ASKS, **terms))
    assert {name: getattr(rule, name) for name in terms} == terms


def test_a_rules_own_end_lies_in_the_future(admin: Human) -> None:
    for passed in (timedelta(0), timedelta(seconds=1), timedelta(days=400)):
        assert wrong_fields(admin, replace(ASKS, expires_at=clock() - passed)) == ["expires_at"]
    assert add_rule(admin, replace(ASKS, expires_at=clock() + timedelta(minutes=1))).expires_at is not None


def test_an_agent_of_another_organization_and_a_human_are_no_agents(admin: Human, elsewhere: Company) -> None:
    for key in (elsewhere.agent().principal.pk, admin.caller.principal_id):
        assert wrong_fields(admin, replace(ASKS, agent_id=key)) == ["agent"]


def test_a_tool_is_listed_once_per_rank(admin: Human) -> None:
    entry = add_tool(admin)
    assert "has a line" in refused("CONFLICT", lambda: add_tool(admin)).message
    other = add_tool(admin, replace(SIMPLE, rank=1))
    assert "has a line" in refused("CONFLICT", lambda: change(admin, other, SIMPLE)).message
    end(admin, entry)
    assert add_tool(admin).pk != entry.pk


@pytest.mark.parametrize("what", ["rule", "tool"])
def test_there_are_at_most_so_many(admin: Human, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    monkeypatch.setattr(policy_edits, "RULES_MAXIMUM", 2)
    monkeypatch.setattr(policy_edits, "LINES_MAXIMUM", 2)

    def add(number: int) -> Any:
        if what == "rule":
            return add_rule(admin, replace(ASKS, rank=number))
        return add_tool(admin, replace(SIMPLE, rank=number))

    first = add(1)
    add(2)
    assert "There are 2 already" in refused("CONFLICT", lambda: add(3)).message
    end(admin, first)
    add(3)
    if what == "rule":
        # What has run out does not count, and is written down.
        sql(
            "UPDATE approvals_policyrule SET expires_at = clock_timestamp() WHERE rank = 2 AND ended_at IS NULL"
            " AND organization_id = %s",
            admin.organization.pk,
        )
        add(4)


def test_the_limits_are_those_that_are_promised() -> None:
    assert (policy_edits.RULES_MAXIMUM, policy_edits.LINES_MAXIMUM) == (200, 500)


def test_a_rule_that_ran_out_is_written_down_by_the_next_edit(company: Company, admin: Human) -> None:
    rule = add_rule(admin, replace(ASKS, expires_at=clock() + timedelta(hours=1)))
    sql("UPDATE approvals_policyrule SET expires_at = clock_timestamp() WHERE id = %s", rule.pk)
    add_tool(admin)
    rule.refresh_from_db()
    assert rule.ended_at == rule.expires_at
    ended = log(company)[1]
    assert (ended.kind, ended.actor_id, ended.data["because"]) == ("policy.rule_ended", None, "expired")


# --- who


def edits(rule: PolicyRule, entry: ToolEntry) -> dict[str, Callable[[Any], Any]]:
    """Every edit, by its name; each with what the page shows now."""
    flags = {"forbid_self_approval": True}
    return {
        "add_rule": lambda caller: policy_edits.add_rule(caller, ASKS),
        "change_rule": lambda caller: policy_edits.change_rule(caller, rule.pk, ASKS, shown=row_digest(rule)),
        "end_rule": lambda caller: policy_edits.end_rule(caller, rule.pk, shown=row_digest(rule)),
        "add_tool": lambda caller: policy_edits.add_tool(caller, SIMPLE),
        "change_tool": lambda caller: policy_edits.change_tool(
            caller, entry.pk, SIMPLE, shown=row_digest(entry)
        ),
        "end_tool": lambda caller: policy_edits.end_tool(caller, entry.pk, shown=row_digest(entry)),
        "set_flags": lambda caller: policy_edits.set_flags(
            caller, flags, shown=row_digest(Organization.objects.get(pk=rule.organization_id))
        ),
        "always_allow": lambda caller: policy_edits.always_allow(caller, uuid4(), shown_digest=""),
    }


@pytest.mark.parametrize("role", [Role.VIEWER, Role.OPERATOR, Role.APPROVER])
def test_only_admins_edit(company: Company, admin: Human, agent: Agent, role: Role) -> None:
    rule, entry, nobody = add_rule(admin), add_tool(admin), company.human(role)
    before = len(log(company))
    for caller in (nobody.caller, agent.caller):
        for name, edit in edits(rule, entry).items():
            found = refused("FORBIDDEN", partial(transact, partial(edit, caller)))
            assert "admin" in found.message or "human" in found.message, name
    assert len(log(company)) == before


def test_rows_of_another_organization_are_unknown(admin: Human, elsewhere: Company) -> None:
    theirs = elsewhere.human("admin")
    rule, entry = add_rule(theirs), add_tool(theirs)
    for row, terms in ((rule, ASKS), (entry, SIMPLE)):
        refused("NOT_FOUND", partial(change, admin, row, terms))
        refused("NOT_FOUND", partial(end, admin, row))


def test_an_admin_whose_membership_ended_edits_nothing(company: Company, admin: Human) -> None:
    caller = admin.caller
    sql("UPDATE coordination_membership SET ended_at = clock_timestamp() WHERE user_id = %s", admin.user.pk)
    refused("NOT_FOUND", lambda: transact(lambda: policy_edits.add_rule(caller, ASKS)))
    assert log(company) == []


# --- edits of what has changed


def test_an_edit_of_what_the_page_did_not_show_is_refused_with_the_row_as_it_stands(
    company: Company, admin: Human
) -> None:
    second = company.human("admin")
    for row, terms, other in (
        (add_rule(admin), ASKS, replace(ASKS, note="Another word.")),
        (add_tool(admin), SIMPLE, replace(SIMPLE, rank=3)),
    ):
        shown = row_digest(row)
        now = change(second, row, other)
        for attempt in (
            partial(change, admin, row, terms, shown),
            partial(end, admin, row, shown),
        ):
            found = refused("DIGEST_MISMATCH", attempt)
            assert found.details["digest"] == row_digest(now)
            assert found.details["now"]["rank"] == now.rank


def test_what_has_ended_is_edited_no_more(admin: Human) -> None:
    for row, terms in ((add_rule(admin), ASKS), (add_tool(admin), SIMPLE)):
        end(admin, row)
        for attempt in (
            partial(change, admin, row, terms),
            partial(end, admin, row),
        ):
            assert refused("CONFLICT", attempt).details["state"] == "ended"


def test_of_many_edits_of_one_row_at_once_one_happens(company: Company, admin: Human) -> None:
    rule = add_rule(admin)
    shown = row_digest(rule)
    humans = [admin, *(company.human("admin") for _ in range(3))]

    def edit(number: int) -> Callable[[], Any]:
        human, terms = humans[number % 4], replace(ASKS, rank=100 + number)
        if number % 2:
            return lambda: end(human, rule, shown)
        return lambda: change(human, rule, terms, shown)

    found = together(*(edit(number) for number in range(8)))
    done = [each for each in found if isinstance(each, PolicyRule)]
    assert len(done) == 1
    assert {each.code for each in found if each is not done[0]} <= {"DIGEST_MISMATCH", "CONFLICT"}
    assert [event.kind for event in log(company)][1:] in (["policy.rule_changed"], ["policy.rule_ended"])


def test_an_edit_that_waited_sees_what_was_done_before_it(company: Company, admin: Human) -> None:
    rule = add_rule(admin)
    shown = row_digest(rule)
    with second_connection() as other:
        other.run(
            "SELECT FROM coordination_organization WHERE id = %s FOR NO KEY UPDATE", company.organization.pk
        )
        waiting = Work(lambda: change(admin, rule, replace(ASKS, rank=6), shown))
        wait_until_blocked(other)
        other.run("UPDATE approvals_policyrule SET rank = 9 WHERE id = %s", rule.pk)
        other.commit()
        assert refused("DIGEST_MISMATCH", waiting.outcome).details["now"]["rank"] == 9


def test_the_limit_holds_among_edits_at_once(
    company: Company, admin: Human, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(policy_edits, "RULES_MAXIMUM", 3)
    found = together(*(partial(add_rule, admin, replace(ASKS, rank=rank)) for rank in range(8)))
    assert sum(isinstance(each, PolicyRule) for each in found) == 3
    assert PolicyRule.objects.filter(organization=company.organization, ended_at=None).count() == 3


# --- always allow


def always(human: Human, approval: Any, seconds: int = DAY, **more: Any) -> PolicyRule:
    """Grant what is asked, and go on so."""
    return transact(
        lambda: policy_edits.always_allow(
            human.caller,
            uuid_of(approval["id"]),
            shown_digest=approval["digest"],
            expires_in_seconds=seconds,
            **more,
        )
    )


def verdict(agent: Agent, action: dict[str, Any], **more: Any) -> policy.Verdict:
    """What policy says of an action now."""
    return policy.judge(
        agent.principal, Action(action["tool"], action["server"], action["arguments"], **more)
    )


def pass_by(rule: PolicyRule) -> None:
    """The rule's time is over."""
    assert sql(
        "UPDATE approvals_policyrule SET expires_at = clock_timestamp() WHERE id = %s RETURNING 1", rule.pk
    )


def test_always_allow_grants_this_once_and_allows_the_like_of_it(
    company: Company, admin: Human, agent: Agent, other: Agent, claimed: Any
) -> None:
    action = acting.deploy()
    approval = ask(agent, claimed, action)
    rule = always(admin, approval, reason="It does so every day.")
    row = Approval.objects.get(pk=uuid_of(approval["id"]))
    assert (row.status, row.granted, row.decided_by_user) == ("decided", True, admin.user)
    assert row.reason == "It does so every day."
    assert (rule.decision, rule.rank, rule.tool, rule.server) == ("allow", 0, "deploy", "cluster")
    assert (rule.agent, rule.kind, rule.capability) == (agent.principal, "outward", "")
    assert (rule.made_from, rule.made_by) == (row, admin.user)
    (event,) = log(company)
    assert (event.kind, event.subject_id) == ("policy.rule_added", rule.pk)
    assert event.data["made_from"] == approval["id"]
    # Once by the rule, which leaves the grant unused.
    effect = authorize(agent, claimed, {**action, "arguments": {"build": "any"}})
    assert (effect["status"], effect["approval_id"]) == ("authorized", None)
    assert effect["verdict"]["rule"]["id"] == f"rule_{rule.pk.hex}"
    # Nobody else, nothing else.
    for who, what in (
        (other, action),
        (agent, {**action, "tool": "deploy2"}),
        (agent, {**action, "server": "cluster2"}),
        (agent, {**action, "server": None}),
        (agent, {**action, "tool": "Deploy"}),
    ):
        assert verdict(who, what).decision == Decision.ASK, what
    assert verdict(agent, action, claimed=Kind.DESTRUCTIVE).decision == Decision.ASK


@pytest.mark.parametrize("seconds", [HOUR, DAY, 7 * DAY, 30 * DAY])
def test_after_its_time_the_same_action_asks_again(
    admin: Human, agent: Agent, claimed: Any, seconds: int
) -> None:
    action = acting.deploy()
    at = clock()
    rule = always(admin, ask(agent, claimed, action), seconds)
    assert rule.expires_at is not None
    assert abs(rule.expires_at - at - timedelta(seconds=seconds)) < timedelta(seconds=20)
    assert verdict(agent, action).decision == Decision.ALLOW
    pass_by(rule)
    assert verdict(agent, action).decision == Decision.ASK


def test_always_is_one_of_four_times(admin: Human, agent: Agent, claimed: Any) -> None:
    approval = ask(agent, claimed, acting.deploy())
    for seconds in (0, 60, DAY + 1, 365 * DAY):
        found = refused("VALIDATION_ERROR", partial(always, admin, approval, seconds))
        assert list(found.details["fields"]) == ["expires_in_seconds"]


def test_an_action_without_a_server_is_allowed_without_one_alone(
    admin: Human, agent: Agent, claimed: Any
) -> None:
    action = {**acting.deploy(), "server": None}
    assert always(admin, ask(agent, claimed, action)).server == ""
    assert verdict(agent, action).decision == Decision.ALLOW
    assert verdict(agent, {**action, "server": "cluster"}).decision == Decision.ASK


def test_the_rule_stands_just_above_the_one_that_asked(
    company: Company, admin: Human, agent: Agent, claimed: Any
) -> None:
    asking = acting.rule(company, Decision.ASK, "deploy", rank=41)
    action = acting.deploy()
    rule = always(admin, ask(agent, claimed, action))
    assert rule.rank == 42
    assert verdict(agent, action).rule == rule
    # A no of a higher rank is a no.
    no = acting.rule(company, Decision.DENY, rank=43)
    assert verdict(agent, action).rule == no
    sql("UPDATE approvals_policyrule SET rank = 42 WHERE id = %s", no.pk)
    assert verdict(agent, action).decision == Decision.DENY
    sql("UPDATE approvals_policyrule SET rank = 41 WHERE id = %s", no.pk)
    assert verdict(agent, action).decision == Decision.ALLOW
    assert asking.ended_at is None


def test_nothing_stands_above_the_highest_rank(
    company: Company, admin: Human, agent: Agent, claimed: Any
) -> None:
    acting.rule(company, Decision.ASK, rank=1000)
    approval = ask(agent, claimed, acting.deploy())
    assert "highest rank" in refused("CONFLICT", lambda: always(admin, approval)).message
    assert Approval.objects.get(pk=uuid_of(approval["id"])).status == "pending"


def test_a_rule_that_would_change_nothing_is_not_written(
    company: Company, admin: Human, agent: Agent, claimed: Any
) -> None:
    approval = ask(agent, claimed, acting.deploy())
    acting.rule(company, Decision.ASK, rank=9)
    assert "change nothing" in refused("CONFLICT", lambda: always(admin, approval)).message
    assert Approval.objects.get(pk=uuid_of(approval["id"])).status == "pending"
    assert log(company) == []


def test_what_the_agent_called_stricter_is_allowed_as_it_was_asked(
    admin: Human, agent: Agent, claimed: Any
) -> None:
    action = acting.deploy()
    approval = ask(agent, claimed, {**action, "kind": "destructive"})
    assert approval["kind"] == "destructive"
    assert always(admin, approval).kind == ""
    for kind in (Kind.DESTRUCTIVE, Kind.OUTWARD, None):
        assert verdict(agent, action, claimed=kind).decision == Decision.ALLOW


def test_only_what_has_one_way_of_yes_is_always_allowed(
    admin: Human, agent: Agent, claimed: Any, ask: Callable[..., Any]
) -> None:
    question = ask(claimed)
    assert "a question" in refused("CONFLICT", lambda: always(admin, question)).message
    agent.post(f"/approvals/{question['id']}/cancel")
    two = [{"value": "now", "grants": True}, {"value": "later", "grants": True}, "deny"]
    approval = agent.post("/approvals", acting.request(claimed, acting.deploy(), options=two))
    assert "2 of its options" in refused("CONFLICT", lambda: always(admin, approval)).message
    assert Approval.objects.get(pk=uuid_of(approval["id"])).status == "pending"


def test_always_allow_is_a_decision_like_any_other(
    company: Company, admin: Human, agent: Agent, claimed: Any, elsewhere: Company
) -> None:
    action = acting.deploy()
    approval = ask(agent, claimed, action)
    refused("DIGEST_MISMATCH", lambda: always(admin, {**approval, "digest": "0" * 64}))
    refused("FORBIDDEN", lambda: always(company.human("approver"), approval))
    refused("NOT_FOUND", lambda: always(elsewhere.human("admin"), approval))
    refused("NOT_FOUND", lambda: always(admin, {**approval, "id": f"appr_{UUID(int=7).hex}"}))
    decide(admin, approval, "deny")
    refused("CONFLICT", lambda: always(admin, approval))
    assert not PolicyRule.objects.filter(organization=company.organization).exists()


def test_who_may_not_decide_for_their_own_agent_cannot_always_allow_it(company: Company) -> None:
    boss, second = company.human("admin"), company.human("admin")
    mine = company.agent(owner=boss.user)
    flag(company, forbid_self_approval=True)
    task = mine.create("Work")
    approval = ask(mine, mine.claim(task_id=task["id"]), acting.deploy())
    refused("FORBIDDEN", lambda: always(boss, approval))
    assert always(second, approval).made_by == second.user


def test_of_always_and_once_at_the_same_moment_one_decides(
    company: Company, admin: Human, agent: Agent, claimed: Any
) -> None:
    approval = ask(agent, claimed, acting.deploy())
    second = company.human("admin")
    found = together(
        lambda: always(admin, approval),
        lambda: decide(second, approval, "deny"),
        lambda: always(second, approval),
    )
    assert sum(isinstance(each, Refused) for each in found) == 2
    row = Approval.objects.get(pk=uuid_of(approval["id"]))
    assert PolicyRule.objects.filter(made_from=row).count() == int(bool(row.granted))
