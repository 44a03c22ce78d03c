"""A browser for pages that are opened from a disk."""

import pytest

from tests.browser.lab import needs_chromium


@pytest.fixture(scope="module")
def browser():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        opened = play.chromium.launch(executable_path=needs_chromium(), args=["--no-sandbox"])
        yield opened
        opened.close()
