"""The approvals app: questions to humans and their decisions."""

from django.apps import AppConfig


class ApprovalsConfig(AppConfig):
    """Joins approvals to the moves of coordination."""

    name = "approvals"

    def ready(self) -> None:
        from coordination import participants

        from .participant import ApprovalsParticipant

        participants.register(ApprovalsParticipant())
