"""Every notebook, opened and run in a real JupyterLab, as a student sees it in class.

LABKIT_SHOTS=FOLDER keeps a picture of each, in both themes.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.browser.lab import Lab

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("[0-9]*.ipynb"))
SECONDS = 1500  # for one notebook


@pytest.fixture(scope="module")
def opened(tmp_path_factory):
    folder = tmp_path_factory.mktemp("course")
    for part in ("notebooks", "images"):
        ignored = shutil.ignore_patterns("__pycache__", ".*")
        shutil.copytree(ROOT / part, folder / part, ignore=ignored)
    with Lab(folder) as lab:
        yield lab


@pytest.mark.timeout(SECONDS + 180)
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_can_be_read_in_both_themes(opened, path):
    opened.open(f"notebooks/{path.name}")
    try:
        assert not opened.ask("isDirty"), "JupyterLab has changed it on opening"
        assert opened.run_all(SECONDS), f"not done after {SECONDS} s: {opened.ask('faults')}"
        assert opened.ask("faults") == []
        assert opened.ask("figureCount") > 0
        for theme in ("JupyterLab Light", "JupyterLab Dark"):
            opened.theme(theme)
            opened.keep_picture(f"{path.stem}-{theme.split()[-1].lower()}.png")
            assert opened.ask("figureFaults") == []
            assert opened.ask("contrastFaults") == [], theme
        assert opened.faults == []
    finally:
        opened.theme("JupyterLab Light")
        opened.close_notebook()
