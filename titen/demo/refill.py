"""Housekeeping: the demo's tasks come back in small batches, and never pile up."""

from datetime import UTC, datetime, timedelta
from typing import Any

from titen.client import IdempotencyMismatch, Run, Titen

from . import backlog
from .work import Outcome, Report, counted, each

MOST_OPEN = 15
OPEN = ("todo", "in_progress", "blocked")


def refill(titen: Titen, run: Run, number: int, report: Report) -> Outcome:
    """Create the tasks of round `number` that are not open now, and the housekeeping after it."""
    ids = _open_tasks(titen)
    ids.pop(run.task["title"], None)
    names = backlog.ROUNDS[number % len(backlog.ROUNDS)]
    wanted = [name for name in names if backlog.ITEMS[name].title not in ids]
    room = max(0, MOST_OPEN - len(ids))
    created = 0
    for name in each(wanted[:room], report):
        item = backlog.ITEMS[name]
        titles = (backlog.ITEMS[before].title for before in item.after)
        depends_on = [ids[title] for title in titles if title in ids]
        task_id = _create_once(titen, run, name, {**item.fields(), "depends_on": depends_on})
        if task_id is not None:
            ids[item.title] = task_id
            created += 1
    report(95, "planning the next round")
    then = datetime.now(UTC) + timedelta(minutes=backlog.minutes_until(number + 1))
    body = {**backlog.housekeeping(number + 1).fields(), "not_before": then.isoformat()}
    _create_once(titen, run, "next", body)
    return Outcome(
        f"Round {number}: {counted(created, 'new task')}, {len(ids) - created} were open.",
        {"created": created},
    )


def _open_tasks(titen: Titen) -> dict[str, str]:
    """The ids of open tasks by title; when there are very many, enough of them."""
    pages = [titen.get("/v1/tasks", status=status, limit=200) for status in OPEN]
    return {task["title"]: task["id"] for page in pages for task in page["tasks"]}


def _create_once(titen: Titen, run: Run, name: str, body: dict[str, Any]) -> str | None:
    """Create a task, however often this one is attempted; None when an earlier attempt did."""
    try:
        task: dict[str, Any] = titen.post("/v1/tasks", body, key=f"{run.task['id']}:{name}")
    except IdempotencyMismatch:
        return None
    return str(task["id"])
