"""Blocking questions as cards."""

from uuid import UUID

from coordination.models import Comment, Role
from coordination.participants import Card
from titen.api.ids import public_id

TEMPLATE = "board/question.html"


def needs_you(organization_id: UUID, limit: int) -> tuple[list[Card], int]:
    """The open questions, oldest first: at most `limit` cards, and how many there are."""
    found = Comment.objects.filter(
        organization_id=organization_id, blocking=True, answered_at=None, withdrawn_at=None
    ).order_by("created_at", "id")
    cards = [question_card(comment) for comment in found.select_related("author", "task")[:limit]]
    return cards, len(cards) if len(cards) < limit else found.count()


def question_card(comment: Comment) -> Card:
    """One open question with its form."""
    return Card(
        key=public_id("cmt", comment.pk),
        template=TEMPLATE,
        context={
            "comment_id": public_id("cmt", comment.pk),
            "task_id": public_id("task", comment.task_id),
            "title": comment.task.title,
            "author": comment.author.name,
            "body": comment.body,
            "since": comment.created_at,
        },
        since=comment.created_at,
        role=Role.OPERATOR,
        task_id=public_id("task", comment.task_id),
    )
