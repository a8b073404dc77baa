"""The hub with a board of its own making: the titles of an organization's tasks, and a large block."""

from collections.abc import Mapping
from typing import Any

# First of all: it sets Django up.
import titen.wsgi  # noqa: F401
from coordination.models import Organization, Task
from titen.live import streams
from titen.live.channels import Source, Subject
from titen.live.hub import Hub

LARGE = 1_500_000

# So that tests need not wait as long as people do; the real board's test does.
streams.CHECK_SECONDS = 2.0
streams.PING_SECONDS = 1.0


def find(query: Mapping[str, str]) -> Subject | None:
    pk = Organization.objects.filter(slug=query.get("org", "")).values_list("pk", flat=True).first()
    return Subject(pk, pk) if pk else None


def read(organization_id: Any, before: Any) -> list[str]:
    found = Task.objects.filter(organization_id=organization_id).order_by("created_at")
    return list(found.values_list("title", flat=True))


def render(titles: list[str], role: str) -> dict[str, str]:
    large = "x" * LARGE if titles and titles[-1].startswith("Large") else ""
    return {
        "titles": "<ul id=titles>\n" + "\n".join(f"<li>{title}" for title in titles) + "\n</ul>",
        "role": f"<p id=role>{role}",
        "large": f"<p id=large>{len(titles)} {large}" if large else "<p id=large>",
    }


def message(changed: Mapping[str, str]) -> str:
    return "\n".join(changed.values())


application = Hub({"/live/board": Source(find=find, read=read, render=render, message=message)}, limit=200)
