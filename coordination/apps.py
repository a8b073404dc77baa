"""The coordination app: who acts, tasks, runs, leases, comments and the log."""

from django.apps import AppConfig


class CoordinationConfig(AppConfig):
    """Registers system checks."""

    name = "coordination"

    def ready(self) -> None:
        from . import checks  # noqa: F401  (registers by import)
