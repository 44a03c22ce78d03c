"""The six traces of lecture 19 show what their task asks for, by their own numbers."""

from pathlib import Path
from statistics import fmean

import pytest

import labkit
from labkit.exercises.lectures.lecture_19_profilers import TRUTH

FOLDER = Path(__file__).parents[2] / "notebooks" / "recordings"
FILES = {letter: sorted(FOLDER.glob(f"19_{letter}_*.gz")) or [FOLDER / "19_d.xplane.pb.gz"]
         for letter in "abcdef"}  # fmt: skip


def cause(profile):
    """What the rules of section 3 find, in the order of that section."""
    shares, computing, length = [], [], 0.0
    for rank in profile.ranks:
        parts = profile.breakdown(rank)
        whole = sum(sum(step.values()) for step in parts)
        shares.append({name: sum(step[name] for step in parts) / whole for name in parts[0]})
        computing.append(sum(step["computing"] for step in parts))
        spans = [one for kind in ("forward", "backward") for one in profile.intervals(kind, rank)]
        length = fmean(end - start for start, end in spans)
    if max(one["input alone"] for one in shares) > 0.3:
        return "input"
    if max(computing) > 1.3 * min(computing):
        return "straggler"
    if all(profile.exposed(rank) > 0.9 for rank in profile.ranks):
        return "no overlap"
    if length < 10e-6:
        return "small operations"
    return "fine" if all(one["computing"] > 0.9 for one in shares) else "unclear"


@pytest.mark.parametrize(("letter", "truth"), [*zip("abcdef", TRUTH, strict=True)])
def test_a_trace_shows_its_cause(letter, truth):
    assert cause(labkit.profiles.read(FILES[letter])) == truth


def test_recordings_are_small():
    assert all(file.stat().st_size < 200_000 for file in FOLDER.glob("19_*"))


def test_a_rank_that_is_late_makes_the_other_wait_in_its_collectives():
    profile = labkit.profiles.read([FOLDER / f"19_waits_rank{rank}.json.gz" for rank in (0, 1)])
    late, waiting = (labkit.profiles.covered(profile.intervals("communication", rank))
                     for rank in (0, 1))  # fmt: skip
    assert waiting > 2 * late
