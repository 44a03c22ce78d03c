"""Collect the glossary from the lectures: `python notebooks/glossary.py`, or `--check` it.

A lecture defines a term in a sentence that begins with the term in bold: "**Throughput** is the
amount of work done per second." The first lecture that defines a term is the one that is named.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path

import nbformat
from ipykernel.ipkernel import IPythonKernel

from labkit.publish import KERNEL

FOLDER = Path(__file__).resolve().parent
FILE = FOLDER / "glossary.ipynb"
DEFINITION = re.compile(
    r"(?:(?:An?|The|To) )?\*\*(?P<term>[^*:.]+)\*\*"
    r"(?: \([^)]*\)| (?:of|an?) [\w ]+?)? (?:is|are|means) "
)
SENTENCE = re.compile(r"(?:(?<=[.!?])|(?<=[.!?]\))|(?<=[.!?]\*\*))\s+(?=[A-Z*`(])")
OPENING = """# Glossary

The terms of the course, each with its definition and the lecture that introduces it."""


@dataclass(frozen=True)
class Definition:
    """A term, the sentence that defines it, and where: a notebook, its title and the section."""

    term: str
    sentence: str
    notebook: str
    title: str
    section: str


def definitions(folder: Path = FOLDER) -> dict[str, Definition]:
    """The first definition of each term, in the order of the lectures."""
    found: dict[str, Definition] = {}
    for path in sorted(folder.glob("[0-9]*.ipynb")):
        notebook = nbformat.read(path, as_version=4)
        lines = "\n".join(
            re.sub(r"```.*?```", "", cell.source, flags=re.DOTALL)
            for cell in notebook.cells
            if cell.cell_type == "markdown"
        ).splitlines()
        title, section = lines[0].removeprefix("# ").partition(":")[0], ""
        for line in lines:
            section = line.lstrip("# ") if line.startswith("#") else section
            for sentence in SENTENCE.split(re.sub(r"^(-|\d+\.) ", "", line)):
                if match := DEFINITION.match(sentence):
                    term = match["term"]
                    one = Definition(term, sentence, path.name, title, section)
                    found.setdefault(term.casefold(), one)
    return found


def glossary(folder: Path = FOLDER) -> nbformat.NotebookNode:
    """A notebook with one table: the term, its definition, and a link to the section."""
    rows = ["| term | definition | lecture |", "|---|---|---|"]
    for _, one in sorted(definitions(folder).items()):
        link = f"{one.notebook}#{one.section.strip().replace(' ', '-')}"
        term = one.term[0].upper() + one.term[1:]
        rows.append(f"| {term} | {one.sentence} | [{one.title}]({link}) |")
    back = "**Overview:** [all lectures](00_start_here.ipynb)"
    cell = nbformat.v4.new_markdown_cell("\n".join([OPENING, "", *rows, "", back]), id="glossary")
    metadata = {"kernelspec": KERNEL, "language_info": dict(IPythonKernel.language_info)}
    return nbformat.v4.new_notebook(cells=[cell], metadata=metadata)


def is_current() -> bool:
    """Whether the file holds the definitions that the lectures have now."""
    return FILE.exists() and nbformat.read(FILE, as_version=4).cells == glossary().cells


def main() -> int:
    """Write the file, or only say whether it is out of date."""
    if "--check" in sys.argv[1:]:
        if not is_current():
            print("Out of date: notebooks/glossary.ipynb. Renew it: python notebooks/glossary.py")
        return int(not is_current())
    if not is_current():
        nbformat.write(glossary(), FILE)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
