"""The recordings that are shipped can be read, are small, and say where and when they were made."""

from __future__ import annotations

from pathlib import Path

import pytest

import labkit

FOLDER = Path(__file__).parent.parent / "notebooks" / "recordings"
FILES = sorted(FOLDER.glob("*.jsonl"))
LARGEST = 300_000  # bytes

every_file = pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)


@every_file
def test_a_recording_is_whole_small_and_recorded(path):
    recording = labkit.replay(path)
    assert recording.damage is None
    assert recording.kind.name == ("modelled" if "modelled" in path.stem else "recorded")
    assert recording.spans
    assert path.stat().st_size < LARGEST


@every_file
def test_the_readme_says_where_and_when_it_was_recorded_and_by_what(path):
    told = [row for row in (FOLDER / "README.md").read_text().splitlines() if path.name in row]
    assert told, f"{path.name} is not in the table of the README"
    row, header = told[0], labkit.replay(path).header
    assert header.where.partition(",")[0] in row
    year, _, day = header.when[:10].split("-")
    assert f"{int(day)} " in row
    assert year in row
    program = row.split("`")[1]
    assert (FOLDER / program).is_file()
