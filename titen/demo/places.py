"""Where the demo reads and writes: the checkout, and the state folder that `TITEN_VAR` names."""

import os
from dataclasses import dataclass
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Places:
    """The demo's paths. All it writes is inside of `var`."""

    var: Path
    checkout: Path = CHECKOUT

    @classmethod
    def here(cls) -> "Places":
        """As the environment says."""
        return cls(Path(os.environ.get("TITEN_VAR") or CHECKOUT / "var").resolve())

    @property
    def credentials(self) -> Path:
        """Logins and keys, for this user's eyes alone."""
        return self.var / "demo.json"

    @property
    def results(self) -> Path:
        """What the agents write."""
        return self.var / "demo"

    @property
    def notes(self) -> Path:
        """What the scribe writes down for others, section by section."""
        return self.results / "quality-notes.md"

    @property
    def scratch(self) -> Path:
        """What the janitor may remove, if a human lets it."""
        return self.var / "demo-scratch"

    @property
    def static(self) -> Path:
        """The collected static files, or the checkout's own before they are collected."""
        collected = self.var / "static"
        return collected if collected.is_dir() else self.checkout / "static"

    @property
    def line_counts(self) -> Path:
        """The line counts so far, oldest first."""
        return self.results / "line-counts.json"

    @property
    def manifest(self) -> Path:
        """The checksums of the static files, as `sha256sum` prints them."""
        return self.results / "static.sha256"

    @property
    def changelog(self) -> Path:
        """What the scribe publishes."""
        return self.results / "changelog.md"

    @property
    def labels(self) -> Path:
        """What the janitor says about what it left alone."""
        return self.results / "labels.txt"

    def site(self, name: str) -> Path:
        """A pretended place where others look: a folder."""
        return self.results / "sites" / name

    def service(self, name: str) -> Path:
        """A pretended service: `builds/<number>/`, and the link `current`."""
        return self.results / "services" / name
