"""Debian's Chromium, driven by Playwright, which `make test-system` installs in .cache/browser."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

CHROMIUM = "/usr/bin/chromium"
PACKAGES = Path(__file__).parents[2] / ".cache" / "browser"


def add_packages() -> None:
    """Make the packages of `.cache/browser` importable, after those of the environment."""
    assert (PACKAGES / "playwright").is_dir(), "Playwright is missing: run `make .cache/browser/.installed`"
    if str(PACKAGES) not in sys.path:
        sys.path.append(str(PACKAGES))


@contextmanager
def chromium() -> Iterator[Any]:
    """Start a headless browser; yields a Playwright `Browser`."""
    add_packages()
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        # Root may run Chromium without its sandbox only.
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


def accessibility_report(page: Any) -> str:
    """Return what axe-core finds wrong on a page, as text; empty if nothing."""
    from axe_playwright_python.sync_playwright import Axe

    results = Axe().run(page)
    return results.generate_report() if results.violations_count else ""
