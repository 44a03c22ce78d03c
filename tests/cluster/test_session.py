"""The session that is shown where there is no Slurm: recorded, of the lecture's program."""

from __future__ import annotations

import re

import pytest

from labkit import LabError, cluster
from labkit.cluster import session, slurm_queue
from labkit.cluster.slurm_queue import QueueState
from labkit.plain import dump, load
from tests.cluster.record_session import lecture_cell


def mine(rank):
    return rank


@pytest.fixture
def no_slurm(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))


def test_without_slurm_the_recording_is_shown_and_says_so(no_slurm):
    seen = cluster.slurm_session(mine, ranks=2)
    assert seen.kind.name == "recorded"
    assert "no sbatch" in seen.note
    assert "Its program is not yours" in seen.note
    shown = seen._repr_mimebundle_()
    for text in (shown["text/plain"], shown["text/html"]):
        for part in ("#SBATCH --ntasks=", "runs on 127.0.0.[2-3]", "rank 1:", str(seen.kind)):
            assert part in text
    assert load(dump(seen)) == seen


def test_the_recording_is_of_the_lectures_program():
    kept = session.recorded_session()
    assert kept.program.strip() in lecture_cell(), "python -m tests.cluster.record_session"
    assert {line.rank for line in kept.lines} == set(range(len(kept.results)))


def test_the_recording_names_no_folder_of_the_machine_it_was_made_on():
    text = session.RECORDING.read_text(encoding="utf-8")
    for folder in ("/home/", "/Users/", "/root/", "/tmp/", "/work/"):
        assert folder not in text


def test_without_slurm_a_block_says_what_to_do(no_slurm):
    with (
        pytest.raises(LabError, match=r'no sinfo on this machine.*engine="local"'),
        cluster(ranks=2, engine="slurm"),
    ):
        pass
    assert "no sbatch" in slurm_queue.why_no_slurm()


@pytest.mark.parametrize(
    ("state", "words"),
    [
        (QueueState("1", "PENDING", "Resources"), "waits: the nodes that it needs are busy"),
        (QueueState("1", "PENDING", "PartitionTimeLimit"), "ask for less with time="),
        (QueueState("1", "PENDING", "NewReason"), r"\(NewReason\)"),
        (QueueState("1", "RUNNING", nodes="n1"), "runs on n1"),
        (QueueState("1", "TIMEOUT"), "its time was over"),
        (QueueState("1", "OUT_OF_MEMORY"), "more memory than it asked for"),
        (QueueState("1", "SOMETHING"), "SOMETHING"),
    ],
)
def test_a_state_of_the_queue_is_told_in_words(state, words):
    assert re.search(words, str(state))
    assert bool(state.hopeless) == (state.reason == "PartitionTimeLimit")


def test_a_settings_mistake_is_said_before_anything_is_started(no_slurm):
    with pytest.raises(LabError, match="time='soon'"):
        cluster(ranks=2, engine="slurm", time="soon")
    with pytest.raises(LabError, match="'partitions'"):
        cluster(ranks=2, engine="slurm", partitions="alpha")
