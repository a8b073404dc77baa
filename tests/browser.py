"""Headless Chromium, the distribution's own."""

import shutil

from playwright.sync_api import Browser, Playwright

NAMES = ("chromium", "chromium-browser", "google-chrome")
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


def launch(playwright: Playwright) -> Browser:
    """A browser. AssertionError with one clear sentence when there is none."""
    found = next((path for name in NAMES if (path := shutil.which(name))), None)
    assert found, "The browser tests need Chromium: install your distribution's package 'chromium'."
    return playwright.chromium.launch(executable_path=found, args=ARGUMENTS)
