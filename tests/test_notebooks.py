"""What a reader of the committed notebooks may rely on, before anything is run."""

from __future__ import annotations

import platform
import re
from itertools import pairwise, takewhile
from pathlib import Path

import nbformat
import pytest
from ipykernel.ipkernel import IPythonKernel

from labkit import kernel, publish

ROOT = Path(__file__).parent.parent
PATHS = sorted((ROOT / "notebooks").glob("[0-9c]*.ipynb"))  # with the capstone project
GLOSSARY = ROOT / "notebooks" / "glossary.ipynb"
LARGEST = 2_000_000  # bytes; more is slow to open and to show on a web page
LONGEST = 25  # lines of a code cell
PICTURE = re.compile(r'labkit\.picture\("(\w+)"\)')
IMAGE = re.compile(r"!\[(?P<alt>[^\]]*)\]\((?P<target>[^)\s]+)\)")
LINK = re.compile(r"(?<!!)\[[^\]]+\]\((?P<target>[^)\s]+)\)")
UNCOMPARED = {"nbval-ignore-output", "nbval-skip"}
# /tmp and home folders of Linux and macOS; a library's own folder; where this repository lies.
MACHINE_PATH = re.compile(
    r"(?:/home|/root|/Users|/tmp|/var/folders|/private/var)/|site-packages/"
    rf"|{re.escape(str(ROOT))}\b|(?<![\w~.:/-])/\S*/(?:bin/python|notebooks/|labkit/)"
)

everywhere = pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
with_glossary = pytest.mark.parametrize("path", [*PATHS, GLOSSARY], ids=lambda path: path.stem)


def read(path):
    return nbformat.read(path, as_version=4)


def code_cells(path):
    return [cell for cell in read(path).cells if cell.cell_type == "code"]


def prose(path):
    return [cell.source for cell in read(path).cells if cell.cell_type == "markdown"]


def without_code(text):
    """Markdown without its code: a comment in a listing is no heading."""
    return re.sub(r"```.*?```|`[^`\n]*`", "", text, flags=re.DOTALL)


def texts_of(output):
    """Every text that an output shows, whatever it is made of."""
    yield from (output.get(key, "") for key in ("text", "evalue"))
    for kind, content in output.get("data", {}).items():
        if kind.startswith("text/") or kind == "image/svg+xml":
            yield content


@everywhere
def test_a_notebook_is_valid_and_not_too_large(path):
    nbformat.validate(read(path))
    assert path.stat().st_size < LARGEST


@everywhere
def test_it_was_run_from_top_to_bottom_and_without_an_error(path):
    cells = [cell for cell in code_cells(path) if cell.source.strip()]
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    raised = [o.ename for cell in cells for o in cell.outputs if o.output_type == "error"]
    expected = [cell for cell in cells if "raises-exception" in cell.metadata.get("tags", [])]
    assert len(raised) == len(expected), raised


@everywhere
def test_nbval_compares_at_least_one_cell_of_it(path):
    compared = [
        cell
        for cell in code_cells(path)
        if not UNCOMPARED & set(cell.metadata.get("tags", [])) and any_text(cell)
    ]
    assert compared, "every cell with an output is tagged nbval-ignore-output"


def any_text(cell):
    """nbval looks at no bitmap: a cell that only draws is run and not compared."""
    return any(text.strip() for output in cell.outputs for text in texts_of(output))


@everywhere
def test_it_opens_with_what_awaits_the_student_and_a_picture(path):
    cells = read(path).cells
    first = cells[0].source
    assert first.startswith("# ")
    assert re.search(r"you will learn", first, re.IGNORECASE)
    assert re.search(r"\d+ min|min(utes)?\W+\d", first, re.IGNORECASE)
    assert re.search(r"\bneeds\b", first, re.IGNORECASE)
    if cells[1].source.endswith("labkit.course()"):  # the map, which is no bitmap
        return
    opening = takewhile(lambda cell: "\n## 1 · " not in f"\n{cell.source}", cells)
    drawn = [output for cell in opening for output in cell.get("outputs", [])]
    assert any("image/png" in output.get("data", {}) for output in drawn)


@everywhere
def test_its_pictures_are_those_of_the_images_folder(path):
    """Drawn by a cell, which travels with the notebook wherever that is opened."""
    for cell in code_cells(path):
        for name in PICTURE.findall(cell.source):
            assert (ROOT / "images" / f"{name}.png").is_file()
            assert cell.metadata.get("jupyter", {}).get("source_hidden")


@everywhere
def test_every_image_has_words_for_who_cannot_see_it(path):
    for source in prose(path):
        for image in IMAGE.finditer(source):
            assert len(image["alt"].split()) >= 3, image["target"]
        for tag in re.findall(r"<img\b[^>]*>", without_code(source)):
            assert re.search(r'\balt="[^"]+"', tag), tag
    for cell in code_cells(path):
        for output in cell.outputs:
            if {"image/png", "image/jpeg"} & set(output.get("data", {})):
                words = output.data.get("text/plain", "")
                assert words.strip(), cell.source
                assert not words.startswith("<"), f"{words} does not say what is seen"


@everywhere
def test_its_cells_are_short_and_their_outputs_are_of_an_idle_machine_that_left_no_trace(path):
    """A cell whose text needs a verdict has one: `labkit notebooks` on an idle machine."""
    for cell in code_cells(path):
        assert len(cell.source.splitlines()) <= LONGEST, cell.source
        assert re.match(r"(?!%%writefile)|%%writefile (-a )?written/", cell.source), cell.source
        shown = "\n".join(text for output in cell.outputs for text in texts_of(output))
        assert not MACHINE_PATH.search(shown), cell.source
        assert "The machine was busy" not in shown, cell.source
        if publish.NEEDS_VERDICT in cell.metadata.get("tags", []):
            assert "cannot tell" not in shown, cell.source
        for output in cell.outputs:
            assert output.get("name") != "stderr", output.text
            # Of such a picture not every web page shows anything.
            assert "data:image" not in output.get("data", {}).get("text/html", ""), cell.source


@everywhere
def test_its_headings_begin_with_the_title_and_skip_no_level(path):
    headings = re.findall(r"^(#+) \S", without_code("\n".join(prose(path))), re.MULTILINE)
    levels = [len(marks) for marks in headings]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))


@with_glossary
def test_below_the_first_row_of_each_table_is_its_rule(path):
    for table in re.findall(r"(?:^\|.*\n?)+", "\n".join(prose(path)), re.MULTILINE):
        assert re.fullmatch(r"\|[-:| ]+\|", table.splitlines()[1]), table


@with_glossary
def test_its_links_into_the_course_lead_somewhere(path):
    for source in prose(path):
        for link in LINK.finditer(without_code(source)):
            target, _, anchor = link["target"].partition("#")
            if re.match(r"[a-z]+:", target):
                assert target.startswith("https://"), target
                continue
            place = (path.parent / target) if target else path
            assert place.exists(), f"{path.name} leads to {target}"
            if anchor and place.suffix == ".ipynb":
                titles = re.findall(r"^#+ (.+)$", "\n".join(prose(place)), re.MULTILINE)
                assert anchor in [title.strip().replace(" ", "-") for title in titles]


def test_lecture_01_compares_a_program_with_itself_and_is_saved_without_a_winner():
    """Five of 100 such comparisons may have one; run the cell again before it is saved."""
    cells = code_cells(ROOT / "notebooks" / "01_reading_numbers.ipynb")
    (cell,) = (one for one in cells if '"this": count, "the same": count' in one.source)
    shown = "\n".join(text for output in cell.outputs for text in texts_of(output))
    assert shown.strip()
    assert not re.search(r"\b(faster|slower)\b", shown)


@with_glossary
def test_its_metadata_is_what_jupyterlab_saves(path):
    """JupyterLab marks a notebook as changed when it finds other metadata on opening."""
    metadata = read(path).metadata
    assert metadata.keys() == {"kernelspec", "language_info"}
    pytorch = path.name.startswith("5")  # part 5
    assert metadata.kernelspec == (kernel.SPEC if pytorch else publish.KERNEL)
    language = {**metadata.language_info, "version": platform.python_version()}
    assert language == IPythonKernel.language_info
