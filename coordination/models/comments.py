"""Comments on tasks; a blocking one is a question that somebody else must answer."""

from django.db import models
from django.db.models import Q

from .fields import stamped, uuid_key
from .identity import Organization, Principal
from .tasks import Task


class Comment(models.Model):
    """What somebody wrote about a task. Text is never shown as markup.

    `round` is the task's when it was written; of a question, when it was answered.
    """

    PREFIX = "cmt"

    id = uuid_key()
    organization = models.ForeignKey(Organization, on_delete=models.PROTECT, db_index=False, related_name="+")
    task = models.ForeignKey(Task, on_delete=models.PROTECT, db_index=False, related_name="comments")
    run_id = models.UUIDField(null=True)
    round = models.PositiveIntegerField(db_default=1)
    author = models.ForeignKey(Principal, on_delete=models.PROTECT, db_index=False, related_name="+")
    body = models.TextField()
    blocking = models.BooleanField(default=False)
    answer = models.TextField(blank=True)
    answered_by = models.ForeignKey(
        Principal, on_delete=models.PROTECT, null=True, db_index=False, related_name="+"
    )
    answered_at = models.DateTimeField(null=True)
    withdrawn_at = models.DateTimeField(null=True)
    created_at = stamped()

    class Meta:
        ordering = ["created_at"]
        constraints = [
            models.CheckConstraint(
                condition=Q(answered_at__isnull=True, answered_by__isnull=True)
                | Q(answered_at__isnull=False, answered_by__isnull=False),
                name="an_answer_has_an_author",
            ),
        ]
        indexes = [
            models.Index(fields=["task", "created_at"], name="comments_of_a_task"),
            # The board: the questions that wait for an answer.
            models.Index(
                fields=["organization", "created_at"],
                condition=Q(blocking=True, answered_at__isnull=True, withdrawn_at__isnull=True),
                name="open_questions",
            ),
        ]

    def __str__(self) -> str:
        return self.body[:60]
