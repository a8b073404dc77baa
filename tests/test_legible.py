"""What people read of an action: exact, complete, in its order, and with nothing in it that one does not see."""

import re
import time
import unicodedata
from difflib import unified_diff
from html import unescape
from random import Random
from typing import Any

import pytest

from approvals import legible
from coordination.board.unseen import UNSEEN, marked


def plain(html: str) -> str:
    """What a person reads."""
    return " ".join(unescape(re.sub(r"<[^>]+>", "", html)).split())


# --- what is read is what stands there


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (1234567890123456789, "1234567890123456789"),
        (-9007199254740993, "-9007199254740993"),
        (1e20, "100000000000000000000"),
        (1e23, "100000000000000000000000"),
        (2.0, "2"),
        (-0.0, "0"),
        (1e-7, "1e-7"),
        (0.00001, "0.00001"),
        (0.1, "0.1"),
        (True, "true"),
        (None, "null"),
        ('a\n\t"é', '"a\\n\\t\\"é"'),
        ([], "[]"),
        ({}, "{}"),
        ({"b": [1, {"a": 2}], "a": 3}, '{\n  "b": [\n    1,\n    {\n      "a": 2\n    }\n  ],\n  "a": 3\n}'),
    ],
)
def test_arguments_are_printed_exactly(value: Any, shown: str) -> None:
    assert legible.pretty(value) == shown
    assert plain(legible.pretty_html(value)) == " ".join(shown.split())


def test_each_string_of_another_script_keeps_its_place() -> None:
    html = legible.pretty_html({"שם": "ערך", "plain": "text"})
    assert "<bdi>&quot;שם&quot;</bdi>: <bdi>&quot;ערך&quot;</bdi>" in html
    assert html.count("<bdi>") == 2


@pytest.mark.parametrize(
    "character",
    [
        *"\0\x07\x1b\x7f\x85\xa0\xad\u034f\u061c\u1680\u180e\u2000\u200b\u200c\u200d\u200e\u200f\u2028\u2029",
        *"\u202a\u202b\u202c\u202d\u202e\u202f\u205f\u2060\u2066\u2067\u2068\u2069\u2800\u3000\u3164\ufe0f\ufeff",
        *"\U000e0001\U000e0041\U000e0100",
    ],
)
def test_what_nobody_sees_is_marked(character: str) -> None:
    html = marked(f"a{character}b")
    assert character not in html
    assert f">U+{ord(character):04X}</span>" in html
    assert f'title="U+{ord(character):04X} ' in html


def test_every_control_format_and_blank_of_unicode_is_marked_or_seen() -> None:
    # Arabic and Syriac number signs are formats, and drawn.
    drawn = {0x600, 0x601, 0x602, 0x603, 0x604, 0x605, 0x6DD, 0x70F, 0x890, 0x891, 0x8E2, 0x110BD, 0x110CD}
    missed = {
        code
        for code in range(0x110000)
        if unicodedata.category(chr(code)) in ("Cc", "Cf", "Zs", "Zl", "Zp")
        and not UNSEEN.fullmatch(chr(code))
    }
    assert missed - drawn == {ord(" "), ord("\n"), ord("\t")}


def test_newlines_and_tabs_are_kept_and_the_rest_is_escaped() -> None:
    assert marked("a\r\n\tb<i>") == "a\r\n\tb&lt;i&gt;"
    assert "U+000D" in marked("a\rb")
    assert marked("x\u200b\u200by").count("<span") == 1


# --- what changes


def _patched(before: list[str], lines: list[tuple[str, str]]) -> list[str]:
    """What a unified diff makes of a text."""
    made, at = list[str](), 0
    for sign, line in lines:
        if sign == "@":
            found = re.match(r"@ -(\d+)(?:,(\d+))? ", line)
            assert found
            start = int(found[1]) - (found[2] != "0")
            made, at = made + before[at:start], start
        elif sign == "+":
            made.append(line)
        else:
            assert before[at] == line
            made, at = made + [line] * (sign == " "), at + 1
    return made + before[at:]


@pytest.mark.parametrize("compared", [1000, 4])
def test_a_difference_makes_the_one_of_the_other(monkeypatch: pytest.MonkeyPatch, compared: int) -> None:
    monkeypatch.setattr(legible, "COMPARED", compared)
    random = Random(7)
    for _ in range(200):
        old, new = (random.choices("abc", k=random.randrange(1, 30)) for _ in range(2))
        lines = list(legible._changes(old, new))
        assert _patched(old, lines) == new, (old, new)
        if compared == 1000 and old[:3] != new[:3]:
            theirs = list(unified_diff(old, new, lineterm=""))[2:]
            assert [sign + line for sign, line in lines] == theirs


@pytest.mark.parametrize(
    ("before", "after", "signs"),
    [
        ("a\nb", "a\nc", " -+"),
        ("a\r\nb", "a\nb", "-+ "),
        ({"a": 1}, {"a": 2}, " -+ "),
        ("same", "same", ""),
        ("", "x", "-+"),
    ],
)
def test_before_and_after_are_compared(before: Any, after: Any, signs: str) -> None:
    found = legible.difference({"before": before, "after": after})
    assert found is not None
    lines = [plain(line)[:1] if "place" not in line else "@" for line in found.html.split("\n") if line]
    assert len([line for line in lines if line != "@"]) == len(signs)
    assert (found.removed, found.added) == (signs.count("-"), signs.count("+"))
    assert legible.difference({"before": before}) is None


def test_comparing_takes_no_time_to_speak_of() -> None:
    random = Random(1)
    words = [str(number % 100) for number in range(50_000)]
    other = random.sample(words, len(words))
    began = time.monotonic()
    found = legible.difference({"before": "\n".join(words), "after": "\n".join(other)})
    assert found is not None
    assert time.monotonic() - began < 10
    assert (found.removed, found.added) == (
        found.html.count('class="gone"'),
        found.html.count('class="come"'),
    )
