"""What works here: run for real once, and every strategy compared with one device."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from unittest import mock

import numpy as np
import pytest

import labkit
from labkit.cluster import RunOutcome
from labkit.cluster.ranks.failures import RankError
from labkit.strategies.support_table import CASES, SAME, SERVED, Trial, run_case
from labkit.strategies.tf_errors import LONGEST, explain, short_error

PAGE = (Path(__file__).parents[2] / "docs" / "strategies.md").read_text(encoding="utf-8")


def row_of(train, timeout=300, **more):
    case = Trial("planted", "here", "one step", dict, train, **more)
    return run_case(case, [np.zeros(3)], timeout)[0]


@pytest.mark.parametrize("weight", [2e-6, np.nan])
def test_a_wrong_result_does_not_count_as_working(weight):
    assert f"{weight:.1e} away" in row_of(lambda _: [np.array([0.0, weight, 0.0])]).why


def test_workers_that_differ_in_the_last_bit_do_not_count_as_working():
    def train(_):
        return [np.full(3, labkit.cluster.this_rank().rank * 1e-12)]

    assert "different weights" in row_of(train, roles={"worker": 2}).why


def test_a_row_that_hangs_is_stopped_and_says_so():
    def hang(_):
        import threading

        threading.Event().wait()

    assert "had not ended after 1.00 s" in row_of(hang, timeout=1.0).why


# Facts of TensorFlow 2.21 and Keras 3.15: a change of versions shows here first.
FAILS = {
    ("Mirrored", "2 replicas, nccl", "one step"): "No OpKernel",
    ("MultiWorkerMirrored", "2 workers", "model.fit"): "PerReplica",
    ("CentralStorage", "2 replicas, Dropout", "model.fit"): "aggregation method",
    ("ParameterServer", SERVED, "model.fit"): "create_per_worker_dataset",
}
# Other tests train with two reductions, with two workers, and asynchronously.
PLACES = {"one step": ("1 logical CPU", "4 replicas, collective operations", "2 replicas, nccl",
                       "2 replicas", f"{SERVED}, in turn"),
          "model.train_step": ("2 workers",),
          "model.fit": ("2 replicas, Dropout",)}  # fmt: skip
SOME = [case for case in CASES if case.placed in PLACES[case.what]]
SOME += [case for case in CASES if (case.strategy, case.what) == ("Mirrored", "model.fit")]


def test_the_page_of_reference_has_every_row_and_says_which_does_not_work():
    for case in CASES:
        about = (case.strategy, case.placed, case.what)
        row = r"\| {} \| {} \| \d \| {} \| (yes|no)".format(*map(re.escape, about))
        assert re.findall(row, PAGE) == ["no" if about in FAILS else "yes"], about


@pytest.mark.parametrize("cases", [SOME, pytest.param(CASES, marks=pytest.mark.stress)])
def test_training_gives_the_result_of_one_device_wherever_it_is_placed_or_says_why_not(cases):
    with mock.patch("labkit.strategies.support_table.CASES", cases):
        table = labkit.strategies()
    assert len(table.rows) == len(cases)
    for row in table.rows:
        if message := FAILS.get((row.strategy, row.placed, row.what)):
            assert re.search(rf"\(\w+: .*{message}", row.why)  # after its meaning, which is ours
        else:
            assert row.why == ""
            assert row.difference is None or row.difference <= SAME
    for number, row in enumerate([row for row in table.rows if row.why], 1):
        for text in table._repr_mimebundle_().values():
            assert f"({number}) {row.strategy} ({row.placed})" in text
    apart = dataclasses.replace(table.rows[0], difference=3e-8)
    assert " 3e-08 " in repr(dataclasses.replace(table, rows=(apart,)))


@pytest.mark.parametrize(
    ("kind", "text", "sentence"),
    [
        ("E", "Exception encountered when calling A.call().\n\n\x1b[1mBad\x1b[0m", "E: Bad"),
        ("E", "Graph execution error:\n\nDetected at node x\n  File y\nBad", "E: Bad"),
        ("E", "Op 'A' used by {{node b/_1}} with these attrs: [x, y]\nmore", "E: Op 'A'"),
        ("E", "Bad by 1.5 of it. More", "E: Bad by 1.5 of it."),
        ("E", "a" * 1000, f"E: {'a' * (LONGEST - 1)}…"),
        ("E", "A value (P:{\n  0: array([[1,\n 2]])>\n}) is bad", "E: A value (P:{…}) is bad"),
    ],
)
def test_an_error_is_one_short_sentence_of_what_was_reported(kind, text, sentence):
    assert short_error(kind, text) == sentence


def test_of_several_errors_the_first_is_told():
    lost = RankError(0, "raised", "", kind="UnavailableError", message="Closed.", seconds=2.0)
    cause = RankError(1, "raised", "", kind="ValueError", message="Bad.", seconds=1.0)
    assert explain(RunOutcome({}, {0: lost, 1: cause}, (), 3.0), 60.0) == "ValueError: Bad."
