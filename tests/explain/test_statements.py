"""Which statement a sample belongs to, and that a copy of the file leaves it out when asked."""

import sys
from types import ModuleType, SimpleNamespace

import pytest

from labkit.explain.statements import Statement, ask, asked_how, removable

PROGRAM = """\
def evaluate(model):
    total = 0
    for part in range(3):
        total += part
    return total


def batches(n):
    for _ in range(n):
        x = make(
            n,
        )
        yield x


def train(model, seen):
    for step, x in enumerate(batches(4)):
        loss = forward(x)
        loss.backward()
        update()
        if step % 2 == 0:
            seen.append(evaluate(model))
        elif step > 99:
            seen.append(-1)
        for one in range(3):
            if one == 1:
                continue
            seen.append(one)
"""
STEP = {19, 20}  # loss.backward(), update()


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "train.py"
    path.write_text(PROGRAM, "utf-8")
    return str(path)


def found(file, *lines):
    one = removable([f"{file}:{line}:f" for line in lines], {(file, line) for line in STEP})
    return one and (one.first, one.last, one.name)


def test_the_outermost_statement_without_a_line_of_a_step(file):
    assert found(file, 22) == (21, 24, "")
    assert found(file, 22, 4) == (21, 24, "")  # not the line inside evaluate
    assert found(file, 27) == (25, 28, "")  # `continue` belongs to its own loop
    assert found(file, 19) is None
    assert found(file, 17, 10) == (10, 12, "")  # of a generator, not the loop that yields
    assert found(file, 20, 4) == (1, 5, "evaluate")  # called by a line of a step: all of it


def test_what_cannot_be_asked(file):
    assert asked_how(Statement(file, 18, 18)) is None  # the loss
    assert asked_how(Statement(file, 23, 24)) is None  # an elif
    assert asked_how(Statement(file, 21, 24))[0] == "keep"
    assert asked_how(Statement(file, 10, 12))[0] == "again"


@pytest.fixture
def agent(monkeypatch):
    """What the agent does, in a few lines: `off` is left out from the second time on."""
    off, had = set(), {}

    def again(name, compute):
        if name not in off or name not in had:
            had[name] = compute()
        return had[name]

    def remembered(name):
        return lambda function: lambda *args: again(name, lambda: function(*args))

    package, marks = ModuleType("labkit_agent"), ModuleType("labkit_agent.marks")
    marks.keep, marks.again, marks.remembered = lambda name: name not in off, again, remembered
    package.marks = marks
    monkeypatch.setitem(sys.modules, "labkit_agent", package)
    monkeypatch.setitem(sys.modules, "labkit_agent.marks", marks)
    return off


@pytest.mark.parametrize(
    ("statement", "without"),
    [
        ((21, 24, ""), [0, 2] * 4),
        ((25, 28, ""), [3, 3]),
        ((10, 12, ""), [3, 0, 2, 0, 2, 3, 0, 2, 0, 2]),
    ],
)
def test_the_copy_leaves_a_statement_out(file, agent, statement, without):
    first, last, name = statement
    text = ask(PROGRAM, [("one", Statement(file, first, last, name))])
    made = []

    def run():
        seen = []
        space = {
            "make": lambda n: made.append(n) or n, "update": lambda: None,
            "forward": lambda x: SimpleNamespace(backward=lambda: x),
        }  # fmt: skip
        exec(compile(text, file, "exec"), space)
        space["train"](None, seen)
        return seen

    plain = [3, 0, 2, 0, 2, 3, 0, 2, 0, 2]
    assert run() == plain
    times = len(made)
    agent.add("one")
    assert run() == without
    assert len(made) - times == (0 if first == 10 else 4)


def test_several_statements_of_a_file_are_asked_at_once(file, agent):
    several = [("a", Statement(file, 25, 28)), ("b", Statement(file, 1, 5, "evaluate"))]
    space = {
        "make": lambda n: n, "update": lambda: None,
        "forward": lambda x: SimpleNamespace(backward=lambda: x),
    }  # fmt: skip
    exec(compile(ask(PROGRAM, several), file, "exec"), space)
    agent.update("a")
    seen = []
    space["train"](None, seen)
    assert seen == [3, 3]
