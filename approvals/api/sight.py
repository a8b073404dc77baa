"""Who sees the arguments of an action: who asked or acted, who may read the task, and humans."""

from typing import Any

from django.db.models import Exists, Model, OuterRef, Q, QuerySet

from coordination.callers import Caller
from coordination.reading import readable_tasks


def seen_by[M: Model](caller: Caller, found: QuerySet[M], author: str) -> QuerySet[M]:
    """The rows of the caller's organization, each with `private`: whether the caller sees the arguments.

    `author` is the column of the principal whose words they are.
    """
    rows: Any = found.filter(organization_id=caller.organization_id)
    of_the_task = Exists(readable_tasks(caller).filter(pk=OuterRef("task_id")))
    return rows.annotate(private=Q(**{author: caller.principal_id}) | of_the_task)  # type: ignore[no-any-return]
