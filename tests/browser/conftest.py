"""All but a few of these tests are for `make browser`; without Chromium they are skipped."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.browser.lab import Lab, needs_chromium

HERE = Path(__file__).parent
IN_MAKE_TEST = {"00"}  # the notebook: it has a panel, a player and explorers


def pytest_collection_modifyitems(items):
    for item in items:
        notebook = item.name.partition("[")[2].partition("_")[0]
        if HERE in item.path.parents and notebook not in IN_MAKE_TEST:
            item.add_marker(pytest.mark.browser)


def pytest_runtest_setup(item):
    needs_chromium()


@pytest.fixture(scope="session")
def one_lab(tmp_path_factory):
    with Lab(tmp_path_factory.mktemp("lab")) as opened:
        yield opened


@pytest.fixture
def lab(one_lab):
    """The JupyterLab of this process of pytest, as wide and as light as at first."""
    one_lab.page.set_viewport_size({"width": 1200, "height": 1000})
    one_lab.page.emulate_media(media="screen", color_scheme="light", forced_colors="none")
    return one_lab
