"""`make screenshot`: the README's pictures, taken of a running demo.

Starts `up --demo` in a state folder of its own, logs in as the approver, waits until the board shows
something to decide and something at work, and writes `.github/board-light.png` and `board-dark.png`.
"""

import json
import tempfile
from functools import partial
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

from .browser import launch
from .processes import Up, eventually

PICTURES = Path(__file__).resolve().parent.parent / ".github"
WINDOW = {"width": 1280, "height": 900}


def _halfway(page: Page) -> bool:
    """True while some run is well under way."""
    bars = page.query_selector_all("#running progress")
    return any(int(bar.get_attribute("value") or 0) > 30 for bar in bars)


def main() -> None:
    """Take both pictures."""
    PICTURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="titen-screenshot-") as folder:
        var = Path(folder) / "var"
        Path(folder).chmod(0o755)
        with Up(var, "--demo") as up, sync_playwright() as playwright:
            eventually((var / "demo.json").exists)
            passwords = json.loads((var / "demo.json").read_text())["passwords"]
            email = next(address for address in passwords if "approver" in address)
            browser = launch(playwright)
            for scheme in ("light", "dark"):
                page = browser.new_page(viewport=WINDOW, color_scheme=scheme)  # type: ignore[arg-type]
                page.goto(f"{up.address}/login")
                page.fill("input[name=username]", email)
                page.fill("input[name=password]", passwords[email])
                page.press("input[name=password]", "Enter")
                page.wait_for_selector("#needs-you form", timeout=120_000)
                eventually(partial(_halfway, page), within=120)
                page.screenshot(path=PICTURES / f"board-{scheme}.png")
                page.close()
            browser.close()


if __name__ == "__main__":
    main()
