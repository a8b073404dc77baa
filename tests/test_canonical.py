"""One text for one JSON value: equal values have equal hashes, and no two ids are rounded into one."""

import json
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordination.canonical import EXACT, canonical, digest

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(10**30), 10**30)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4)
)


def shuffled(value: Any, chance: random.Random) -> Any:
    """The same value with the keys of every object in another order."""
    if isinstance(value, list):
        return [shuffled(item, chance) for item in value]
    if isinstance(value, dict):
        names = list(value)
        chance.shuffle(names)
        return {name: shuffled(value[name], chance) for name in names}
    return value


@given(VALUES, st.randoms(use_true_random=False))
def test_the_order_of_keys_does_not_matter(value: Any, chance: random.Random) -> None:
    assert digest(shuffled(value, chance)) == digest(value)


@given(VALUES)
def test_a_value_that_went_over_the_wire_has_the_same_hash(value: Any) -> None:
    assert digest(json.loads(json.dumps(value))) == digest(value)


@given(st.integers(), st.integers())
def test_different_integers_never_share_a_hash(one: int, other: int) -> None:
    assert (digest(one) == digest(other)) == (one == other)


@given(st.integers(1, 10**40).map(lambda n: n + EXACT), st.sampled_from([1, -1]))
def test_a_string_that_looks_like_a_tagged_integer_is_not_one(size: int, sign: int) -> None:
    number = size * sign
    tagged = json.loads(canonical(number))
    assert isinstance(tagged, str)
    assert tagged.endswith(str(number))
    for text in (tagged, "\0" + tagged, str(number)):
        assert digest(text) != digest(number)
    assert len({digest(text) for text in (tagged, "\0" + tagged, "\0\0" + tagged, tagged[1:])}) == 4


@given(st.text(), st.text())
def test_different_strings_never_share_a_hash(one: str, other: str) -> None:
    assert (digest(one) == digest(other)) == (one == other)
    assert digest("\0" + one) != digest(one)


def test_neighbours_of_a_long_id_differ() -> None:
    ids = [1234567890123456789 + step for step in range(-3, 4)]
    assert len({digest({"id": number}) for number in ids}) == len(ids)


@pytest.mark.parametrize(
    ("one", "same"),
    [(1, 1.0), (0, -0.0), (10**15, 1e15), (10**20, 1e20), (10**23, 1e23), (-(10**20), -1e20), (0.1, 0.10)],
)
def test_json_does_not_tell_these_apart(one: Any, same: Any) -> None:
    """`1` and `1.0` are one number, and so are `1e20` and the same in digits: the database keeps digits."""
    assert digest(one) == digest(same)


@pytest.mark.parametrize(
    ("one", "other"), [(1, "1"), (1, True), (0, False), (None, "null"), ([], {}), ("", [])]
)
def test_these_are_different_things(one: Any, other: Any) -> None:
    assert digest(one) != digest(other)


def test_the_example_of_the_rfc() -> None:
    """RFC 8785, section 3.2.2 and 3.2.3."""
    value = {
        # Without its 1e+30, which is beyond what a double tells apart.
        "numbers": [333333333.33333329, 4.50, 2e-3, 0.000000000000000000000000001],
        "string": "\u20ac$\u000f\u000aA'\u0042\u0022\u005c\\\"/",
        "literals": [None, True, False],
    }
    assert canonical(value).decode() == (
        '{"literals":[null,true,false],"numbers":[333333333.3333333,4.5,0.002,1e-27],'
        '"string":"€$\\u000f\\nA\'B\\"\\\\\\\\\\"/"}'
    )
