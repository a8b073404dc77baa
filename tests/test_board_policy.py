"""The page of policy over HTTP: everybody reads and tries it, admins edit it, and a refused form comes back whole."""

import re
from collections.abc import Callable, Iterator
from datetime import UTC, timedelta
from html import unescape
from typing import Any

import pytest
from playwright.sync_api import expect

from approvals import policy_edits, policy_state
from approvals.actions import Action
from approvals.models import Approval, Decision, Kind, PolicyRule, Risk, ToolEntry
from approvals.policy_forms import in_words
from approvals.policy_terms import FLAGS, RuleTerms, ToolTerms, row_digest
from coordination.locks import clock
from coordination.models import Organization, Role
from titen.api.doors import transact

from . import acting
from .browsing import chromium, log_in, somebody, toast
from .cast import Agent, Company, Human, found_company, founded
from .clockwork import sql, uuid_of
from .effecting import ask, decide
from .servers import Server
from .visitors import Elements, Visit, Visitor, said

EVIL = "<script>alert(1)</script>"
ASKS = RuleTerms(Decision.ASK, rank=5, tool="deploy*", server="cluster", note="Ask the team.")
# What the form of a new rule sends when nothing but the tool was typed.
BLANK = {
    "decision": "ask",
    "tool": "deploy*",
    "server": "*",
    "kind": "",
    "agent": "",
    "capability": "",
    "rank": "0",
    "required_role": "approver",
    "risk": "",
    "expires_in_seconds": "",
    "expires_at": "",
    "note": "",
}


@pytest.fixture
def boss(visit: Visit, admin: Human) -> Visitor:
    """The browser of an admin, who has the page open."""
    visitor = visit(admin)
    visitor.open("/policy")
    return visitor


@pytest.fixture(scope="module")
def typist(web: Server) -> Iterator[Visitor]:
    """The browser of an admin whose forms are all refused, and who asks what cannot be."""
    with founded(web.url) as company:
        company.agent("ada")
        visitor = Visitor(web.url)
        visitor.log_in(company.human("admin").user.email)
        visitor.open("/policy")
        yield visitor
        visitor.client.close()
        assert rules_of(company) == []


def made(human: Human, terms: RuleTerms | ToolTerms = ASKS) -> Any:
    """A rule or line that an admin made."""
    verb: Any = policy_edits.add_rule if isinstance(terms, RuleTerms) else policy_edits.add_tool
    return transact(lambda: verb(human.caller, terms))


def printed(row: Any) -> str:
    return f"{row.PREFIX}_{row.pk.hex}"


def words(html: str) -> str:
    """What a person reads."""
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", html)).split())


def shown(page: str, row: Any) -> str:
    """The words of a row."""
    found = re.search(rf'<li id="row-{printed(row)}".*?</li>', page, re.S)
    assert found, page
    return words(found[0])


def rules_of(company: Company) -> list[PolicyRule]:
    return list(PolicyRule.objects.filter(organization=company.organization, ended_at=None).order_by("pk"))


# --- what it shows


def test_everybody_sees_what_each_line_does(
    company: Company, admin: Human, agent: Agent, vera: Visitor
) -> None:
    until = clock() + timedelta(days=3)
    deny = made(admin, RuleTerms(Decision.DENY, 9, "github.delete*", "github", note="Never."))
    full = made(
        admin,
        RuleTerms(
            Decision.ASK,
            5,
            "pay.*",
            "",
            Kind.OUTWARD,
            agent.principal.pk,
            "ship",
            Role.ADMIN,
            Risk.HIGH,
            3600,
        ),
    )
    allow = made(admin, RuleTerms(Decision.ALLOW, 5, "read_*", expires_at=until))
    line = made(admin, ToolTerms(Kind.DESTRUCTIVE, 2, "*.delete*", "github"))
    page = vera.open(f"/policy?org={company.organization.slug}").text
    assert [page.index(f"row-{printed(each)}") for each in (deny, full, allow)] == sorted(
        page.index(f"row-{printed(each)}") for each in (deny, full, allow)
    )
    by = f"by {admin.user.email}"
    assert "github.delete* on github rank 9 denies “" not in shown(page, deny)
    assert f"github.delete* on github rank 9 denies Never. {by}" in shown(page, deny)
    assert "pay.* without a server outward agent ada can ship rank 5" in shown(page, full)
    assert "asks an admin, risk high, answered within 1 h" in shown(page, full)
    assert f"read_* rank 5 allows without asking {by}" in shown(page, allow)
    assert f"{until.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC" in shown(page, allow)
    assert shown(page, line) == "*.delete* on github is destructive rank 2"
    text = words(page)
    assert "Destructive actions ask first, unless a rule decides. on" in text
    assert "People may decide what their own agents ask. off" in text


@pytest.mark.parametrize("role", list(Role))
def test_only_admins_have_forms(company: Company, admin: Human, visit: Visit, role: Role) -> None:
    rule, line = made(admin), made(admin, ToolTerms(Kind.OTHER))
    visitor = visit(company.human(role))
    for row in (rule, line):
        page = visitor.open(f"/policy?change={printed(row)}").text.partition("<main")[2]
        assert ('method="post"' in page.partition("<footer")[0]) == (role == Role.ADMIN)
        assert ("Change" in page) == (role == Role.ADMIN)
        assert (f"/{printed(row)}/end" in page) == (role == Role.ADMIN)
        assert 'method="get"' in page


def test_the_navigation_leads_there(vera: Visitor, company: Company) -> None:
    assert f'href="/policy?org={company.organization.slug}"' in vera.open("/").text
    assert re.search(r'href="/policy[^>]*aria-current="page"', vera.open("/policy").text)


def test_what_has_ended_or_run_out_is_not_shown(company: Company, admin: Human, vera: Visitor) -> None:
    ended, over = made(admin), made(admin, RuleTerms(Decision.ALLOW, 8, "old_*"))
    transact(lambda: policy_edits.end_rule(admin.caller, ended.pk, shown=row_digest(ended)))
    sql("UPDATE approvals_policyrule SET expires_at = clock_timestamp() WHERE id = %s", over.pk)
    page = vera.open("/policy").text
    assert printed(ended) not in page
    assert printed(over) not in page
    assert "No rule: the flags decide." in words(page)


def test_text_of_people_and_agents_is_text(company: Company, admin: Human, boss: Visitor) -> None:
    named = company.agent(EVIL)
    rule = made(admin, RuleTerms(Decision.DENY, agent_id=named.principal.pk, note=EVIL))
    page = boss.open(f"/policy?change={printed(rule)}&tool={EVIL}&agent={EVIL}&server={EVIL}").text
    assert EVIL not in page
    found = Elements(page)
    assert found.scripts == 0
    assert not [name for name, _ in found.attributes if name == "style" or name.startswith("on")]


@pytest.mark.parametrize(
    ("deciders", "flag", "expected"),
    [
        (["admin"], False, ""),
        (["admin"], True, "One person alone can decide here"),
        (["admin", "operator"], True, "One person alone can decide here"),
        (["admin", "approver"], True, "There is one admin"),
        (["admin", "admin"], True, ""),
    ],
)
def test_a_banner_says_where_the_flag_cannot_hold(deciders: list[str], flag: bool, expected: str) -> None:
    company = found_company()
    Organization.objects.filter(pk=company.organization.pk).update(forbid_self_approval=flag)
    for role in deciders:
        company.human(role)
    banner = policy_state.read(company.organization.pk).banner
    assert banner.startswith(expected)
    assert bool(banner) == bool(expected)


def test_the_banner_is_on_the_page(company: Company, boss: Visitor) -> None:
    assert 'class="banner"' not in boss.open("/policy").text
    Organization.objects.filter(pk=company.organization.pk).update(forbid_self_approval=True)
    assert "One person alone can decide here" in words(boss.open("/policy").text)


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (1, "1 s"),
        (90, "90 s"),
        (60, "1 min"),
        (5400, "90 min"),
        (3600, "1 h"),
        (86_400, "1 d"),
        (2_592_000, "30 d"),
    ],
)
def test_times_are_said_in_the_largest_unit_that_leaves_nothing_over(seconds: int, expected: str) -> None:
    assert in_words(seconds) == expected


# --- edits


def test_a_rule_is_added_and_the_page_shows_it(
    company: Company, admin: Human, agent: Agent, boss: Visitor
) -> None:
    answer = boss.click(
        f"/policy/rules/new?org={company.organization.slug}",
        **{
            **BLANK,
            "server": "",
            "kind": "destructive",
            "agent": "ADA",
            "capability": "ship",
            "rank": "7",
            "required_role": "admin",
            "risk": "critical",
            "expires_in_seconds": "4 h",
            "expires_at": "2099-01-02T03:04:05",
            "note": "Ask first.",
        },
    )
    assert (answer.status_code, said(answer)) == (200, "Added: ask deploy* without a server, rank 7.")
    (rule,) = rules_of(company)
    assert (rule.agent, rule.made_by) == (agent.principal, admin.user)
    assert (rule.kind, rule.capability, rule.required_role, rule.risk) == (
        "destructive",
        "ship",
        "admin",
        "critical",
    )
    assert rule.expires_in_seconds == 4 * 3600
    assert rule.expires_at is not None
    assert rule.expires_at.isoformat() == "2099-01-02T03:04:05+00:00"
    for part in ("policy-rules", "policy-flags", "policy-tools", "policy-try", "waiting"):
        assert f'hx-target="#{part}"' in answer.text
    assert "asks an admin, risk critical, answered within 4 h" in shown(answer.text, rule)


@pytest.mark.parametrize("decision", ["deny", "allow"])
def test_what_only_rules_that_ask_say_is_passed_over_in_others(
    company: Company, boss: Visitor, decision: str
) -> None:
    asks = {"required_role": "admin", "risk": "high", "expires_in_seconds": "1 h"}
    boss.click("/policy/rules/new", **{**BLANK, **asks, "decision": decision})
    (rule,) = rules_of(company)
    assert (rule.decision, rule.required_role, rule.risk, rule.expires_in_seconds) == (
        decision,
        "approver",
        "",
        None,
    )


def test_a_rule_is_changed_by_the_form_that_shows_it(
    company: Company, admin: Human, agent: Agent, boss: Visitor
) -> None:
    rule = made(
        admin, RuleTerms(Decision.ASK, 5, "deploy*", agent_id=agent.principal.pk, expires_in_seconds=5400)
    )
    page = boss.open(f"/policy?change={printed(rule)}").text
    form = fields(page, printed(rule))
    shown_in_it = {**BLANK, "agent": "ada", "rank": "5", "expires_in_seconds": "90 min"}
    begun = {f"initial-{name}": value for name, value in shown_in_it.items()}
    assert form == {**shown_in_it, **begun, "shown": row_digest(rule)}
    answer = boss.click(f"/policy/rules/{printed(rule)}", **{**form, "tool": "release", "agent": ""})
    assert said(answer) == "Changed: ask release, rank 5."
    assert "release rank 5" in shown(answer.text, rule)
    # Folded again.
    assert f'id="{printed(rule)}-form"' not in answer.text
    (now,) = rules_of(company)
    assert (now.pk, now.tool, now.agent, now.expires_in_seconds) == (rule.pk, "release", None, 5400)


def fields(page: str, key: str) -> dict[str, str]:
    """What the form of a row would send."""
    found = re.search(rf'<form id="{key}-form".*?</form>', page, re.S)
    assert found, page
    sent = {}
    for tag in re.findall(r"<input[^>]*>", found[0]):
        given = dict(re.findall(r'(\w+)="([^"]*)"', tag))
        if "name" not in given:
            continue
        sent[given["name"]] = unescape(given.get("value", ""))
    for name, body in re.findall(r'<select name="(\w+)"[^>]*>(.*?)</select>', found[0], re.S):
        chosen = re.search(r'value="([^"]*)" selected', body)
        sent[name] = chosen[1] if chosen else re.findall(r'value="([^"]*)"', body)[0]
    sent.pop("csrfmiddlewaretoken")
    return sent


def test_a_form_that_is_sent_back_as_it_was_changes_nothing(
    company: Company, admin: Human, boss: Visitor
) -> None:
    until = clock().replace(microsecond=0) + timedelta(days=2)
    rule = made(admin, RuleTerms(Decision.ALLOW, 5, "a*", "", note="Why “not”?", expires_at=until))
    line = made(admin, ToolTerms(Kind.OTHER, -3, "a*", ""))
    for row, path in ((rule, "rules"), (line, "tools")):
        before = row_digest(row)
        form = fields(boss.open(f"/policy?change={printed(row)}").text, printed(row))
        assert boss.click(f"/policy/{path}/{printed(row)}", **form).status_code == 200
        row.refresh_from_db()
        assert row_digest(row) == before


def test_a_rule_is_ended(company: Company, admin: Human, boss: Visitor) -> None:
    rule = made(admin)
    answer = boss.click(f"/policy/rules/{printed(rule)}/end", shown=row_digest(rule))
    assert said(answer) == "Ended: ask deploy* on cluster."
    assert printed(rule) not in answer.text
    assert rules_of(company) == []
    again = boss.click(f"/policy/rules/{printed(rule)}/end", shown=row_digest(rule))
    assert again.status_code == 409
    assert "ended already" in said(again)


def test_a_line_is_listed_changed_and_ended(company: Company, boss: Visitor) -> None:
    answer = boss.click("/policy/tools/new", tool="read_*", server="*", kind="other", rank="1")
    assert said(answer) == "Added: read_*: other."
    line = ToolEntry.objects.get(organization=company.organization)
    form = fields(boss.open(f"/policy?change={printed(line)}").text, printed(line))
    answer = boss.click(f"/policy/tools/{printed(line)}", **{**form, "kind": "destructive"})
    assert shown(answer.text, line).startswith("read_* is destructive rank 1")
    line.refresh_from_db()
    again = boss.click("/policy/tools/new", tool="read_*", server="*", kind="other", rank="1")
    assert again.status_code == 409
    assert "has a line with these patterns" in said(again)
    answer = boss.click(f"/policy/tools/{printed(line)}/end", shown=row_digest(line))
    assert said(answer) == "Ended: read_*: destructive."
    assert "No tool is listed" in answer.text


def test_flags_are_saved(company: Company, boss: Visitor) -> None:
    shown_digest = row_digest(Organization.objects.get(pk=company.organization.pk))
    answer = boss.click("/policy/flags", shown=shown_digest, forbid_self_approval="on")
    assert said(answer) == "Saved."
    assert "Outward actions run without asking" in answer.text
    now = Organization.objects.get(pk=company.organization.pk)
    assert [getattr(now, flag) for flag in FLAGS] == [False, False, True]
    stale = boss.click("/policy/flags", shown=shown_digest)
    assert stale.status_code == 409
    assert "Look at it again" in said(stale)
    assert "Nobody decides what their own agents ask." in stale.text


WRONG = [
    ("tool", "de ploy", "letters, digits"),
    ("tool", "", "required"),
    ("server", "[ab]", "letters, digits"),
    ("rank", "1001", "between -1000 and 1000"),
    ("rank", "many", "whole number"),
    ("rank", "9" * 30, "between"),
    ("kind", "harmless", "valid choice"),
    ("decision", "maybe", "valid choice"),
    ("agent", "nobody", "agent of this organization"),
    ("capability", "Ship It", "lower-case"),
    ("required_role", "viewer", "valid choice"),
    ("expires_in_seconds", "soon", "such as 15 min"),
    ("expires_in_seconds", "10 s", "between 60 and"),
    ("expires_at", "yesterday", "valid date"),
    ("expires_at", "2001-01-01T00:00:00", "in the future"),
    ("note", "a" * 401, "at most 400"),
    ("note", "two\nlines", "one line"),
    ("note", "\0", "ull characters"),
]


@pytest.mark.parametrize(("field", "value", "problem"), WRONG)
def test_a_wrong_field_is_named_beside_it_and_nothing_typed_is_lost(
    typist: Visitor, field: str, value: str, problem: str
) -> None:
    sent = {**BLANK, "note": "I typed this.", "rank": "12", field: value}
    for send in (typist.click, typist.form):
        answer = send("/policy/rules/new", **sent)
        assert answer.status_code == 400
        beside = re.search(
            rf'id="id_{field}_error"|id="new-rule-{field}_error"[^>]*>(.*?)</p>', answer.text, re.S
        )
        assert beside, answer.text
        assert problem in unescape(beside[1])
        assert '<details id="new-rule" class="verb" open>' in answer.text
        if field != "note":
            assert 'value="I typed this."' in answer.text
        if field != "rank":
            assert 'value="12"' in answer.text
    assert field in said(typist.click("/policy/rules/new", **sent))


def test_an_edit_of_what_has_changed_shows_the_row_as_it_stands_and_keeps_what_was_typed(
    company: Company, admin: Human, boss: Visitor
) -> None:
    rule = made(admin)
    form = fields(boss.open(f"/policy?change={printed(rule)}").text, printed(rule))
    second = company.human("admin")
    terms = RuleTerms(Decision.DENY, rank=99, tool="deploy*")
    transact(lambda: policy_edits.change_rule(second.caller, rule.pk, terms, shown=row_digest(rule)))
    typed = {**form, "tool": "mine"}
    for send in (boss.click, boss.form):
        answer = send(f"/policy/rules/{printed(rule)}", **typed)
        assert answer.status_code == 409
        assert "deploy* rank 99" in shown(answer.text, rule)
        assert "Look at it again" in words(answer.text)
        again = fields(answer.text, printed(rule))
        assert again["tool"] == "mine"
    # Having looked, they may go on.
    assert boss.click(f"/policy/rules/{printed(rule)}", **again).status_code == 200
    (now,) = rules_of(company)
    # What they changed, and nothing that their colleague did.
    assert (now.tool, now.decision, now.rank) == ("mine", Decision.DENY, 99)


def test_without_scripts_every_form_leads_back_to_the_page(
    company: Company, admin: Human, boss: Visitor
) -> None:
    back = f"/policy?org={company.organization.slug}"
    assert boss.form("/policy/rules/new", **BLANK).headers["Location"] == back
    (rule,) = rules_of(company)
    line = made(admin, ToolTerms(Kind.OTHER))
    for path, row in (("rules", rule), ("tools", line)):
        form = fields(boss.open(f"/policy?change={printed(row)}").text, printed(row))
        answer = boss.form(f"/policy/{path}/{printed(row)}", **{**form, "rank": "3"})
        assert (answer.status_code, answer.headers["Location"]) == (303, back)
        row.refresh_from_db()
        answer = boss.form(f"/policy/{path}/{printed(row)}/end", shown=row_digest(row))
        assert (answer.status_code, answer.headers["Location"]) == (303, back)
    digest = row_digest(Organization.objects.get(pk=company.organization.pk))
    assert boss.form("/policy/flags", shown=digest).headers["Location"] == back
    assert rules_of(company) == []


PATHS: list[Callable[[Any, Any], str]] = [
    lambda rule, line: "/policy/flags",
    lambda rule, line: "/policy/rules/new",
    lambda rule, line: "/policy/tools/new",
    lambda rule, line: f"/policy/rules/{printed(rule)}",
    lambda rule, line: f"/policy/rules/{printed(rule)}/end",
    lambda rule, line: f"/policy/tools/{printed(line)}",
    lambda rule, line: f"/policy/tools/{printed(line)}/end",
]


@pytest.mark.parametrize("role", [Role.VIEWER, Role.OPERATOR, Role.APPROVER])
def test_below_admin_every_edit_is_forbidden(
    company: Company, admin: Human, visit: Visit, role: Role
) -> None:
    rule, line = made(admin), made(admin, ToolTerms(Kind.OTHER))
    visitor = visit(company.human(role))
    visitor.open("/policy")
    for path in PATHS:
        answer = visitor.click(path(rule, line), **BLANK, shown=row_digest(rule))
        assert answer.status_code == 403, path(rule, line)
        assert "admin" in said(answer)
    assert rules_of(company) == [rule]


def test_another_organizations_rows_are_unknown(
    company: Company, elsewhere: Company, boss: Visitor, admin: Human
) -> None:
    theirs = elsewhere.human("admin")
    rule, line = made(theirs), made(theirs, ToolTerms(Kind.OTHER))
    digest = row_digest(rule)
    for path in PATHS[3:]:
        real = boss.click(path(rule, line), **BLANK, shown=digest)
        random = boss.click(re.sub(r"[0-9a-f]{32}", "0" * 32, path(rule, line)), **BLANK, shown=digest)
        assert (real.status_code, said(real)) == (404, said(random))
    slug = elsewhere.organization.slug
    assert boss.click(f"/policy/rules/new?org={slug}", **BLANK).status_code == 404
    assert boss.open(f"/policy?org={slug}").status_code == 404
    assert printed(rule) not in boss.open(f"/policy?change={printed(rule)}").text
    assert rules_of(elsewhere) == [rule]


def test_nobody_and_keys_are_sent_away(visit: Visit, agent: Agent) -> None:
    assert visit().client.get("/policy").headers["Location"].startswith("/login")
    assert agent.client.get("/policy").status_code == 302
    assert agent.client.post("/policy/rules/new", data=BLANK).status_code in (302, 403)


def test_reading_changes_nothing(company: Company, admin: Human, boss: Visitor) -> None:
    rule = made(admin)
    assert boss.client.get(f"/policy/rules/{printed(rule)}/end").status_code == 405
    assert boss.client.get("/policy/rules/new").status_code == 405
    assert boss.client.request("POST", "/policy").status_code in (403, 405)


def test_a_click_changes_the_page_in_place_and_a_refused_one_loses_nothing(
    company: Company, admin: Human, agent: Agent, web: Server
) -> None:
    rule = made(admin, RuleTerms(Decision.ASK, 5, "deploy"))
    key = printed(rule)
    with chromium() as browser, somebody(browser, web.url) as person:
        page = person.new_page()
        page.goto(f"/policy?change={key}&tool=deploy&agent=ada")
        log_in(page, admin.user.email)
        tried = page.locator("#policy-try .says")
        expect(tried).to_contain_text("It asks an approver")
        page.fill(f"#{key}-rank", "50")
        page.locator("#new-rule > summary").click()
        page.fill("#new-rule-tool", "x y")
        page.fill("#new-rule-note", "I typed this.")
        page.select_option("#new-rule-decision", "deny")
        page.get_by_role("button", name="Add rule").click()
        expect(page.locator("#new-rule-tool_error")).to_be_visible()
        toast(page, "tool: must be")
        assert page.input_value("#new-rule-note") == "I typed this."
        assert page.input_value("#new-rule-decision") == "deny"
        page.fill("#new-rule-tool", "deploy")
        page.fill("#new-rule-rank", "9")
        page.get_by_role("button", name="Add rule").click()
        toast(page, "Added: deny deploy, rank 9.")
        expect(page.locator("#policy-rules li").first).to_contain_text("denies")
        expect(tried).to_contain_text("It is refused")
        # What was typed into another form is still there.
        assert page.input_value(f"#{key}-rank") == "50"
        page.select_option(f"#{key}-risk", "high")
        sql("UPDATE approvals_policyrule SET rank = 6 WHERE id = %s", rule.pk)
        page.get_by_role("button", name="Save").last.click()
        expect(page.locator(f"#row-{key}")).to_contain_text("rank 6")
        assert page.input_value(f"#{key}-rank") == "50"
        assert page.input_value(f"#{key}-risk") == "high"
        page.get_by_role("button", name="Save").last.click()
        toast(page, "Changed: ask deploy, rank 50.")
        expect(page.locator(f"#{key}-form")).to_have_count(0)
        page.get_by_label("Nobody approves for their own agents").check()
        page.get_by_role("button", name="Save").click()
        toast(page, "Saved.")
        expect(page.locator("#policy-flags")).to_contain_text("Nobody decides what their own agents ask.")
        expect(page.locator(f"#{key}-form")).to_have_count(0)


# --- what would happen


def answer_to(visitor: Visitor, **query: str) -> str:
    """The words of the answer."""
    page = visitor.client.get("/policy", params={"tool": "deploy", "agent": "ada", **query})
    assert page.status_code == 200, page.text
    found = re.search(r'<div class="answer".*?</section>', page.text, re.S)
    assert found, page.text
    return words(found[0])


TRIES = [
    # rules (decision, terms), query -> the first words
    ([], {}, "It asks an approver, risk medium. No rule matches, and outward actions need an approval here."),
    ([(Decision.ALLOW, {})], {}, "It runs without asking. The rule of rank 0 says so: allow deploy."),
    ([(Decision.DENY, {"rank": 4})], {}, "It is refused. The rule of rank 4 says so: deny deploy."),
    (
        [(Decision.ASK, {"required_role": "admin", "risk": "critical", "expires_in_seconds": 3600})],
        {"server": "cluster"},
        "It asks an admin, risk critical, answered within 1 h.",
    ),
    ([(Decision.ALLOW, {})], {"tool": "other"}, "It asks an approver, risk medium."),
    ([(Decision.ALLOW, {"server": "cluster"})], {}, "It asks an approver, risk medium."),
    ([(Decision.DENY, {"kind": "outward"})], {"kind": "destructive"}, "It is refused."),
    ([], {"kind": "destructive"}, "It asks an approver, risk high."),
    ([(Decision.DENY, {"capability": "ship"})], {}, "It is refused."),
    ([(Decision.DENY, {"capability": "drop"})], {}, "It asks an approver, risk medium."),
]


@pytest.mark.parametrize(("rules", "query", "expected"), TRIES)
def test_it_says_what_would_happen(rules: list[Any], query: dict[str, str], expected: str) -> None:
    company = found_company()
    ada = company.agent("ada", capabilities=["ship"]).principal
    for decision, terms in rules:
        acting.rule(company, decision, "deploy", **terms)
    kind = Kind(query["kind"]) if "kind" in query else None
    action = Action(query.get("tool", "deploy"), query.get("server"), claimed=kind)
    found = policy_state.answer(ada, action)
    assert f"{found.says}. {found.because}".startswith(expected)


def test_it_says_why_step_by_step(company: Company, agent: Agent, vera: Visitor) -> None:
    acting.listed(company, "deploy", Kind.OTHER, rank=3)
    acting.listed(company, "d*", Kind.OUTWARD)
    acting.rule(company, Decision.ALLOW, "deploy", kind="destructive", rank=9)
    acting.rule(company, Decision.ASK, "deploy", rank=2, required_role="admin")
    acting.rule(company, Decision.DENY, "deploy", rank=1)
    acting.rule(company, Decision.DENY, "drop", rank=100)
    text = answer_to(vera, kind="destructive")
    assert text == (
        "It asks an admin, risk high. The rule of rank 2 says so: ask deploy."
        " Tool list deploy is other rank 3 decides d* is outward rank 0"
        " Kind destructive: the agent calls it so, the tool list says other. Rules for either hold."
        " Rules for ada deploy allows without asking rank 9 deploy asks an admin rank 2 decides"
        " deploy denies rank 1"
    )


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({"tool": "de ploy"}, "tool"),
        ({"tool": "deploy*"}, "tool"),
        ({"tool": ""}, "tool"),
        ({"server": "a b"}, "server"),
        ({"kind": "harmless"}, "kind"),
        ({"agent": "nobody"}, "agent"),
        ({"agent": ""}, "agent"),
    ],
)
def test_a_wrong_question_is_named_beside_its_field(
    typist: Visitor, query: dict[str, str], field: str
) -> None:
    page = typist.client.get("/policy", params={"tool": "deploy", "agent": "ada", **query})
    assert page.status_code == 400
    assert re.findall(r'id="try-(\w+)_error"', page.text) == [field]
    assert 'class="answer"' not in page.text


def test_an_agent_of_another_organization_is_unknown(elsewhere: Company, vera: Visitor) -> None:
    key = f"agent_{elsewhere.agent().principal.pk.hex}"
    answers = [
        vera.client.get("/policy", params={"tool": "a", "agent": each}) for each in (key, f"agent_{'0' * 32}")
    ]
    assert {answer.status_code for answer in answers} == {400}
    assert words(answers[0].text).count("by id or name") == words(answers[1].text).count("by id or name") == 1


def test_a_click_answers_what_was_tried_anew(company: Company, agent: Agent, boss: Visitor) -> None:
    boss.open("/policy?tool=deploy&agent=ada")
    answer = boss.click("/policy/rules/new", **{**BLANK, "decision": "deny"})
    assert "It is refused." in words(answer.text)


# --- always allow this


def test_always_allow_decides_and_makes_the_rule(
    company: Company, admin: Human, agent: Agent, boss: Visitor, claimed: Any
) -> None:
    approval = ask(agent, claimed, acting.deploy())
    sent = {"shown_digest": approval["digest"], "seconds": "3600", "reason": "As ever."}
    answer = boss.click(f"/approvals/{approval['id']}/always-allow", **sent)
    (rule,) = rules_of(company)
    assert rule.expires_at is not None
    until = f"{rule.expires_at.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
    which = f"It was “{approval['question']}”, asked by ada for “Claimed work” ({approval['id']})."
    assert said(answer) == f"Approved. Until {until}, ada need not ask for deploy on cluster. {which}"
    page = boss.open("/policy").text
    assert f'href="/approvals/{approval["id"]}"' in page
    assert "from an approval" in shown(page, rule)
    again = boss.click(f"/approvals/{approval['id']}/always-allow", **sent)
    assert again.status_code == 409
    assert f"{admin.user.email} decided" in said(again)
    assert len(rules_of(company)) == 1


def test_always_allow_is_refused_with_the_reason(
    company: Company, admin: Human, agent: Agent, boss: Visitor, visit: Visit, claimed: Any
) -> None:
    approval = ask(agent, claimed, acting.deploy())
    path = f"/approvals/{approval['id']}/always-allow"
    good = {"shown_digest": approval["digest"], "seconds": "86400"}
    assert "one of" in said(boss.click(path, **{**good, "seconds": "5"}))
    assert "seconds" in said(boss.click(path, **{**good, "seconds": "soon"}))
    assert "Look at it again" in said(boss.click(path, **{**good, "shown_digest": "0" * 64}))
    approver = visit(company.human("approver"))
    approver.open("/")
    assert approver.click(path, **good).status_code == 403
    assert boss.click(f"/approvals/appr_{'0' * 32}/always-allow", **good).status_code == 404
    acting.rule(company, Decision.ASK, rank=1000)
    assert "change nothing" in said(boss.click(path, **good))
    assert Approval.objects.get(pk=uuid_of(approval["id"])).status == "pending"
    decide(admin, approval, "deny")
    assert boss.client.get(path).status_code == 405


def test_without_scripts_always_allow_leads_back(
    company: Company, agent: Agent, boss: Visitor, claimed: Any
) -> None:
    approval = ask(agent, claimed, acting.deploy())
    answer = boss.form(
        f"/approvals/{approval['id']}/always-allow", shown_digest=approval["digest"], seconds="604800"
    )
    assert answer.status_code == 303
    assert len(rules_of(company)) == 1
