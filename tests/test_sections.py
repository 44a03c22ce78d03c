"""A NameError of a lecture says which section makes the name."""

import json
import re
from pathlib import Path

import nbformat
import pytest
from IPython.core.interactiveshell import InteractiveShell

from labkit import sections

NOTEBOOKS = Path(__file__).parent.parent / "notebooks"
WAYS = (NOTEBOOKS.parent / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("lecture", "name", "where"),
    [
        ("10_ring_all_reduce", "labkit", ""),
        ("10_ring_all_reduce", "my_ring", "3 · "),
        ("03_mirrored_strategy", "never_made", None),
    ],
)
def test_the_section_that_makes_a_name_is_found(lecture, name, where):
    cells = json.loads((NOTEBOOKS / f"{lecture}.ipynb").read_text(encoding="utf-8"))["cells"]
    found = sections.made_in(cells, name)
    assert found == where or (where and found.startswith(where))


@pytest.fixture
def shell():
    yield InteractiveShell()
    InteractiveShell.clear_instance()


@pytest.mark.parametrize(("name", "says"), [("my_ring", True), ("never_made", False)])
def test_a_name_error_in_a_kernel_says_it(shell, monkeypatch, capsys, name, says):
    monkeypatch.chdir(NOTEBOOKS)
    monkeypatch.setenv("JPY_SESSION_NAME", "notebooks/10_ring_all_reduce.ipynb")
    monkeypatch.setattr("IPython.get_ipython", lambda: shell)
    shell.kernel = object()
    sections.install()
    outcome = shell.run_cell(f"{name}.ring")
    assert isinstance(outcome.error_in_exec, NameError)
    assert ("made in section 3" in capsys.readouterr().out) == says


@pytest.mark.parametrize("way", ["a demo", "a lecture"])
def test_the_sections_of_a_short_way_run_when_only_the_first_cell_has_run_before(way, monkeypatch):
    monkeypatch.syspath_prepend(NOTEBOOKS)
    import minutes

    (row,) = re.findall(rf"^\| {way} .*$", WAYS, re.MULTILINE)
    chosen = re.findall(r"(\d\db?), sections? ([\d, and to]*\d) \(", row)
    assert len(chosen) >= 2
    for lecture, numbers in chosen:
        (path,) = NOTEBOOKS.glob(f"{lecture}_*.ipynb")
        sections = minutes.by_section(nbformat.read(path, as_version=4).cells)
        assert minutes.first_run(sections, minutes._chosen(numbers)) == [], (lecture, numbers)
