"""A real browser, and pages opened in it."""

import shutil
from contextlib import contextmanager

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome")
CHROMIUM = next((path for path in map(shutil.which, NAMES) if path), None)
PHONE, DESK = 390, 1280  # widths in pixels


@contextmanager
def chromium():
    """A browser; Playwright has one at a time."""
    if CHROMIUM is None:
        pytest.skip("needs a Chromium to drive")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


def opened(browser, path, width=PHONE, **options):
    """A page at a width; what it asked for and complained about is kept."""
    page = browser.new_page(viewport={"width": width, "height": 844}, **options)
    page.asked, page.complaints = [], []
    page.on("request", lambda r: page.asked.append(r.url))
    page.on(
        "console",
        lambda m: (
            page.complaints.append(m.text) if m.type in ("error", "warning") else None
        ),
    )
    page.on("pageerror", lambda e: page.complaints.append(str(e)))
    page.goto(path.as_uri())
    return page
