"""All but a few of these tests are for `make browser`; without Chromium they are skipped."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.browser import lab

HERE = Path(__file__).parent
IN_MAKE_TEST = {"00"}  # the notebook: it has a panel, a player and explorers


def pytest_collection_modifyitems(items):
    for item in items:
        notebook = item.name.partition("[")[2].partition("_")[0]
        if HERE in item.path.parents and notebook not in IN_MAKE_TEST:
            item.add_marker(pytest.mark.browser)


def pytest_runtest_setup(item):
    lab.needs_chromium()
