"""The glossary holds the definitions of the lectures, and all terms that the course must have."""

import re
import sys
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_markdown_cell, new_notebook

NOTEBOOKS = Path(__file__).parents[1] / "notebooks"
sys.path.append(str(NOTEBOOKS))  # what lectures write there has names of other modules
import glossary  # noqa: E402

REQUIRED = """
throughput, overhead, critical path, straggler, latency-bound, bandwidth-bound, overlap,
gradient accumulation, mixed precision, data parallelism, model parallelism, pipeline
parallelism, tensor parallelism, spatial parallelism, hybrid parallelism, micro-batch, bubble,
sharding, replica, rank, world size, chief, barrier, race condition, convergence, divergence,
staleness, checkpoint, job, submit, allocation
"""


def test_the_glossary_holds_the_definitions_of_the_lectures():
    assert glossary.is_current(), "python notebooks/glossary.py"


def test_every_term_that_the_course_must_introduce_is_defined():
    assert set(" ".join(REQUIRED.split()).split(", ")) <= set(glossary.definitions())


def test_its_links_lead_to_the_sections():
    links = re.findall(r"\]\(([^)#]+)#([^)]+)\) \|", glossary.glossary().cells[0].source)
    assert len(links) == len(glossary.definitions())
    for name in {name for name, _ in links}:
        cells = nbformat.read(NOTEBOOKS / name, as_version=4).cells
        titles = re.findall(r"^#+ (.+)$", "\n".join(cell.source for cell in cells), re.MULTILINE)
        known = {title.strip().replace(" ", "-") for title in titles}
        assert {anchor for other, anchor in links if other == name} <= known, name


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("**Throughput** is work per second.", ["throughput"]),
        ("It is late. The **staleness** of a gradient is a number.", ["staleness"]),
        ("- A **job** is a request.\n- To **submit** a job means to send it.", ["job", "submit"]),
        ("**Predict:** is it faster? Here **overlap** is missing.", []),
        ("```\nA **listing** is no prose.\n```", []),
    ],
)
def test_a_definition_is_a_sentence_that_begins_with_its_term(text, terms, tmp_path):
    cell = new_markdown_cell(f"# 01 · One: two\n\n{text}")
    nbformat.write(new_notebook(cells=[cell]), tmp_path / "01_one.ipynb")
    assert list(glossary.definitions(tmp_path)) == terms


def test_the_first_lecture_that_defines_a_term_is_named(tmp_path):
    for number in (1, 2):
        cell = new_markdown_cell(f"# 0{number} · Title\n\n## 1 · It\n\nA **rank** is {number}.")
        nbformat.write(new_notebook(cells=[cell]), tmp_path / f"0{number}_x.ipynb")
    (one,) = glossary.definitions(tmp_path).values()
    assert (one.sentence, one.notebook) == ("A **rank** is 1.", "01_x.ipynb")
    assert "(01_x.ipynb#1-·-It)" in glossary.glossary(tmp_path).cells[0].source
