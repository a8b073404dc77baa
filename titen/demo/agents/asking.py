"""Ask people at most once per task, however many attempts it takes: an earlier one may have asked."""

from titen.client import Run


def decision_on(run: Run, question: str, options: list[str], context: str) -> str | None:
    """The option that a human chose; None when nobody did in time, which is no denial."""
    for approval in run.context.get("approvals", []):
        if approval["question"] == question and approval["status"] == "decided":
            return str(approval["decision"])
    return run.ask(question, options, context=context).decision


def answer_to(run: Run, question: str) -> str:
    """What somebody answered."""
    for comment in run.context.get("comments", []):
        if comment["body"] == question and comment["answer"]:
            return str(comment["answer"])
    return run.ask_question(question).body
