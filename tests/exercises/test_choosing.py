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
        ({"explanation": "5 % 5 % 5 % step step step step"}, "different words"),
        ({"explanation": "There are 7 reasons and all of them are good"}, "unit"),
        ({"explanation": "The moon was full for 40 % of that cold night"}, "computation"),
        ({"explanation": "gradient banana 31 % purple monkey dishwasher"}, "list of words"),
        ({"explanation": "the of and to in 31 % gradient"}, "list of words"),
        ({"explanation": "computation 31 % communication is memory cache"}, "list of words"),
        ({"explanation": "I have no idea what computation takes, 50 % or so."}, "not know"),
        ({"question": "is is is is is is?"}, "question"),
        ({"question": "lorem ipsum dolor sit amet consectetur?"}, "list of words"),
        ({"question": "We tried distributed training on two devices."}, "?"),
        ({"difference": "I did not compare the two results."}, "accuracy"),
        ({"difference": "With 16 bits the weights differ in 2 places."}, "accuracy"),
        ({"difference": True}, "difference"),
        ({"predicted": "1.6×"}, "predicted"),
        ({"predicted": float("inf")}, "predicted"),
        ({"predicted_at": "2026-11-22 22:00"}, "older"),
        ({"predicted_at": "2026-11-22 21:40"}, "older"),
        ({"measured_at": "later"}, "time.time()"),
        ({"predicted_at": "22.11.2026 21:10"}, "2026-11-24 14:05"),
        ({"predicted_at": 1, "measured_at": 2}, "time.time()"),
        ({"devices": 2.5, "efficiency": 0.577 / 2.5}, "whole"),
        ({"devices": 0, "efficiency": 0.577}, "whole"),
        ({"rounds": float("nan")}, "rounds"),
        ({"measured": 0.577}, "speed-up, low, high"),
        ({"efficiency": 29}, "0.288"),
        ({"inside": "no"}, "True or False"),
        ({"verdict": "cannot tell"}, "slower"),
    ],
)
def test_a_report_that_contradicts_itself_is_refused(other, named):
    refused("27.report", example() | other, named)


@pytest.mark.parametrize(
    "other",
    [
        {"predicted_at": 1_764_000_000.5, "measured_at": "1764001200"},
        {"predicted_at": "2026-11-21T08:00:00"},
        {"predicted": labkit.predict("speed-up", 1.2)},
        {"verdict": "Slower "},
        {"inside": np.bool_(False)},
        {"question": "Is training on two logical CPUs faster than on one?"},
        {"explanation": "Each replica waits 0.4 milliseconds for the other in every step."},
        {"explanation": "Launching kernels on two devices costs 0.2 ms in each step."},
        {"measured": (np.float32(0.577), 0.563, 0.586), "devices": np.int64(2)},
    ],
)
def test_a_report_in_another_style_is_accepted(other):
    outcome = TASKS["27.report"].check(example() | other)
    assert outcome, outcome


RULE = "def my_rule(compute, nbytes, ranks, latency, bandwidth):\n    return "
TIME = "2 * (ranks - 1) * latency + 2 * (ranks - 1) / ranks * nbytes / bandwidth"
START = "def my_start(devices, limit, free, hours, spare):\n    return "
BATCH = "def my_batch(parameters, per_parameter, example, memory):\n    return "
YOUNG = "def my_interval(hours, devices, write):\n    return "
KEPT = "def my_goodput(interval, write, restart, gaps):\n    return "
TIMES = [
    f"max(gap - restart, 0) // (interval + write) {what} for gap in gaps" for what in ("", "/ gap")
]
MFU = (
    "def my_mfu(parameters, layers, hidden, sequence, tokens_per_second, gpus, peak):\n"
    "    return tokens_per_second / gpus / peak * "
)
LAYER = "def my_activations(h, a, s, b, t):\n    return s * b * h * "
BUCKETS = """
def my_step(layers, limit, start, rate):
    now = free = held = 0
    for i, (seconds, nbytes) in enumerate(layers):
        now, held = now + seconds, held + nbytes
        if held >= limit or i == len(layers) - 1:
            free = @@ + start + held / rate
            held = ##
    return $$"""
DEVICES = "def my_devices(waits, runs):\n    return "
THRESHOLD = """
def my_threshold(decide, low, high):
    grid = np.geomspace(low, high, 6000)
    first, at = decide(grid[0]), 0
    for step in 2 ** np.arange(12, -1, -1):
        at += step * (at + step < 6000 and decide(grid[min(at + step, 5999)]) == first)
    return grid[at]
"""
LEFT = "memory * 9 // 10 - parameters * per_parameter"


@pytest.mark.parametrize(
    ("task", "code", "named"),
    [
        *(("27.pays", RULE + code, named) for code, named in (
            (f"compute / (compute + {TIME})", "True or False"),
            (f"compute < {TIME}", "half"),
            ("compute >= 2 * (ranks - 1) / ranks * nbytes / bandwidth", "messages"),
            ("compute >= 2 * (ranks - 1) * latency + 2 * nbytes / bandwidth", "(n - 1) / n"),
            ("compute >= 2 * (ranks - 1) * latency + nbytes / bandwidth", "(n - 1) / n"),
            ("compute >= (ranks - 1) * latency + 2 * (ranks - 1) / ranks * nbytes / bandwidth",
             "126 messages"),
            ("compute >= 2 * ranks * latency + 2 * (ranks - 1) / ranks * nbytes / bandwidth",
             "messages"),
            ("True", "half"), ("compute > 0.1", "half"), ("nbytes < 1e6", "half"),
        )),
        *(("17.my_start", START + code, named) for code, named in (
            ("devices <= free", "more than is spare"),
            ("devices <= free and limit <= hours", "spare"),
            ("devices <= spare", "before"), ("limit <= hours", "that are free"),
            ("devices < free and (limit <= hours or devices <= spare)", "before"),
            ("devices <= free and (limit < hours or devices <= spare)", "before"),
            ("devices <= free and limit <= hours and devices <= spare", "before"),
            ("devices <= free and (limit <= hours or devices < spare)", "spare"),
            ("devices <= free - spare", "before"), ("1", "True or False"),
        )),
        *(("27.largest_batch", BATCH + code, named) for code, named in (
            (f"({LEFT}) // example", "0 if no example"),
            ("max(0, (memory - parameters * per_parameter) // example)", "tenth"),
            ("max(0, (memory - parameters * per_parameter) * 9 // 10 // example)", "all memory"),
            ("memory * 9 // 10 // example", "state"), (f"max(0, ({LEFT}) / example)", "down"),
            (f"abs(({LEFT}) // example)", "No example"),
            (f"max(1, ({LEFT}) // example)", "Not one"),
        )),
        *(("22.young", YOUNG + code, named) for code, named in (
            ("(7200 * hours / devices * write) ** 0.5 - write", "Daly"),
            ("2 * (3600 * hours / devices * write) ** 0.5", "The 2 is under"),
            ("(7200 * hours / devices) ** 0.5 * write", "write is under"),
            ("(7200 * hours * write) ** 0.5 / devices", "devices are under"),
        )),
        *(("22.my_goodput", KEPT + code, named) for code, named in (
            ("interval / (interval + write)", "without failures"),
            (f"interval * sum({TIMES[1]}) / len(gaps)", "Divide the sums"),
            ("sum(max(gap - restart, 0) for gap in gaps) // (interval + write) * interval / "
             "sum(gaps)", "gap by gap"),
            (f"interval * sum({TIMES[0].replace('//', '/')}) / sum(gaps)", "no finished"),
            ("interval * sum(round(max(gap - restart, 0) / (interval + write)) for gap in gaps) / "
             "sum(gaps)", "Round down"),
            (f"interval * sum({TIMES[0].replace('gap - restart', 'gap')}) / sum(gaps)", "restart"),
        )),
        *(("22.buckets_overlap", BUCKETS.replace("@@", begins).replace("##", left)
           .replace("$$", end), named) for begins, left, end, named in (
            ("max(now, free)", "held - limit", "free", "All of a bucket"),
            ("now + free", "0", "free", "later of both"),
            ("max(now - seconds, free)", "0", "max(now, free)", "last layer"),
            ("max(now, free)", "0", "free + start * (limit == 0)", "without layers"),
            ("0", "0", "max(now, start + sum(n for _, n in layers) / rate)", "first bucket"),
            ("0", "0", "now + start + sum(n for _, n in layers) / rate", "in one bucket"),
        )),
        *(("21.my_mfu", MFU + code, named) for code, named in (
            ("(8 * parameters + 16 * layers * hidden * sequence)", "Recomputed"),
            ("(6 * parameters + 6 * layers * hidden * sequence)", "12 × layers"),
            ("(6 * parameters + 12 * layers * hidden * sequence ** 2)", "attends"),
            ("(6 * parameters * layers + 12 * layers * hidden * sequence)", "all layers"),
        )),
        *(("21.activations", LAYER + code, named) for code, named in (
            ("(24 + 10 / t + 5 * a * s / h / t)", "other rows"),
            ("(12 + 22 / t + 5 * a * s / h / t)", "counted whole"), ("2", "full recomputation"),
        )),
        *(("17.my_devices", DEVICES + code, named) for code, named in (
            ("min(runs, key=runs.get)", "fastest"), ("min(waits, key=waits.get)", "waits least"),
            ("min(waits[n] + runs[n] for n in waits)", "return the devices"),
            ("min(zip(waits, waits.values(), runs.values()), key=lambda x: x[1] + x[2])[0]",
             "same key"),
        )),
    ],
)  # fmt: skip
def test_a_wrong_function_is_told_its_mistake(task, code, named):
    refused(task, value(code + "\n"), named)


@pytest.mark.parametrize(
    ("task", "code"),
    [
        ("27.threshold", THRESHOLD),
        ("27.pays", RULE + f"np.greater_equal(compute / (compute + {TIME}), 0.5)"),
        ("27.pays", RULE + f"not compute < {TIME}"),
        ("17.my_start", START + "(devices <= free and limit <= hours) or devices <= spare"),
        ("17.my_start", START + "not (devices > free or (limit > hours and devices > spare))"),
        ("17.my_start", START + "devices <= (free if limit <= hours else spare)"),
        ("27.largest_batch", BATCH + f"int(max({LEFT}, 0) / example)"),
        ("27.largest_batch", BATCH + f"0 if {LEFT} < example else ({LEFT}) // example"),
        ("17.my_devices", DEVICES + "sorted(waits, key=lambda n: waits[n] + runs[n])[0]"),
        ("17.my_devices", DEVICES + "min((runs[n] + waits[n], n) for n in runs)[1]"),
    ],
)
def test_a_right_function_in_another_style_is_accepted(task, code):
    outcome = TASKS[task].check(value(code + "\n"))
    assert outcome, outcome


@pytest.mark.parametrize(
    ("task", "answer", "named"),
    [
        ("17.gpu_hours", 7, "4 GPUs"), ("17.gpu_hours", 14, "two nodes"),
        ("17.done_after", 5, "3.6"), ("17.done_after", 2.22, "wait"),
        ("17.longest_wait", 6, "3.6"), ("17.longest_wait", 2.78, "save"),
        ("17.soonest", 8, "B"), ("17.soonest", 3, "delay B"), ("17.soonest", 6, "hour 20"),
        ("27.bytes_per_parameter", 13.9, "Nine tenths"),
        ("27.bytes_per_parameter", 12.8, "activations"),
        ("27.bytes_per_parameter", 3.125, "Four devices"),
    ],
)  # fmt: skip
def test_a_wrong_number_is_told_its_mistake(task, answer, named):
    refused(task, answer, named)


def test_a_threshold_must_be_found_for_any_two_answers():
    names = value("""
def names(decide, low, high):
    while high / low > 1.001:
        middle = (low * high) ** 0.5
        low, high = (middle, high) if decide(middle) == "one" else (low, middle)
    return high
""")
    refused("27.threshold", names, "False becomes True")


def test_another_precision_needs_a_sentence_instead_of_equal_weights():
    for words in (
        "With 16 bits weights differ; accuracy 0.913 and 0.912 over 5 seeds.",
        "float16 rounds: accuracy 0.881 against 0.883 over three seeds.",
    ):
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
    full = LAYOUT.replace("@@", "d * group + p * best.tensor + t")
    refused("27.layout", value(full.replace("(device_memory,", "(device_memory / 0.9,")),
            "do not fit into 57.6 GB")  # fmt: skip
