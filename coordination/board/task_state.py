"""Reading one task's page: everything a human needs to judge it, as plain values."""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.conf import settings

from coordination import checkpoints, claims, digests, participants
from coordination.locks import clock, current_epoch
from coordination.models import Comment, Handoff, HandoffStatus, Message, Principal, Run, Task, TaskDependency
from coordination.participants import Card
from coordination.shapes import certainty
from titen.api.ids import public_id

from . import passing_state, timeline
from .passing_state import HandoffRow, MessageRow
from .questions import question_card
from .timeline import Entry

ATTEMPTS = 50
COMMENTS = 200
AGENTS = 200
MESSAGES = 20
DEPENDENTS = 50


@dataclass(frozen=True)
class Attempt:
    """One run of the task."""

    run_id: str
    number: int
    agent: str
    agent_id: str
    kind: str
    epoch: int
    status: str
    progress: int
    status_line: str
    error: str
    checkpoint: Any
    because: str
    started_at: datetime
    ended_at: datetime | None
    renewed_at: datetime
    expires_at: datetime
    certainty: str
    # When its holder declared jeopardy, if it did, and when silence alone brings it.
    declared_at: datetime | None
    jeopardy_from: datetime


@dataclass(frozen=True)
class Said:
    """One comment, or one question with its answer."""

    comment_id: str
    author: str
    kind: str
    body: str
    blocking: bool
    withdrawn: bool
    created_at: datetime
    answer: str = ""
    answered_by: str = ""
    answered_at: datetime | None = None


@dataclass(frozen=True)
class Link:
    """Another task that this one waits for, or that waits for this one."""

    task_id: str
    title: str
    status: str


@dataclass(frozen=True)
class TaskState:
    """One task's page. `asked` is what its holders were asked by messages, `effects` what they attempted.

    `open_run` is the attempt under way; `due` is when time alone changes the page.
    """

    task_id: str
    fields: dict[str, Any]
    epoch: int
    # What the verbs on the page carry.
    digest: str
    waits: tuple[dict[str, Any], ...]
    attempts: tuple[Attempt, ...]
    offers: tuple[HandoffRow, ...]
    asked: tuple[MessageRow, ...]
    comments: tuple[Said, ...]
    cards: tuple[Card, ...]
    history: tuple[Card, ...]
    effects: tuple[Card, ...]
    dependencies: tuple[Link, ...]
    dependents: tuple[Link, ...]
    agents: tuple[tuple[str, str], ...]
    timeline: tuple[Entry, ...]
    earlier: int
    page: int = 1
    due: datetime | None = field(default=None, compare=False)

    @property
    def open_run(self) -> Attempt | None:
        """The attempt under way, or None."""
        return next((attempt for attempt in self.attempts if attempt.ended_at is None), None)


_FIELDS = (
    *("title", "description", "status", "priority", "payload", "secret_refs", "not_before", "backoff_until"),
    *("lease_ttl_seconds", "max_attempts", "attempt_count", "summary", "result", "evidence", "last_error"),
    *("open_effects", "created_at", "finished_at"),
)


def read(organization_id: UUID, task_id: UUID, page: int = 1) -> TaskState | None:
    """The page of a task of this organization, with a page of its timeline; None when there is none."""
    task = (
        Task.objects.filter(pk=task_id, organization_id=organization_id)
        .select_related("profile", "created_by")
        .first()
    )
    if task is None:
        return None
    now = clock()
    attempts = _attempts(task, now)
    comments = list(
        Comment.objects.filter(task=task)
        .select_related("author", "answered_by", "task")
        .order_by("created_at", "id")[:COMMENTS]
    )
    cards = [
        question_card(item)
        for item in comments
        if item.blocking and not item.answered_at and not item.withdrawn_at
    ]
    for participant in participants.everyone():
        cards += participant.task_cards(task.pk)
    entries, earlier = timeline.read(task, page)
    offers = passing_state.handoff_rows(
        Handoff.objects.filter(task=task, status=HandoffStatus.PENDING, expires_at__gt=now), now
    )
    asked = Message.objects.filter(resource_id=task.resource_id).order_by("-id")[:MESSAGES]
    moments: list[datetime | None] = [each.expires_at for each in offers]
    if attempts and attempts[0].ended_at is None:
        moments += [attempts[0].expires_at, attempts[0].jeopardy_from]
    moments += [task.not_before, task.backoff_until, task.reserved_until, *(card.until for card in cards)]
    return TaskState(
        task_id=public_id("task", task.pk),
        fields={
            **{name: getattr(task, name) for name in _FIELDS},
            "capabilities": list(task.profile.capabilities),
            "created_by": task.created_by.name,
        },
        epoch=current_epoch(task),
        digest=digests.of_task(task),
        waits=tuple(claims.waits_for(task, now=now)),
        attempts=attempts,
        offers=offers,
        asked=passing_state.message_rows(asked),
        comments=tuple(_said(comment) for comment in comments),
        cards=tuple(sorted((card for card in cards if card.open), key=lambda card: (card.since, card.key))),
        history=tuple(card for card in cards if not card.open),
        effects=tuple(
            card for participant in participants.everyone() for card in participant.task_effects(task.pk)
        ),
        dependencies=tuple(
            _link(item.depends_on)
            for item in TaskDependency.objects.filter(task=task)
            .select_related("depends_on")
            .only("depends_on__title", "depends_on__status")
            .order_by("depends_on_id")
        ),
        dependents=tuple(
            _link(item.task)
            for item in TaskDependency.objects.filter(depends_on=task)
            .select_related("task")
            .only("task__title", "task__status")
            .order_by("task_id")[:DEPENDENTS]
        ),
        agents=tuple(
            (public_id("agent", pk), name)
            for pk, name in Principal.objects.filter(organization_id=organization_id, disabled_at=None)
            .exclude(kind="human")
            .order_by("name_key")
            .values_list("pk", "name")[:AGENTS]
        ),
        timeline=entries,
        earlier=earlier,
        page=page,
        due=min((moment for moment in moments if moment is not None and moment > now), default=None),
    )


def _attempts(task: Task, now: datetime) -> tuple[Attempt, ...]:
    """The attempts, newest first."""
    runs = list(
        Run.objects.filter(task=task).select_related("lease", "principal").order_by("-number")[:ATTEMPTS]
    )
    left = checkpoints.left_by(run.pk for run in runs)
    return tuple(
        Attempt(
            run_id=public_id("run", run.pk),
            number=run.number,
            agent=run.principal.name,
            agent_id=public_id("agent", run.principal_id),
            kind=run.principal.kind,
            epoch=run.epoch,
            status=run.status,
            progress=run.progress,
            status_line=run.status_line,
            error=run.error,
            checkpoint=left.get(run.pk),
            because=run.lease.granted_because,
            started_at=run.started_at,
            ended_at=run.ended_at,
            renewed_at=run.lease.renewed_at,
            expires_at=run.lease.expires_at,
            certainty=certainty(run.lease, now, settings.JEOPARDY_SHARE),
            declared_at=run.lease.jeopardy_declared_at,
            jeopardy_from=run.lease.renewed_at
            + timedelta(seconds=run.lease.ttl_seconds * settings.JEOPARDY_SHARE),
        )
        for run in runs
    )


def _said(comment: Comment) -> Said:
    return Said(
        comment_id=public_id("cmt", comment.pk),
        author=comment.author.name,
        kind=comment.author.kind,
        body=comment.body,
        blocking=comment.blocking,
        withdrawn=comment.withdrawn_at is not None,
        created_at=comment.created_at,
        answer=comment.answer,
        answered_by=comment.answered_by.name if comment.answered_by else "",
        answered_at=comment.answered_at,
    )


def _link(task: Task) -> Link:
    return Link(public_id("task", task.pk), task.title, task.status)
