"""The options of an approval: what a human chooses from, and which choices let an action happen."""

import unicodedata
from dataclasses import dataclass
from typing import Any

from titen.errors import invalid

MAX_OPTIONS = 20
MAX_OPTION_LENGTH = 200
APPROVE, DENY = "approve", "deny"
# Words that no option which grants may bear, however they are decorated: who reads them thinks that it refuses.
_REFUSALS = {"deny", "denied", "reject", "refuse", "decline", "no", "cancel", "stop", "abort", "block"}
# Letters of other alphabets, in lower case, by the Latin one that they or their capitals look like.
_LOOKALIKES = {
    alien: letter
    for letter, aliens in {
        "a": "аα", "b": "вьβ", "c": "с", "d": "ԁ", "e": "еε", "i": "іιı", "j": "ј", "k": "кκ", "l": "ӏ1",
        "n": "пν", "o": "оο0", "p": "рρ", "s": "ѕ", "t": "тτ", "y": "уүυ",
    }.items()
    for alien in aliens
}  # fmt: skip
# Letters and signs that are drawn as nothing.
_FILLERS = "\u115f\u1160\u2800"
FOR_ACTIONS: list[Any] = [
    {"value": APPROVE, "label": "Approve", "grants": True},
    {"value": DENY, "label": "Deny", "grants": False},
]


@dataclass(frozen=True)
class Option:
    """One choice. `value` is the decision; `label` is the agent's words. `grants`: None for a mere question."""

    value: str
    label: str
    grants: bool | None


def read(options: list[Any], *, for_action: bool) -> list[Option]:
    """Strings, or objects of `value`, `label` and `grants`. Of strings only `approve` grants an action."""
    return [_option(option, for_action) for option in options]


def _option(option: Any, for_action: bool) -> Option:
    if isinstance(option, str):
        return Option(option, option, option == APPROVE if for_action else None)
    value = option["value"]
    grants = option.get("grants")
    if for_action and grants is None:
        grants = value == APPROVE
    return Option(value, option.get("label", value), grants)


def check(options: list[Any], *, for_action: bool) -> list[Option]:
    """Refuse what a human could not choose from: 2 to 20, short, plainly different; for an action at least
    one that grants it and one that does not, and none that grants under the name of a refusal."""
    if not 2 <= len(options) <= MAX_OPTIONS:
        raise invalid("options", f"must hold between 2 and {MAX_OPTIONS} options.")
    found = read(options, for_action=for_action)
    for text in (text for option in found for text in (option.value, option.label)):
        if not _skeleton(text) or text != text.strip() or len(text) > MAX_OPTION_LENGTH:
            raise invalid(
                "options", f"each must be 1 to {MAX_OPTION_LENGTH} visible characters without outer blanks."
            )
    for texts in ([option.value for option in found], [option.label for option in found]):
        if len({_skeleton(text) for text in texts}) != len(texts):
            raise invalid("options", "must differ by more than upper and lower case or invisible characters.")
    if not for_action:
        if any(option.grants is not None for option in found):
            raise invalid("options", "can grant nothing without an action.")
        return found
    for option in found:
        if option.grants and any(_reads_as_refusal(text) for text in (option.value, option.label)):
            raise invalid("options", f"'{option.value}' reads as a refusal and must not grant.")
    if not any(option.grants for option in found):
        raise invalid("options", "must hold one that grants: 'approve', or an object with 'grants': true.")
    if all(option.grants for option in found):
        raise invalid("options", "must hold one that does not grant, such as 'deny'.")
    return found


def _reads_as_refusal(text: str) -> bool:
    """True for a word that refuses, whatever stands around, between or above its letters, of which some may
    only look like it."""
    letters = [each for each in unicodedata.normalize("NFKD", text).casefold() if each.isalnum()]
    return "".join(_LOOKALIKES.get(each, each) for each in letters if each not in _FILLERS) in _REFUSALS


def _skeleton(text: str) -> str:
    """What is left of a text to the eye: without invisible characters, case and compatibility forms."""
    seen = "".join(
        character
        for character in unicodedata.normalize("NFKC", text)
        if unicodedata.category(character) not in ("Cf", "Cc", "Mn", "Me") and character not in _FILLERS
    )
    return " ".join(seen.casefold().split())
