"""Deciding on the board: the click on one of an approval's options."""

from uuid import UUID

from django.http import HttpRequest, HttpResponse
from django.urls import path, reverse

from coordination.board import errors, forms, seats
from coordination.board.answers import act
from coordination.board.doors import door
from titen.api.ids import path_id, public_id
from titen.errors import Refused

from .decisions import decide
from .models import Approval


@door("POST")
def decide_view(request: HttpRequest, approval_id: str) -> HttpResponse:
    """A human's click on one of the options."""
    approval = path_id("appr", approval_id)
    known = Approval.objects.filter(pk=approval).values("organization_id", "task_id").first()
    seat = seats.at(request, known["organization_id"] if known else None)

    def work() -> str:
        decided = decide(seat.caller, approval, **forms.read(forms.Decide, request))
        return f"You decided “{decided.decision}”."

    back = (
        reverse("task", args=[public_id("task", known["task_id"])])
        if known and known["task_id"]
        else reverse("board")
    )
    return act(request, seat, work, back=back, explain=lambda refused: explain(refused, approval))


def explain(refused: Refused, approval_id: UUID) -> str:
    """Why a click did not decide: who decided what before and when, or how it ended."""
    approval = Approval.objects.filter(pk=approval_id).select_related("decided_by_user").first()
    if approval is None or refused.code not in ("CONFLICT", "APPROVAL_EXPIRED"):
        return errors.sentence(refused)
    ended = f"{approval.ended_at or approval.expires_at:%H:%M:%S} UTC"
    if approval.decided_by_user is not None:
        return f"{approval.decided_by_user.email} decided “{approval.decision}” at {ended}. Your click changed nothing."
    if refused.code == "APPROVAL_EXPIRED":
        return f"It expired at {approval.expires_at:%H:%M:%S} UTC before anybody decided. Your click changed nothing."
    return f"It was {approval.status} at {ended}. Your click changed nothing."


urlpatterns = [path("approvals/<str:approval_id>/decide", decide_view, name="decide")]
