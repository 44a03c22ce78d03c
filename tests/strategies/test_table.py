"""The works-here table: run for real once, and every strategy held against one device."""

from __future__ import annotations

import numpy as np
import pytest

import labkit
from labkit import plain
from labkit.kinds import LabError, measured
from labkit.strategies.cases import Case
from labkit.strategies.reasons import reason
from labkit.strategies.running import run_case
from labkit.strategies.works import SAME, Row, Works

EXPECTED = {
    ("one device", "one step"),
    ("Mirrored", "one step"),
    ("Mirrored", "model.fit"),
    ("MultiWorkerMirrored", "one step"),
    ("MultiWorkerMirrored", "model.train_step"),
    ("MultiWorkerMirrored", "model.fit"),
    ("CentralStorage", "one step"),
    ("CentralStorage", "model.fit"),
    ("ParameterServer", "one step"),
    ("ParameterServer", "model.fit"),
}


def test_a_strategy_of_another_name_is_refused_with_those_there_are():
    with pytest.raises(LabError, match=r"'mirored'.*'Mirrored', 'CentralStorage'"):
        labkit.strategies(only="mirored")


def row_of(program, deadline=30.0, **more):
    case = Case("planted", "here", "one step", program, **more)
    return run_case(case, [np.zeros(3)], deadline)[0]


def test_a_wrong_result_does_not_count_as_working():
    row = row_of(lambda rank: [np.array([0.0, 2e-6, 0.0])])
    assert not row.works
    assert "2.0e-06 away" in row.why


def test_a_result_that_is_no_number_does_not_count_as_working():
    assert not row_of(lambda rank: [np.full(3, np.nan)]).works


def test_workers_that_differ_in_the_last_bit_do_not_count_as_working():
    row = row_of(lambda rank: [np.full(3, rank * 1e-12)], processes=2)
    assert (row.works, row.why) == (False, "It ran, but the workers ended with different weights.")


def test_a_row_that_hangs_has_its_deadline_and_says_so():
    def hang(rank):
        import threading

        threading.Event().wait()

    row = row_of(hang, deadline=1.0)
    assert (row.works, row.why) == (False, "It had not ended after 1.00 s, and was stopped.")


def test_a_row_for_which_no_time_is_left_says_so():
    assert "Not run" in row_of(None, deadline=0.0).why


def test_an_update_made_by_each_replica_on_shared_weights_is_noticed():
    """CentralStorage as Mirrored would be trained: every weight is updated twice."""

    def twice(rank):
        from dataclasses import replace

        from labkit.strategies.cases import practice_job
        from labkit.strategies.placements import central_storage

        right, wrong = central_storage(2), replace(central_storage(2), shared_variables=False)
        weights = []
        for placed in (right, wrong):
            job = practice_job(placed)
            job.steps(5)
            weights.append(np.concatenate([w.ravel() for w in job.weights()]))
        return [np.abs(weights[0] - weights[1]).max() * np.ones(3)]

    row = row_of(twice)
    assert "away from" in row.why
    assert row.difference > 1e-3


@pytest.fixture(scope="module")
def works():
    """Every strategy of the lectures, each in processes of its own."""
    return labkit.strategies(deadline=240)


def named(works, strategy, what):
    return {row.placed: row for row in works.rows if (row.strategy, row.what) == (strategy, what)}


def test_every_strategy_of_the_lectures_is_run(works):
    assert {(row.strategy, row.what) for row in works.rows} >= EXPECTED


@pytest.mark.parametrize(
    ("strategy", "what"),
    [
        ("Mirrored", "one step"),
        ("MultiWorkerMirrored", "one step"),
        ("MultiWorkerMirrored", "model.train_step"),
        ("CentralStorage", "one step"),
        ("ParameterServer", "one step"),
    ],
)
def test_the_one_step_gives_the_serial_result_wherever_it_is_placed(works, strategy, what):
    """To 1e-6; where a row does not work at all, its reason names the missing kernel."""
    for placed, row in named(works, strategy, what).items():
        if placed.endswith("NCCL"):
            continue
        assert (row.works, row.why) == (True, ""), row.name
        assert row.difference is None or row.difference <= SAME


def test_workers_two_three_and_four_are_all_tried(works):
    rows = named(works, "MultiWorkerMirrored", "one step")
    assert [row.processes for row in rows.values()] == [2, 3, 4]


def test_mirrored_is_tried_with_each_reduction(works):
    placed = " ".join(named(works, "Mirrored", "one step"))
    for reduction in ("reduction to one device", "hierarchical copy", "collective", "NCCL"):
        assert reduction in placed


def test_what_fails_says_why_in_the_words_of_tensorflow_and_in_plain_ones(works):
    """Facts of TensorFlow 2.21 and Keras 3.15: a change of versions shows here first."""
    (nccl,) = [row for row in works.rows if row.placed.endswith("NCCL")]
    assert "between GPUs" in nccl.why
    assert "No OpKernel" in nccl.why
    fit = works.row("MultiWorkerMirrored", "model.fit")
    assert "train_step" in fit.why
    assert "PerReplica" in fit.why
    dropout = named(works, "CentralStorage", "model.fit")["2 replicas, Dropout"]
    assert "Dropout" in dropout.why
    assert not works.row("ParameterServer", "model.fit").works
    assert "each worker needs a data set" in works.row("ParameterServer", "model.fit").why


def test_the_table_reads_as_text_html_and_json(works):
    text, html = str(works), works._repr_mimebundle_()["text/html"]
    assert "measured on" in text
    assert "Keras 3" in text
    # The head, each row, each reason on a line of its own, and what counts as working.
    assert html.count("<tr>") == 1 + len(works.rows)
    assert html.count("<p ") == len(works.failures) + 1
    for number, row in enumerate(works.failures, 1):
        assert row.cells(number)[4] == f"no ({number})"
        assert f"({number}) {row.name}: {row.why}" in text
    assert plain.load(plain.dump(works)) == works


@pytest.mark.parametrize(
    ("kind", "text", "sentence"),
    [
        ("ValueError", "Wrong shape. Try another.\nat line 3", "ValueError: Wrong shape."),
        ("OSError", "", "OSError: no message"),
        ("E", "{{function_node __wrapped__X}} Bad thing", "E: Bad thing"),
        ("E", "Exception encountered when calling A.call().\n\n\x1b[1mBad\x1b[0m", "E: Bad"),
        ("E", "Op 'A' used by {{node b/_1}} with these attrs: [x, y]\nmore", "E: Op 'A'"),
        (
            "E",
            "A value (P:{\n  0: <tf.Tensor: array([[1,\n 2]])>\n}) is bad",
            "E: A value (P:{…}) is bad",
        ),
        ("E", "x" * 500, "E: " + "x" * 139 + "…"),
    ],
)
def test_a_reason_is_one_short_line_of_what_was_said(kind, text, sentence):
    assert reason(kind, text) == sentence


def test_rows_know_their_words():
    row = Row("Mirrored", "2 replicas", 1, "one step", True, 6e-8, 1.5, "")
    failed = Row("Mirrored", "NCCL", 1, "one step", False, None, 0.5, "No GPU.")
    works = Works((row, failed), 20, 120, "TensorFlow 0", measured("a test"))
    assert row.cells() == ("Mirrored", "2 replicas", "1", "one step", "yes", "6e-08", "1.50 s")
    assert works.failures == (failed,)
    assert "Mirrored (NCCL), one step: No GPU." in str(works)
    with pytest.raises(KeyError, match="Mirrored"):
        works.row("Horovod")
