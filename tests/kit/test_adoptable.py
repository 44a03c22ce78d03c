"""What those who take the course up read first: versions agree, and what is named is there."""

from __future__ import annotations

import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

import labkit

ROOT = Path(__file__).parents[2]
PAGES = [
    *(ROOT / name for name in ("CODE_OF_CONDUCT.md", "SUPPORT.md", "paper.md", "CITATION.cff")),
    *(ROOT / "docs" / name for name in ("reviews.md", "data_licences.md", "accessibility.md")),
]
# A file or folder of this repository in code marks; commands and expressions are no paths.
PATH = re.compile(r"`([\w./-]+/[\w.-]*|[\w-]+\.(?:md|toml|cff|bib)|LICENSE[\w-]*)`")
LINK = re.compile(r"\]\(([^)#:]+)\)")


def read(name):
    return (ROOT / name).read_text("utf-8")


def test_one_version_is_written_everywhere():
    version = tomllib.loads(read("pyproject.toml"))["project"]["version"]
    assert labkit.__version__ == version
    assert re.search(r"^version: (.*)$", read("CITATION.cff"), re.MULTILINE)[1] == version
    newest = re.search(r"^## (\S+)", read("CHANGELOG.md"), re.MULTILINE)[1]
    assert newest in ("Unreleased", version)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_that_a_page_names_are_there(page):
    text = page.read_text("utf-8")
    named = [ROOT / one for one in PATH.findall(text)]
    named += [page.parent / one for one in LINK.findall(text)]
    assert [str(one) for one in named if not one.exists()] == []


def test_each_citation_of_the_paper_is_in_its_bibliography():
    cited = set(re.findall(r"@(\w+)", read("paper.md").partition("# Summary")[2]))
    assert cited
    assert cited == set(re.findall(r"^@\w+\{(\w+),", read("paper.bib"), re.MULTILINE))


def test_a_release_is_refused_while_something_is_not_committed(tmp_path):
    """The target's own first lines, in a repository with one new file."""
    shutil.copy(ROOT / "Makefile", tmp_path)
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    made = subprocess.run(
        ["make", "-s", "release", "INSTALL=true"], cwd=tmp_path, capture_output=True, text=True
    )
    assert made.returncode != 0
    assert "git status" in made.stderr
