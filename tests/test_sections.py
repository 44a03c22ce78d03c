"""A NameError of a lecture says which section makes the name."""

import re
from pathlib import Path

import nbformat
import pytest
from IPython.core.interactiveshell import InteractiveShell

from labkit import sections

NOTEBOOKS = Path(__file__).parent.parent / "notebooks"
WAYS = (NOTEBOOKS.parent / "docs/lectures.md").read_text(encoding="utf-8")


@pytest.fixture
def shell(monkeypatch):
    made = InteractiveShell()
    made.kernel = object()
    monkeypatch.setenv("JPY_SESSION_NAME", "notebooks/22_ring_all_reduce.ipynb")
    monkeypatch.setattr("IPython.get_ipython", lambda: made)
    sections.install()
    yield made
    InteractiveShell.clear_instance()


@pytest.mark.parametrize(
    ("name", "where"),
    [("my_ring", "made in section 3 · "), ("labkit", "made in the first cells"), ("absent", None)],
)
def test_a_name_error_in_a_kernel_says_where_it_is_made(shell, monkeypatch, capsys, name, where):
    monkeypatch.chdir(NOTEBOOKS)
    outcome = shell.run_cell(f"{name}.ring")
    assert isinstance(outcome.error_in_exec, NameError)
    out = capsys.readouterr().out
    assert where in out if where else "made in" not in out


@pytest.mark.parametrize(
    ("wrong", "near"),
    [
        ("labkit.colectives", "'collectives'"),
        ("labkit.pipelines.schedul", "'schedule'"),
        ("labkit.collectives.programs.rign_all_reduce", "'ring_all_reduce'"),
        ("labkit.collectives.run(labkit.collectives.programs.reduce, ranks=2).plyer", "'player'"),
        ("json.dump_s", None),
    ],
)
def test_a_wrong_name_of_labkit_suggests_the_near_one(shell, capsys, wrong, near):
    shell.run_cell(f"import json, labkit\n{wrong}")
    out = capsys.readouterr().out
    assert out.count("Did you mean") == (near is not None)
    assert near is None or f"Did you mean {near}?" in out


@pytest.mark.parametrize("way", ["a demo", "a lecture"])
def test_the_sections_of_a_short_way_run_when_only_the_first_cell_has_run_before(way, monkeypatch):
    monkeypatch.syspath_prepend(NOTEBOOKS)
    import minutes

    (row,) = re.findall(rf"^\| {way} .*$", WAYS, re.MULTILINE)
    chosen = re.findall(r"(\d\d), sections? ([\d, and to]*\d) \(", row)
    assert len(chosen) >= 2
    for lecture, numbers in chosen:
        (path,) = NOTEBOOKS.glob(f"{lecture}_*.ipynb")
        sections = minutes.by_section(nbformat.read(path, as_version=4).cells)
        assert minutes.first_run(sections, minutes.chosen(numbers)) == [], (lecture, numbers)
