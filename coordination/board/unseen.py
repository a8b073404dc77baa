"""Characters that nobody sees, or that turn the order in which others are read: shown as marked boxes."""

import re
import unicodedata
from functools import lru_cache

from django.utils.html import escape, format_html
from django.utils.safestring import SafeString, mark_safe

# Names in a box's title; one box stands for all that follow each other.
NAMED = 8

# Controls but newline and tab, and no carriage return before a newline; blanks but the common one; formats,
# among them zero width, bidirectional controls and tags; variation selectors; fillers that are drawn as nothing.
UNSEEN = re.compile(
    r"(?:\r(?!\n)|["
    "\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f"
    "\xa0\u1680\u2000-\u200a\u202f\u205f\u3000"
    "\u2028\u2029"
    "\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u2800\u3164"
    "\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb"
    "\U00013430-\U0001345f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
    "])+"
)


def marked(text: str) -> SafeString:
    """A text as HTML: escaped, and with a box that names them in place of characters that are not seen."""
    parts: list[str] = []
    end = 0
    for found in UNSEEN.finditer(text):
        parts += (escape(text[end : found.start()]), _box(found[0]))
        end = found.end()
    return mark_safe("".join([*parts, escape(text[end:])]))  # noqa: S308


@lru_cache(maxsize=1024)
def _box(characters: str) -> SafeString:
    different = list(dict.fromkeys(characters))
    names = [f"{_code(each)} {unicodedata.name(each, 'control character')}" for each in different[:NAMED]]
    title = ", ".join(names + ["…"] * (len(different) > NAMED))
    return format_html(
        '<span class="unseen" title="{}">{}</span>', title, " ".join(_code(each) for each in characters)
    )


def _code(character: str) -> str:
    return f"U+{ord(character):04X}"
