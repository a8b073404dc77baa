"""The board's routes."""

from typing import Any

urlpatterns: list[Any] = []
