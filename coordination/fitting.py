"""Fitting lists into an answer of so many bytes: items first, then their long texts while there is room.

Each item and each text is measured once, and a text that does not fit need not be read at all.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from django.db.models import Case, Expression, F, Func, IntegerField, TextField, Value, When
from django.db.models.functions import Cast
from django.db.models.lookups import GreaterThan

from .shapes import size_of

# Shorter values stay in their item.
INLINE_BYTES = 200
# Short texts of all items go before longer ones of any: one long text must not displace many others.
TIERS = (2 * 1024, 16 * 1024)

type Reader = Callable[[list[UUID]], dict[UUID, Any]]


@dataclass
class Text:
    """A value that is null in its item where there is no room for it: the field `name` of `at`.

    `size` is at least its bytes in JSON. With `read` the value is in the database under `key`; all values of
    one reader that fit are read at once.
    """

    at: dict[str, Any]
    name: str
    size: int
    label: str = ""
    value: Any = None
    read: Reader | None = None
    key: UUID | None = None

    @property
    def tier(self) -> int:
        """0 for the shortest texts."""
        return sum(self.size > most for most in TIERS)


@dataclass
class Item:
    """One item as it is shown, with null for each of its texts. `stays`: it is never left out."""

    shown: dict[str, Any]
    texts: list[Text] = field(default_factory=list)
    stays: bool = False

    @classmethod
    def of(
        cls, shown: dict[str, Any], long: Iterable[str], *, texts: Iterable[Text] = (), stays: bool = False
    ) -> "Item":
        """An item whose fields `long` are texts, unless they are short; `texts` are others."""
        found = list(texts)
        for name in long:
            size = size_of(shown[name])
            if size > INLINE_BYTES:
                found.append(Text(shown, name, size, name, shown[name]))
                shown[name] = None
        return cls(shown, found, stays)

    @property
    def size(self) -> int:
        """Its bytes without its texts, all of which `truncated` names."""
        return size_of(self.shown) + sum(len(text.label) + 6 for text in self.texts) + 20


@dataclass
class Part:
    """A list of an answer: its items, the newest first. `more`: there are older ones than these; `rest` is
    where all of them are read. A part that is `one` item, or null, is no list."""

    items: list[Item]
    rest: str = ""
    more: bool = False
    one: bool = False
    oldest_first: bool = False

    @classmethod
    def newest(cls, items: list[Item], limit: int, rest: str, *, oldest_first: bool = False) -> "Part":
        """The first `limit` of these items, of which one too many was looked for."""
        return cls(items[:limit], rest, len(items) > limit, oldest_first=oldest_first)

    def drop_oldest(self) -> int | None:
        """Leave out the oldest item that need not stay; its size, or None when there is none."""
        for place in range(len(self.items) - 1, -1, -1):
            if not self.items[place].stays:
                self.more = True
                return self.items.pop(place).size
        return None

    def shown(self) -> Any:
        """As the answer has it."""
        shown = [item.shown for item in self.items]
        if self.one:
            return shown[0] if shown else None
        return shown[::-1] if self.oldest_first else shown


def fit(parts: dict[str, Part], limit: int, *, taken: int = 0) -> dict[str, Any]:
    """The parts within `limit` bytes, of which `taken` are used already; of equally long texts those of the
    first part go first.

    When the items alone are too much, the oldest of the longest list goes, again and again. `truncated` names
    the parts of which anything is missing, here and in each item its texts; `more` says where a list that
    is not whole is read.
    """
    left = limit - taken - sum(len(name) + len(part.rest) + 20 for name, part in parts.items())
    sizes = {name: sum(item.size for item in part.items) for name, part in parts.items()}
    droppable = {name for name, part in parts.items() if not part.one}
    while droppable and sum(sizes.values()) > left:
        longest = max(droppable, key=sizes.__getitem__)
        size = parts[longest].drop_oldest()
        if size is None:
            droppable.remove(longest)
        else:
            sizes[longest] -= size
    missing = _fill(parts, left - sum(sizes.values()))
    more = {name: part.rest for name, part in parts.items() if part.more}
    return {
        **{name: part.shown() for name, part in parts.items()},
        "truncated": [name for name in parts if name in more or name in missing],
        "more": more,
    }


def _fill(parts: dict[str, Part], left: int) -> set[str]:
    """Put in the texts that fit; the names of the parts that miss some."""
    texts = [(text, item, name) for name, part in parts.items() for item in part.items for text in item.texts]
    wanted: dict[Reader, list[Text]] = {}
    missing = set()
    # The sort is stable: parts in their order, the newest items first.
    for text, item, name in sorted(texts, key=lambda each: each[0].tier):
        if text.size > left:
            item.shown.setdefault("truncated", []).append(text.label)
            missing.add(name)
            continue
        left -= text.size
        if text.read is None:
            text.at[text.name] = text.value
        else:
            wanted.setdefault(text.read, []).append(text)
    for read, found in wanted.items():
        values = read([text.key for text in found if text.key is not None])
        for text in found:
            text.at[text.name] = values.get(text.key) if text.key else None
    return missing


def json_bytes(stored: str, value: Expression | F, *, most: int) -> Case:
    """How many bytes a JSON value takes, which PostgreSQL counts and does not send; `most` + 1 for any more.

    What takes more than that in its column `stored`, compressed, is not even unpacked.
    """
    packed = Func(F(stored), function="pg_column_size", output_field=IntegerField())
    counted = Func(Cast(value, TextField()), function="octet_length", output_field=IntegerField())
    return Case(
        When(GreaterThan(packed, most), then=Value(most + 1)), default=counted, output_field=IntegerField()
    )
