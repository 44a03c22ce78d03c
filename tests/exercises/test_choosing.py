"""Functions of 17, 21, 22 and 27 that their judges refuse, and the report of the capstone."""

import ast
import re

import nbformat
import numpy as np
import pytest

import labkit
from labkit.exercises import tasks
from tests.exercises.cells import NOTEBOOKS, refused, value

TASKS = tasks()
CAPSTONE = NOTEBOOKS[0].parent / "capstone.ipynb"


def example():
    text = "\n".join(cell.source for cell in nbformat.read(CAPSTONE, as_version=4).cells)
    return ast.literal_eval(re.search(r"report = (\{.*?\n\})", text, re.DOTALL)[1])


def test_the_report_of_the_worked_example_is_consistent():
    assert TASKS["64.report"].check(example())


@pytest.mark.parametrize(
    ("other", "named"),
    [
        ({"verdict": "faster"}, "faster"),
        ({"efficiency": 0.577}, "efficiency"),
        ({"measured": (0.5, 0.6, 0.7)}, "low"),
        ({"explanation": "I do not know why it is slower."}, "number"),
        ({"difference": "I did not compare the two results."}, "accuracy"),
        ({"predicted": "1.6×"}, "predicted"),
        ({"measured_at": "later"}, "time.time()"),
        ({"devices": 0, "efficiency": 0.577}, "whole number"),
        ({"predicted": -1.8}, "above 0"),
    ],
)
def test_a_report_that_contradicts_itself_is_refused(other, named):
    refused("64.report", example() | other, named)


@pytest.mark.parametrize(
    "other",
    [
        {"predicted_at": 1_764_000_000.5, "measured_at": "1764001200"},
        {"predicted": labkit.predict("speed-up", 1.2)},
        {"difference": "Dropout draws other numbers on each replica.", "verdict": "Slower."},
        {"explanation": "Each replica waits 0.4 milliseconds for the other in every step."},
        {"measured": (np.float32(0.577), 0.563, 0.586), "devices": np.int64(2)},
    ],
)
def test_a_report_in_another_style_is_accepted(other):
    outcome = TASKS["64.report"].check(example() | other)
    assert outcome, outcome


RULE = "def my_rule(compute, nbytes, ranks, latency, bandwidth):\n    return "
TIME = "2 * (ranks - 1) * latency + 2 * (ranks - 1) / ranks * nbytes / bandwidth"
START = "def my_start(devices, limit, free, hours, spare):\n    return "
THRESHOLD = """
def my_threshold(decide, low, high):
    grid = np.geomspace(low, high, 6000)
    first, at = decide(grid[0]), 0
    for step in 2 ** np.arange(12, -1, -1):
        at += step * (at + step < 6000 and decide(grid[min(at + step, 5999)]) == first)
    return grid[at]
"""


@pytest.mark.parametrize(
    ("task", "code"),
    [
        ("64.threshold", THRESHOLD),
        ("64.pays", RULE + f"not compute < {TIME}"),
        ("36.my_start", START + "devices <= (free if limit <= hours else spare)"),
    ],
)
def test_a_right_function_in_another_style_is_accepted(task, code):
    outcome = TASKS[task].check(value(code + "\n"))
    assert outcome, outcome


def test_another_precision_needs_a_sentence_instead_of_equal_weights():
    words = "With 16 bits weights differ; accuracy 0.913 and 0.912 over 5 seeds."
    assert TASKS["64.report"].check(example() | {"difference": words})


def test_what_a_report_lacks_is_named():
    for report in (example() | {"predicted": ...}, {"question": "Is it faster now?"}):
        refused("64.report", report, "lacks", "predicted")


LAYOUT = """
from labkit import choosing

def layout(model, machines, per_machine, device_memory):
    best = choosing.divide(model, choosing.Machine(device_memory, per_machine, machines)).model
    ranks, group = machines * per_machine, best.tensor * best.pipeline
    return [[[@@ for t in range(best.tensor)] for p in range(best.pipeline)]
            for d in range(ranks // group)]
"""


@pytest.mark.parametrize(
    ("rank", "state", "named"),
    [
        ("d * group + p * best.tensor + t", "right", ""),
        ("d + (p * best.tensor + t) * (ranks // group)", "wrong", "machine"),
        ("0", "wrong", "once"),
    ],
)
def test_a_layout_needs_every_rank_once_and_groups_inside_a_machine(rank, state, named):
    outcome = TASKS["64.layout"].check(value(LAYOUT.replace("@@", rank)))
    assert outcome.state == state
    assert named in outcome.text


def test_a_layout_that_shards_more_than_needed_or_does_not_fit_is_refused():
    largest = (
        "\ndef one(model, n, m, memory):\n    return [[list(range(k * m, k * m + m)) for k in "
    )
    refused("64.layout", value(f"{largest}range(n)]]\n"), "replicas")
    alone = "\ndef alone(model, n, m, memory):\n    return [[[rank]] for rank in range(n * m)]\n"
    refused("64.layout", value(alone), "fit")
    full = LAYOUT.replace("@@", "d * group + p * best.tensor + t")
    ragged = """
def ragged(*given):  # the second replica of eight becomes eight of one
    first, *others = layout(*given)
    return [first, *([[rank]] for stages in others for group in stages for rank in group)]
"""
    refused("64.layout", value(full + ragged), "as any other")
    refused("64.layout", value(full.replace("(device_memory,", "(device_memory / 0.9,")),
            "do not fit into 57.6 GB")  # fmt: skip
