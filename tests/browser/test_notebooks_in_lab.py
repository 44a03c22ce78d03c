"""Every notebook, opened and run in a real JupyterLab, as a student sees it in class.

Each has a kernel of its own that has loaded nothing, and puts out what is saved, as under nbval.

LABKIT_SHOTS=FOLDER keeps a picture of each, in both themes.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import nbformat
import pytest
from nbval.plugin import IPyNbFile

from tests.browser.lab import Lab

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("[0-9c]*.ipynb"))
SECONDS = 1500  # for one notebook


@pytest.fixture(scope="module")
def opened(tmp_path_factory):
    folder = tmp_path_factory.mktemp("course")
    for part in ("notebooks", "images"):
        ignored = shutil.ignore_patterns("__pycache__", ".*")
        shutil.copytree(ROOT / part, folder / part, ignore=ignored)
    with Lab(folder, cold=True) as lab:
        yield lab


def differences(session, path, outputs):
    """What nbval says of outputs that are not the saved ones; as HTML views play here."""
    notebook = IPyNbFile.from_parent(session, path=path)
    notebook.setup_sanitize_files()
    notebook.skip_compare += ("text/html",)
    found = []
    for cell, shown in zip(notebook.collect(), outputs, strict=True):
        if cell.options["check"] and not cell.options["skip"]:
            cell.compare_outputs(nbformat.from_dict(shown), cell.cell.outputs)
            said = cell.comparison_traceback
            found += [f"code cell {cell.cell_num + 1}: {line}" for line in said]
    return found


@pytest.mark.timeout(SECONDS + 180)
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_can_be_read_in_both_themes(opened, path, request):
    opened.open(f"notebooks/{path.name}")
    try:
        assert not opened.ask("isDirty"), "JupyterLab has changed it on opening"
        assert opened.run_all(SECONDS), f"not done after {SECONDS} s: {opened.ask('faults')}"
        assert opened.ask("faults") == []
        other = differences(request.session, path, opened.ask("outputs"))
        assert not other, "\n".join(other)
        skips = opened.page.locator(".labkit-guess").get_by_role("button", name="skip")
        skips.evaluate_all("(buttons) => buttons.forEach((button) => button.click())")
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
