"""Browser tests are marked as such, and skipped with a reason where there is no Chromium."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.browser import lab

HERE = Path(__file__).parent
WITHOUT = (
    "There is no Chromium here, so nothing was opened in JupyterLab: install chromium, or name one "
    "in LABKIT_CHROMIUM."
)


def pytest_collection_modifyitems(items):
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.browser)


def pytest_runtest_setup(item):
    if lab.chromium():
        return
    if os.environ.get("LABKIT_REQUIRE_BROWSER") == "1":
        pytest.fail(WITHOUT)
    pytest.skip(WITHOUT)
