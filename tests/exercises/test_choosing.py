"""Lecture 27: what its judges refuse, and the report of the worked example."""

import ast
import re

import nbformat
import pytest

from labkit.exercises import tasks
from tests.exercises.cells import NOTEBOOKS, refused, value

TASKS = tasks()
CAPSTONE = NOTEBOOKS[0].parent / "capstone.ipynb"


def example():
    text = "\n".join(cell.source for cell in nbformat.read(CAPSTONE, as_version=4).cells)
    return ast.literal_eval(re.search(r"report = (\{.*?\n\})", text, re.DOTALL)[1])


def test_the_report_of_the_worked_example_is_consistent():
    assert TASKS["27.report"].check(example())


@pytest.mark.parametrize(
    ("other", "named"),
    [
        ({"verdict": "faster"}, "faster"),
        ({"inside": True}, "inside"),
        ({"efficiency": 0.577}, "efficiency"),
        ({"difference": 0.01}, "accuracy"),
        ({"rounds": 1}, "rounds"),
        ({"measured": (0.5, 0.6, 0.7)}, "low"),
        ({"measured": (0.999, 0.998, 1.001), "efficiency": 0.5}, "slower"),
        ({"explanation": "I do not know why it is slower."}, "number"),
        ({"difference": "I did not compare the two results."}, "difference"),
        ({"predicted": "1.6×"}, "predicted"),
    ],
)
def test_a_report_that_contradicts_itself_is_refused(other, named):
    refused("27.report", example() | other, named)


def test_another_precision_needs_a_sentence_instead_of_equal_weights():
    words = "With 16 bits weights differ; accuracy 0.913 and 0.912 over 5 seeds."
    assert TASKS["27.report"].check(example() | {"difference": words})


def test_what_a_report_lacks_is_named():
    for report in (example() | {"predicted": ...}, {"question": "Is it faster now?"}):
        refused("27.report", report, "lacks", "predicted")


def test_a_scan_of_all_numbers_is_too_slow_for_a_threshold():
    scan = value("""
def scan(decide, low, high):
    x = low
    while decide(x) == decide(low):
        x *= 1.005
    return x
""")
    refused("27.threshold", scan, "200")


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
    outcome = TASKS["27.layout"].check(value(LAYOUT.replace("@@", rank)))
    assert outcome.state == state
    assert named in outcome.text


def test_a_layout_that_shards_more_than_needed_or_does_not_fit_is_refused():
    largest = (
        "\ndef one(model, n, m, memory):\n    return [[list(range(k * m, k * m + m)) for k in "
    )
    refused("27.layout", value(f"{largest}range(n)]]\n"), "replicas")
    alone = "\ndef alone(model, n, m, memory):\n    return [[[rank]] for rank in range(n * m)]\n"
    refused("27.layout", value(alone), "fit")
