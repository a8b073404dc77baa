"""The digest of an action: equal for what is equal, different for whatever a tool would take differently."""

import hashlib
import json
import struct
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from approvals.actions import Action
from approvals.models import Kind
from coordination.canonical import canonical

from . import acting
from .cast import Agent, Company, founded
from .effecting import list_tools
from .servers import Server


@pytest.fixture(scope="module")
def company(web: Server) -> Iterator[Company]:
    """A company where anything is allowed."""
    with founded(web.url) as company:
        list_tools(company)
        acting.rule(company, "allow")
        yield company


@pytest.fixture(scope="module")
def agent(company: Company) -> Agent:
    return company.agent("ada")


@pytest.fixture(scope="module")
def claim(agent: Agent) -> Any:
    """A held task, for as many effects as a module needs."""
    agent.create("Held")
    return agent.claim(ttl_seconds=86_400)


def digest_of(text: str) -> str:
    """The digest of an action whose arguments are this JSON."""
    return Action("deploy", "cluster", json.loads(text)).digest


SAME = {
    "keys in another order": ['{"a": 1, "b": {"c": 2, "d": 3}}', '{"b": {"d": 3, "c": 2}, "a": 1}'],
    "blanks": ['{"a":1}', ' {\n"a" : 1 }'],
    "one": ['{"a": 1}', '{"a": 1.0}', '{"a": 1e0}', '{"a": 10e-1}'],
    "a hundred": ['{"a": 100}', '{"a": 1e2}', '{"a": 100.0}', '{"a": 1E+2}'],
    "nothing": ['{"a": 0}', '{"a": -0}', '{"a": 0.0}', '{"a": -0.0}', '{"a": 0e9}'],
    "the largest that a double tells apart": ['{"a": 9007199254740991}', '{"a": 9007199254740991.0}'],
    "beyond it": ['{"a": 100000000000000000000}', '{"a": 1e20}', '{"a": 1.0E20}'],
    "escapes": ['{"a": "é/€"}', '{"a": "\\u00e9\\/\\u20ac"}', '{"\\u0061": "\\u00E9/\\u20AC"}'],
    "a pair of surrogates": ['{"a": "😀"}', '{"a": "\\ud83d\\ude00"}'],
}
DIFFERENT = {
    "neighbours": [f'{{"a": {1234567890123456789 + step}}}' for step in range(-3, 4)],
    "neighbours below zero": [f'{{"a": {-1234567890123456789 + step}}}' for step in range(-3, 4)],
    "around the limit of doubles": [f'{{"a": {2**53 + step}}}' for step in range(-3, 4)],
    "a number and its text": ['{"a": 1234567890123456789}', '{"a": "1234567890123456789"}'],
    "nothing in several words": ['{"a": null}', '{"a": ""}', '{"a": 0}', '{"a": false}', '{"a": []}', '{"a": {}}', "{}"],
    "true and one": ['{"a": true}', '{"a": 1}', '{"a": "true"}'],
    "the order of a list": ['{"a": [1, 2]}', '{"a": [2, 1]}', '{"a": [[1], 2]}'],
    "names": ['{"a": 1}', '{"A": 1}', '{"a ": 1}', '{"а": 1}'],
    "blanks inside": ['{"a": "rm -rf / tmp"}', '{"a": "rm -rf /tmp"}', '{"a": "rm -rf /tmp "}'],
    "composed and decomposed": ['{"a": "\\u00e9"}', '{"a": "e\\u0301"}'],
    "names composed and decomposed": ['{"\\u00e9": 1}', '{"e\\u0301": 1}'],
    "what looks alike": ['{"a": "paypal"}', '{"a": "pаypal"}', '{"a": "pay\\u200bpal"}', '{"a": "ｐaypal"}'],
    "a sharp s": ['{"a": "ß"}', '{"a": "ss"}', '{"a": "ẞ"}'],
    "close fractions": ['{"a": 0.1}', '{"a": 0.10000000000000002}', '{"a": 0.2}'],
    "deep inside": ['{"a": {"b": [{"c": 1}]}}', '{"a": {"b": [{"c": 2}]}}'],
}  # fmt: skip


@pytest.mark.parametrize("texts", SAME.values(), ids=SAME)
def test_what_is_equal_has_one_digest(texts: list[str]) -> None:
    assert len({digest_of(text) for text in texts}) == 1


@pytest.mark.parametrize("texts", DIFFERENT.values(), ids=DIFFERENT)
def test_what_differs_has_another_digest(texts: list[str]) -> None:
    assert len({digest_of(text) for text in texts}) == len(texts)


def test_tool_and_server_are_part_of_it() -> None:
    actions = [
        Action("deploy", "cluster"),
        Action("Deploy", "cluster"),
        Action("deploy", "Cluster"),
        Action("deploy"),
        Action("cluster", "deploy"),
        Action("deploy", "cluster", {"server": None}),
    ]
    assert len({action.digest for action in actions}) == len(actions)


def test_the_claimed_kind_is_not() -> None:
    assert len({Action("deploy", claimed=kind).digest for kind in (None, *Kind)}) == 1


def test_it_is_the_sha_256_of_the_canonical_form() -> None:
    text = '{"arguments":{"a":[1,"é"],"b":true},"server":null,"tool":"deploy"}'
    action = Action("deploy", None, {"b": True, "a": [1.0, "é"]})
    assert action.digest == hashlib.sha256(text.encode()).hexdigest()


# RFC 8785, appendix B: the bits of a double, and how it is written.
NUMBERS = [
    ("0000000000000000", "0"),
    ("8000000000000000", "0"),
    ("0000000000000001", "5e-324"),
    ("8000000000000001", "-5e-324"),
    ("7fefffffffffffff", "1.7976931348623157e+308"),
    ("4340000000000000", "9007199254740992"),
    ("c340000000000000", "-9007199254740992"),
    ("4430000000000000", "295147905179352830000"),
    ("44b52d02c7e14af5", "9.999999999999997e+22"),
    ("44b52d02c7e14af6", "1e+23"),
    ("444b1ae4d6e2ef4e", "999999999999999700000"),
    ("3eb0c6f7a0b5ed8d", "0.000001"),
    ("3eb0c6f7a0b5ed8c", "9.999999999999997e-7"),
    ("41b3de4355555553", "333333333.3333332"),
    ("41b3de4355555554", "333333333.33333325"),
    ("becbf647612f3696", "-0.0000033333333333333333"),
    ("43143ff3c1cb0959", "1424953923781206.2"),
]


@pytest.mark.parametrize(("bits", "text"), NUMBERS)
def test_numbers_are_written_as_the_rfc_says(bits: str, text: str) -> None:
    """But for whole ones that a double rounds: the digits of those are kept, as a text with a mark."""
    (number,) = struct.unpack(">d", bytes.fromhex(bits))
    written = canonical(number).decode()
    if number.is_integer() and abs(number) > 2**53 - 1:
        assert json.loads(written).startswith("\0int:")
        assert float(json.loads(written).removeprefix("\0int:")) == number
    else:
        assert written == text


def test_names_are_ordered_as_the_rfc_says() -> None:
    """RFC 8785, section 3.2.3: by their UTF-16 units."""
    names = r'{"\u20ac": 1, "\r": 2, "\ufb33": 3, "1": 4, "\ud83d\ude00": 5, "\u0080": 6, "\u00f6": 7}'
    assert list(json.loads(canonical(json.loads(names))).values()) == [2, 4, 6, 7, 1, 5, 3]


# Through the API

TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)
NUMBERS_SENT = st.integers(-(10**25), 10**25) | st.floats(allow_nan=False, allow_infinity=False)
ARGUMENTS = st.dictionaries(
    TEXTS,
    st.recursive(
        st.none() | st.booleans() | NUMBERS_SENT | TEXTS,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
        max_leaves=6,
    ),
    max_size=4,
)


def exactly(value: Any) -> Any:
    """The value with the decimal digits of its numbers: what the sender wrote, not the nearest double."""
    return json.loads(json.dumps(value), parse_float=Decimal, parse_int=Decimal)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(ARGUMENTS)
def test_what_was_stored_has_the_digest_of_what_was_sent(
    agent: Agent, claim: Any, arguments: dict[str, Any]
) -> None:
    action: dict[str, Any] = {"tool": "deploy", "server": "cluster", "arguments": arguments}
    made = agent.post("/effects", acting.effect(claim, action))
    read = agent.get(f"/effects/{made['id']}")
    assert exactly(made["action"]) == exactly(read["action"]) == exactly(action)
    assert made["action_digest"] == read["action_digest"] == Action(**action).digest
    assert Action(**read["action"]).digest == read["action_digest"]


SENT = [
    ('{"id": 1234567890123456789}', '{"id": 1234567890123456790}'),
    ('{"id": 9007199254740993}', '{"id": 9007199254740992}'),
    (
        '{"id": 12345678901234567890123456789012345678901}',
        '{"id": 12345678901234567890123456789012345678902}',
    ),
    ('{"text": "\\u00e9"}', '{"text": "e\\u0301"}'),
    ('{"text": "a\\u202eb"}', '{"text": "ab"}'),
]


@pytest.mark.parametrize(("one", "other"), SENT)
def test_arguments_come_back_as_they_were_sent(agent: Agent, claim: Any, one: str, other: str) -> None:
    digests = set()
    for text in (one, other):
        body = acting.effect(claim, {"tool": "deploy", "arguments": "ARGUMENTS"})
        raw = json.dumps(body).replace('"ARGUMENTS"', text)
        answer = agent.client.post(
            "/v1/effects", content=raw.encode(), headers={"Content-Type": "application/json"}
        )
        assert answer.status_code == 201, answer.text
        made = answer.json()["data"]
        assert made["action"]["arguments"] == json.loads(text)
        digests.add(made["action_digest"])
    assert len(digests) == 2


def test_a_server_may_be_left_out_or_null(agent: Agent, claim: Any) -> None:
    bodies = [{"tool": "deploy"}, {"tool": "deploy", "server": None, "arguments": {}}]
    made = [agent.post("/effects", acting.effect(claim, body)) for body in bodies]
    assert len({each["action_digest"] for each in made}) == 1
    assert all(each["action"] == {"tool": "deploy", "server": None, "arguments": {}} for each in made)
