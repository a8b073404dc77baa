"""Arguments and differences as people read them: complete, exact, and in the order in which they stand."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from difflib import SequenceMatcher
from itertools import groupby
from typing import Any

from django.utils.html import format_html
from django.utils.safestring import SafeString, mark_safe

from coordination.board.unseen import marked
from coordination.canonical import canonical

# Deeper values are indented no further, so that a text grows with what it holds and not with its depth.
INDENTED = 20
CONTEXT = 3
# Comparing takes the product of the lines that differ; more of them are shown as all removed, all added.
COMPARED = 1000


def pretty(value: Any) -> str:
    """JSON, a line per item, its keys as they stand; numbers as RFC 8785 prints them, large ones with all digits."""
    return "".join(_tokens(value))


def pretty_html(value: Any) -> SafeString:
    """The same as HTML. What is not seen is marked, and each string keeps its place whatever its script."""
    parts: list[str] = []
    for foreign, tokens in groupby(_tokens(value), key=lambda token: not token.isascii()):
        if foreign:
            parts += (f"<bdi>{marked(token)}</bdi>" for token in tokens)
        else:
            parts.append(marked("".join(tokens)))
    return mark_safe("".join(parts))  # noqa: S308


def _tokens(value: Any) -> list[str]:
    found: list[str] = []
    _write(value, 1, found)
    return found


def _write(value: Any, depth: int, to: list[str]) -> None:
    items: list[tuple[str | None, Any]]
    match value:
        case dict() if value:
            opening, items, closing = "{", list(value.items()), "}"
        case list() if value:
            opening, items, closing = "[", [(None, item) for item in value], "]"
        case _:
            to.append(_scalar(value))
            return
    to.append(opening)
    for place, (name, item) in enumerate(items):
        to.append(f"{',' if place else ''}\n{'  ' * min(depth, INDENTED)}")
        if name is not None:
            to += (_scalar(name), ": ")
        _write(item, depth + 1, to)
    to.append(f"\n{'  ' * min(depth - 1, INDENTED)}{closing}")


def _scalar(value: Any) -> str:
    if isinstance(value, float):
        # As the digest has it: the digits that the database keeps.
        return str(int(Decimal(repr(value)))) if value.is_integer() else canonical(value).decode()
    return json.dumps(value, ensure_ascii=False)


@dataclass(frozen=True)
class Difference:
    """What changes from `before` to `after`: as HTML in the unified form, and how many lines go and come."""

    html: SafeString
    removed: int
    added: int


def difference(arguments: dict[str, Any]) -> Difference | None:
    """What an action changes that carries `before` and `after`; None when it does not."""
    if not {"before", "after"} <= arguments.keys():
        return None
    lines = list(_changes(_lines(arguments["before"]), _lines(arguments["after"])))
    html = "\n".join(
        format_html('<span class="{}">{}<bdi>{}</bdi></span>', _CLASSES[sign], sign, marked(text))
        for sign, text in lines
    )
    signs = [sign for sign, _ in lines]
    return Difference(mark_safe(html), signs.count("-"), signs.count("+"))  # noqa: S308


_CLASSES = {"-": "gone", "+": "come", " ": "same", "@": "place"}


def _lines(value: Any) -> list[str]:
    return (value if isinstance(value, str) else pretty(value)).split("\n")


def _changes(before: list[str], after: list[str]) -> Iterator[tuple[str, str]]:
    """(sign, line): `@` says where a group of changes stands, as in a unified diff."""
    shared = next(
        (at for at, (one, other) in enumerate(zip(before, after, strict=False)) if one != other),
        min(len(before), len(after)),
    )
    skipped = max(0, shared - CONTEXT)
    old, new = before[skipped:], after[skipped:]
    for group in _groups(old, new):
        _, old_from, _, new_from, _ = group[0]
        _, _, old_to, _, new_to = group[-1]
        yield "@", f"@ -{_range(skipped, old_from, old_to)} +{_range(skipped, new_from, new_to)} @@"
        for tag, i1, i2, j1, j2 in group:
            if tag == "equal":
                yield from ((" ", line) for line in old[i1:i2])
                continue
            yield from (("-", line) for line in old[i1:i2])
            yield from (("+", line) for line in new[j1:j2])


type _Change = tuple[str, int, int, int, int]


def _groups(old: list[str], new: list[str]) -> Iterator[list[_Change]]:
    """As difflib's, but not of what would take it too long."""
    head = next(
        (at for at, (one, other) in enumerate(zip(old, new, strict=False)) if one != other),
        min(len(old), len(new)),
    )
    rest = min(len(old), len(new)) - head
    tail = next((at for at in range(rest) if old[-1 - at] != new[-1 - at]), rest)
    differing = max(len(old), len(new)) - head - tail
    if not differing:
        return
    if differing <= COMPARED:
        end = max(0, tail - CONTEXT)
        matcher = SequenceMatcher(None, old[: len(old) - end], new[: len(new) - end])
        yield from matcher.get_grouped_opcodes(CONTEXT)
        return
    kept, o, n = min(tail, CONTEXT), len(old) - tail, len(new) - tail
    changes: list[_Change] = [("equal", 0, head, 0, head), ("replace", head, o, head, n)]
    yield [*changes, ("equal", o, o + kept, n, n + kept)]


def _range(skipped: int, start: int, stop: int) -> str:
    """A range of lines as unified diffs print it."""
    length = stop - start
    begins = skipped + start + (1 if length else 0)
    return str(begins) if length == 1 else f"{begins},{length}"
