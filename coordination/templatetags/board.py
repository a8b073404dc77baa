"""What the board's templates need beyond Django's own tags: moments, glyphs, words for states."""

import json
from datetime import UTC, datetime
from typing import Any

from django import template
from django.utils.html import format_html
from django.utils.safestring import SafeString

from coordination.board import unseen
from coordination.times import stamp

register = template.Library()

WORDS = {
    "todo": "queued",
    "in_progress": "running",
    "handed_off": "handed off",
    "held": "held",
    "jeopardy": "in jeopardy",
    "expired": "ran out",
}
# Which of the sprite's drawings stands for a state.
GLYPHS = {
    "todo": "ready",
    "in_progress": "running",
    "held": "running",
    "succeeded": "done",
    "decided": "done",
    "consumed": "done",
    "abandoned": "failed",
    "superseded": "cancelled",
    "released": "cancelled",
    "parked": "waiting",
    "handed_off": "cancelled",
    "void": "cancelled",
    "expired": "failed",
    "pending": "needs",
    "accepted": "done",
    "rejected": "failed",
    "withdrawn": "cancelled",
    "revoked": "blocked",
    "deny": "blocked",
    "ask": "approval",
    "allow": "done",
    "destructive": "jeopardy",
    "outward": "handoff",
    "other": "ready",
    "authorized": "running",
    "refused": "blocked",
    "unknown": "question",
    "compensated": "cancelled",
}
# How an effect stands.
EFFECTS = {
    "authorized": "authorized, no outcome yet",
    "unknown": "outcome unknown",
    "compensated": "undone",
}
# Why a lease was granted, and how it ended.
BECAUSE = {
    "claim": "acquired",
    "reacquire": "acquired again",
    "after_expiry": "acquired after the last one ran out",
    "after_failure": "acquired after a failure",
    "takeover": "taken over",
    "handoff": "handed off",
}
ENDED = {
    "released": "given back",
    "expired": "ran out",
    "revoked": "released by force",
    "superseded": "acquired anew",
}


@register.simple_tag
def moment(value: datetime | None, tick: str = "ago") -> SafeString | str:
    """A time that the page's script keeps relative; `tick` is ago, left or at. Absolute in its title, UTC."""
    if value is None:
        return ""
    second = f"{value.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
    return format_html(
        '<time datetime="{}" title="{}" data-tick="{}">{}</time>', stamp(value), second, tick, second
    )


@register.simple_tag
def glyph(state: str) -> SafeString:
    """The drawing of a state; the word stands beside it."""
    return format_html(
        '<svg class="glyph is-{}" aria-hidden="true"><use href="#g-{}"></use></svg>',
        state,
        GLYPHS.get(state, state),
    )


@register.filter
def word(state: str) -> str:
    """How a state is said."""
    return WORDS.get(state, state.replace("_", " "))


@register.filter
def because(reason: str) -> str:
    """Why a lease was granted, as it is said."""
    return BECAUSE.get(reason, reason)


@register.filter
def ended(reason: str) -> str:
    """How a lease ended, as it is said."""
    return ENDED.get(reason, reason)


@register.filter
def count(number: int) -> str:
    """A count as it is printed; the board stops counting at 10,000."""
    return f"{number:,}" if number < 10_000 else "10,000+"


@register.filter
def grouped(number: int) -> str:
    """A number as it is printed."""
    return f"{number:,}"


@register.filter
def span(seconds: int) -> str:
    """A length of time, in its two largest units: 5400 is `1 h 30 min`."""
    words, rest = [], seconds
    for size, name in ((86_400, "d"), (3600, "h"), (60, "min"), (1, "s")):
        if rest >= size:
            words.append(f"{rest // size} {name}")
            rest %= size
    return " ".join(words[:2])


@register.filter
def effect(status: str) -> str:
    """How an effect stands, as it is said."""
    return EFFECTS.get(status, status)


@register.filter
def marked(text: str) -> SafeString:
    """Somebody's text, with a box in place of each character that is not seen or turns the order of others."""
    return unseen.marked(text)


@register.filter
def pretty(value: Any) -> str:
    """JSON, indented."""
    return json.dumps(value, indent=2, ensure_ascii=False, sort_keys=True)
