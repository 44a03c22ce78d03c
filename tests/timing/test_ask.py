"""Misuse is answered in the user's words, before anything is timed."""

import functools

import pytest

from labkit.kinds import LabError
from labkit.timing import compare, measure


def f():
    return None


def needs(x):
    return x


async def later():
    return None


def steps():
    yield 1


class Async:
    async def __call__(self):
        return None


TWO = {"a": f, "b": f}


@pytest.mark.parametrize(
    ("ask", "said"),
    [
        (lambda: compare({}), "got nothing"),
        (lambda: compare({"a": f}), "labkit.measure"),
        (lambda: compare([f, f]), "names and functions"),
        (lambda: compare({"a": f, "b": f()}), "'b' is None, not a function"),
        (lambda: measure(f()), "Did you write f()"),
        (lambda: compare({"a": f, "": f}), "no name"),
        (lambda: compare({"a": f, 2: f}), "no name"),
        (lambda: compare({"a": f, "b": later}), "async function"),
        (lambda: compare({"a": f, "b": Async()}), "async function"),
        (lambda: measure(steps), "generator function"),
        (lambda: measure(functools.partial(steps)), "generator function"),
        (lambda: measure(needs), "lambda: f"),
        (lambda: measure(f, rounds=0), "rounds=0"),
        (lambda: measure(f, rounds=2.5), "rounds=2.5"),
        (lambda: measure(f, items=0), "items=0"),
        (lambda: measure(f, items="many"), "items='many'"),
        (lambda: compare(TWO, items=-1), "items=-1"),
        (lambda: compare(TWO, items={"a": 1}), "items lacks 'b'"),
        (lambda: compare(TWO, items={"a": 1, "b": 1, "c": 1}), "items names 'c'"),
        (lambda: compare(TWO, baseline="c"), "baseline 'c'"),
        (lambda: compare(TWO, scaling="strong"), "number of devices"),
        (lambda: compare(TWO, devices={"a": 1, "b": 2}), "without scaling"),
        (lambda: compare(TWO, scaling="linear", devices={"a": 1, "b": 2}), "'linear' is unknown"),
        (lambda: compare(TWO, scaling="weak", devices={"a": 1, "b": 0}), r"devices\['b'\]=0"),
        (lambda: compare(TWO, scaling="weak", devices=2), "not a dictionary"),
        (
            lambda: compare(
                TWO, scaling="strong", devices={"a": 1, "b": 2}, items={"a": 1, "b": 2}
            ),
            "same work",
        ),
        (
            lambda: compare(TWO, scaling="weak", devices={"a": 1, "b": 2}, items=64),
            "same work per device",
        ),
        (lambda: compare(TWO, same_within=2), "0.02 for 2 %"),
        (lambda: compare(TWO, confidence=95), "0.95 for 95 %"),
        (lambda: compare(TWO, seed="x"), "seed='x'"),
        (lambda: measure(f, warmup=-1), "warmup=-1"),
        (lambda: measure(f, warmup_seconds=0), "warmup_seconds=0"),
        (lambda: measure(f, deadline=-5), "deadline=-5"),
    ],
)
def test_misuse(ask, said):
    with pytest.raises(LabError, match=said):
        ask()


def test_names_of_what_is_measured():
    assert measure(f, rounds=1).name == "f"
    assert measure(lambda: None, rounds=1).name == "work"
    assert measure(functools.partial(needs, 1), rounds=1, name="an epoch").name == "an epoch"


def test_a_builtin_that_tells_nothing_about_its_arguments_is_accepted():
    assert measure(dict, rounds=1).name == "dict"
