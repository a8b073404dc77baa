"""What approvals and effects add to the working context of a task, and to the heartbeats of its run."""

from collections.abc import Iterable
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models import CharField, QuerySet
from django.db.models.fields.json import KeyTextTransform, KeyTransform
from django.db.models.functions import Coalesce

from coordination.fitting import Item, Part, Text, json_bytes
from titen.api.ids import public_id

from .models import DECIDED, Approval, Effect
from .outcomes import FOUND_OUT, OPEN
from .shapes import approval_json, effect_json, resolved_json, with_reports

APPROVALS = 50
EFFECTS = 50
# Effects without a known outcome hold up completion, so that more of them are named.
OPEN_EFFECTS = 200
# No answer has room for more arguments.
MOST_BYTES = 256 * 1024


def decided(task_id: UUID) -> Part:
    """The newest decided approvals of a task, shown in the order in which they ended."""
    found = Approval.objects.filter(task=task_id, status__in=DECIDED).order_by("-ended_at", "-pk")
    items = []
    for approval in _without_arguments(found, APPROVALS + 1):
        shown = approval_json(approval)
        shown["href"] = f"/v1/approvals/{shown['id']}"
        texts = _arguments(shown, approval, _of_approvals)
        items.append(Item.of(shown, ["question", "context", "reason"], texts=texts))
    return Part.newest(
        items, APPROVALS, f"/v1/approvals?task={public_id('task', task_id)}", oldest_first=True
    )


def effects(task_id: UUID) -> Part:
    """The effects of a task, newest first: those whose outcome nobody knows, and the newest others."""
    found = with_reports(Effect.objects.filter(task=task_id)).order_by("-pk")
    open_ones = _without_arguments(found.filter(status__in=OPEN), OPEN_EFFECTS + 1)
    ended = _without_arguments(found.filter(status__in=FOUND_OUT), EFFECTS + 1)
    rows = sorted([*open_ones[:OPEN_EFFECTS], *ended[:EFFECTS]], key=lambda effect: effect.pk, reverse=True)
    items = []
    for effect in rows:
        shown = effect_json(effect, private=True)
        shown["href"] = f"/v1/effects/{shown['id']}"
        texts = _arguments(shown, effect, _of_effects)
        stays = effect.status in OPEN
        items.append(Item.of(shown, ["note", "verdict", "reports"], texts=texts, stays=stays))
    more = len(open_ones) > OPEN_EFFECTS or len(ended) > EFFECTS
    return Part(items, f"/v1/effects?task={public_id('task', task_id)}", more)


def resolved(task_id: UUID, since: datetime, until: datetime) -> Part:
    """The approvals of a task that ended in this time, by id; one whose time is over has ended then, whether
    or not that is written down."""
    found = (
        Approval.objects.filter(task=task_id)
        .alias(over_at=Coalesce("ended_at", "expires_at"))
        .filter(over_at__gte=since, over_at__lt=until)
        .defer("question", "context", "options", "action", "verdict")
        .order_by("-over_at", "-pk")
    )
    items = [Item.of(resolved_json(approval), ["reason"]) for approval in found[: APPROVALS + 1]]
    return Part.newest(
        items, APPROVALS, f"/v1/approvals?task={public_id('task', task_id)}", oldest_first=True
    )


def _without_arguments(found: QuerySet[Any], limit: int) -> list[Any]:
    """The first rows, their actions without arguments, whose length stands in `bytes`."""
    measured = found.defer("action").annotate(
        tool=KeyTextTransform("tool", "action", output_field=CharField()),
        server=KeyTextTransform("server", "action", output_field=CharField()),
        bytes=json_bytes("action", KeyTransform("arguments", "action"), most=MOST_BYTES),
    )
    rows = list(measured[:limit])
    for row in rows:
        row.action = None if row.tool is None else {"tool": row.tool, "server": row.server, "arguments": None}
    return rows


def _arguments(shown: dict[str, Any], row: Any, read: Any) -> Iterable[Text]:
    """The arguments of an action as a text that is read if there is room."""
    if row.action is None or row.bytes is None:
        return []
    return [Text(shown["action"], "arguments", row.bytes, "action.arguments", read=read, key=row.pk)]


def _of_approvals(ids: list[UUID]) -> dict[UUID, Any]:
    return _read(Approval.objects.filter(pk__in=ids))


def _of_effects(ids: list[UUID]) -> dict[UUID, Any]:
    return _read(Effect.objects.filter(pk__in=ids))


def _read(found: QuerySet[Any]) -> dict[UUID, Any]:
    return {key: action["arguments"] for key, action in found.values_list("pk", "action")}
