"""The tasks of the demo, as data, and the small batches in which they come back."""

from dataclasses import dataclass
from typing import Any

LEASE_SECONDS = 30
SERVICE = "checkout-service"
BUILDS = [40, 41, 42]


@dataclass(frozen=True)
class Item:
    """One task. `after` names the items that it waits for."""

    title: str
    description: str
    capability: str
    payload: dict[str, Any]
    priority: int = 0
    after: tuple[str, ...] = ()
    lease_seconds: int = LEASE_SECONDS

    def fields(self) -> dict[str, Any]:
        """As creating it takes them, without its dependencies."""
        return {
            "title": self.title,
            "description": self.description,
            "priority": self.priority,
            "required_capabilities": [self.capability],
            "payload": self.payload,
            "lease_ttl_seconds": self.lease_seconds,
        }


ITEMS: dict[str, Item] = {
    "roll-back": Item(
        "Roll checkout-service back to build 41",
        "Build 42 answers every tenth checkout with an error since this morning. A human approves exactly this.",
        "ops",
        {"job": "switch build", "service": SERVICE, "build": 41},
        priority=50,
    ),
    "roll-forward": Item(
        "Take checkout-service to build 42 again",
        "The fix of the payment timeout is in. A human approves exactly this.",
        "ops",
        {"job": "switch build", "service": SERVICE, "build": 42},
        priority=50,
    ),
    "copy": Item(
        "Copy the sources into the scratch folder",
        "A working copy for experiments, under the state folder.",
        "static",
        {"job": "copy", "packages": ["approvals", "coordination", "titen"]},
        priority=45,
    ),
    "remove": Item(
        "Remove the scratch folder",
        "Nobody needs the working copy any more. A human approves exactly what is in it, and nothing else goes.",
        "ops",
        {"job": "remove scratch"},
        priority=20,
        after=("copy",),
    ),
    "confirm": Item(
        "Confirm that the scratch folder is gone",
        "Look again after the removal, and say what is left.",
        "ops",
        {"job": "confirm scratch"},
        after=("remove",),
    ),
    "checksum": Item(
        "Checksum the static files",
        "A manifest for `sha256sum --check`. The first agent that tries is killed half-way, on purpose: watch "
        "the lease run out, and the next attempt go on where it stopped.",
        "static",
        {"job": "checksum", "die_at_percent": 50},
        priority=40,
        lease_seconds=20,
    ),
    "upload": Item(
        "Upload the manifest to the mirror",
        "The mirror takes the file and hangs up before it says so: watch the effect become unknown. Say what came "
        "of it, or wait until the archivist has looked for itself.",
        "static",
        {"job": "upload manifest", "hangs": True},
        priority=35,
        after=("checksum",),
    ),
    "vendored": Item(
        "Check the vendored files",
        "Compare them with the checksums that were published with them.",
        "static",
        {"job": "check vendored"},
        priority=5,
    ),
    "lint-coordination": Item(
        "Lint the package coordination",
        "Syntax, unused imports, bare excepts, mutable defaults.",
        "python",
        {"job": "lint", "package": "coordination"},
        priority=30,
    ),
    "lint-titen": Item(
        "Lint the package titen and note what is found",
        "The linter looks; then it hands the task to the scribe, who writes the notes in the section of the "
        "package and says so with a lease on it.",
        "python",
        {"job": "lint", "package": "titen", "notes_by": "scribe"},
        priority=55,
    ),
    "lines": Item(
        "Measure the lines of each package",
        "And how they grew since the last measurement. A history that can't be read is set aside, and the "
        "attempt fails.",
        "python",
        {"job": "line counts"},
        priority=25,
    ),
    "docstrings": Item(
        "Count the functions without a docstring",
        "Per package.",
        "python",
        {"job": "docstrings"},
        priority=20,
    ),
    "migrations": Item(
        "Check that every migration is named by hand",
        "A name that makemigrations chose says what changed, not why.",
        "python",
        {"job": "migration names"},
        priority=10,
    ),
    "todos": Item(
        "Collect the comments that promise something",
        "TODO, FIXME and XXX in all packages.",
        "python",
        {"job": "todos"},
    ),
    "openapi": Item(
        "Build the OpenAPI document",
        "As the running server describes itself; every operation needs a name of its own.",
        "docs",
        {"job": "openapi"},
        priority=25,
    ),
    "changelog": Item(
        "Publish a changelog from the git log",
        "The first lines of the last commits, by day. A rule lets the scribe publish on the docs site.",
        "docs",
        {"job": "changelog"},
        priority=10,
    ),
    "report": Item(
        "Write the report on this checkout",
        "From the results of the tasks before it. Ask what to call it.",
        "docs",
        {"job": "report"},
        priority=30,
        after=("lint-coordination", "lines", "docstrings"),
    ),
}

FIRST = tuple(name for name in ITEMS if name != "roll-forward")

ROUNDS: tuple[tuple[str, ...], ...] = (
    ("lint-coordination", "vendored", "openapi"),
    ("checksum", "upload", "todos", "lint-titen"),
    ("lines", "docstrings", "changelog"),
    ("copy", "remove", "confirm", "roll-forward"),
    ("lint-coordination", "lines", "docstrings", "report"),
    ("migrations", "checksum", "roll-back"),
)


def housekeeping(number: int) -> Item:
    """The task that makes round `number` of the others, and the next of its own kind."""
    return Item(
        "Refill the queue",
        "Puts a small batch of the demo's tasks back into the queue, so that there is always something to see.",
        "housekeeping",
        {"job": "refill", "round": number},
        priority=60,
    )


def minutes_until(number: int) -> int:
    """Minutes before round `number`: three at first, fifteen in the long run."""
    return min(3 + number // 4, 15)
