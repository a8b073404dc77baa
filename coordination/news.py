"""What a heartbeat tells a run that has asked: the decisions and answers since the one before."""

from datetime import datetime
from typing import Any
from uuid import UUID

from titen.api.ids import public_id

from . import participants
from .fitting import Item, Part, Text, fit
from .models import Comment
from .shapes import comment_json, size_of

LIMIT_BYTES = 64 * 1024
ANSWERS = 50


def since(task_id: UUID, moment: datetime, *, until: datetime) -> dict[str, Any]:
    """What ended from `moment` on and before `until`, by id, the newest 50 of each, at most 64 KiB.

    Consecutive heartbeats tell each thing once. `more` says where a list that is not whole is read.
    """
    parts: dict[str, Part] = {}
    for participant in participants.everyone():
        parts.update(participant.heartbeat(task_id, moment, until))
    return fit({**parts, "answers": _answers(task_id, moment, until)}, LIMIT_BYTES)


def _answers(task_id: UUID, moment: datetime, until: datetime) -> Part:
    rest = f"/v1/tasks/{public_id('task', task_id)}/comments"

    def item(comment: Comment) -> Item:
        shown = comment_json(comment)
        shown["href"] = f"{rest}/{shown['id']}"
        answer = shown["answer"]
        text = Text(answer, "body", size_of(answer["body"]), "answer.body", answer["body"])
        answer["body"] = None
        return Item.of(shown, ["body"], texts=[text])

    found = (
        Comment.objects.filter(task_id=task_id, blocking=True, answered_at__gte=moment, answered_at__lt=until)
        .select_related("author", "answered_by")
        .order_by("-answered_at", "-pk")
    )
    return Part.newest([item(comment) for comment in found[: ANSWERS + 1]], ANSWERS, rest, oldest_first=True)
