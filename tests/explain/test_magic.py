"""`%%explain`: a cell becomes a program, runs in a process of its own, and leaves nothing."""

import os
import tempfile
from pathlib import Path

import pytest
from IPython.core.interactiveshell import InteractiveShell

from labkit import sections
from labkit.explain.explanation import Explanation
from labkit.explain.magic import placed, program
from labkit.kinds import LabError
from tests.kernels import Kernel, fault_of, text_of

TRAINING = """%%explain 0.1
import beside

weights = tf.Variable(tf.zeros((8, 1)))


@tf.function
def step(x):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(x @ weights - 1.0))
    weights.assign_sub(0.1 * tape.gradient(loss, weights))
    return loss


for number in range(steps):
    loss = step(tf.ones((4, 8)))
    if number % 2:
        with open("weights.txt", "w") as file:
            beside.write(file, weights)
print("loss", float(loss))
"""


@pytest.fixture
def shell(monkeypatch, tmp_path):
    made = InteractiveShell()
    monkeypatch.setattr("IPython.get_ipython", lambda: made)
    monkeypatch.chdir(tmp_path)
    sections.install()
    yield made
    InteractiveShell.clear_instance()


def test_a_cell_that_needs_nothing_runs_alone(capsys):
    assert program("import math\nprint(math.pi)", [(1, "x = 1")]) == [
        ("cell", "\nimport math\nprint(math.pi)")
    ]
    assert capsys.readouterr().out == ""


def test_earlier_cells_that_make_or_change_what_is_used_come_first(capsys):
    earlier = [
        "import torch\nfrom torch import nn",
        "%matplotlib inline",
        "other = nn.Linear(2, 2)",
        "def build():\n    model = nn.Linear(1, 1)\n    return model",
        "model = build()",
        "model.compile('sgd')",
        "for x in data:\n    print(model(x))",
        "def wrap(one):\n    return one",
        "model = wrap(model)",
    ]
    pieces = program("model.fit(1)\ntorch.save(model)", enumerate(earlier, 1))
    numbers = [name.strip("cel []") for name, _ in pieces]
    assert numbers == ["1", "4", "5", "6", "8", "9", ""]
    assert "model, torch" in capsys.readouterr().out


def test_a_cell_that_was_run_before_is_not_put_before_itself():
    earlier = [(1, "model = 1"), (2, "model.fit()"), (3, "%%explain\nmodel.fit()")]
    assert [name for name, _ in program("model.fit()\n", earlier)] == ["cell [1]", "cell"]


@pytest.mark.parametrize(
    ("cell", "lacks"),
    [
        ("print(absent)", "absent"),
        ("model = wrapped(model)", "wrapped"),
        ("def f():\n    return absent", "absent"),
        ("display(1)", "display"),  # IPython's, not Python's
        ("%time f()", "line 2"),
    ],
)
def test_what_no_cell_makes_is_named(cell, lacks):
    with pytest.raises(LabError, match=lacks):
        program(cell, [(1, "%%time\nmodel = absent = 1")])


@pytest.mark.parametrize(
    "cell",
    [
        "def f():\n    return g()\ndef g():\n    return [x for x in range(3)]\nf()",
        "for x in range(3):\n    y = x\n    print(y)",
        "import a.b as c\nclass D(c.E):\n    f = 1\n    g: int = f",
        "try:\n    pass\nexcept OSError as fault:\n    print(fault, __name__)",
        "from numpy import *\nprint(zeros(3))",
    ],
)
def test_a_cell_that_makes_its_own_names_lacks_none(cell):
    program(cell, [])


def test_lines_are_those_of_the_cells():
    pieces = [("cell [2]", "a = 1\nb = 2\n"), ("cell", "\nc = 3")]
    assert "\n".join(text for _, text in pieces).splitlines()[4] == "c = 3"
    text = r"/tmp/x/cell.py:2 and /tmp/x/cell.py:5; File \"/tmp/x/cell.py\", line 5"
    said = "cell [2], line 2 and cell, line 2; cell, line 2"
    assert placed(text, "/tmp/x/cell.py", pieces) == said


def test_a_cell_of_training_is_explained(shell, tmp_path, capfd):
    Path("beside.py").write_text("def write(file, x):\n    file.write(str(x.numpy()))\n")
    shell.history_manager.store_inputs(1, "import tensorflow as tf\nsteps = 100")  # not run here
    before = {*Path(tempfile.gettempdir()).glob("labkit-cell-*")}
    found = shell.run_cell(TRAINING, store_history=True).result
    assert isinstance(found, Explanation)
    assert found.exit_code == 0
    assert found.steps >= 90
    assert found.command[1] == "cell"
    assert str(tempfile.gettempdir()) not in repr(found)
    out = capfd.readouterr().out
    assert "[1]" in out
    assert "loss" in out
    assert {*Path(tempfile.gettempdir()).glob("labkit-cell-*")} <= before
    assert {one.name for one in tmp_path.iterdir()} - {"__pycache__"} == {
        "beside.py", "weights.txt"
    }  # fmt: skip


def test_an_interrupt_ends_the_program_and_shows_its_last_words(tmp_path):
    kernel = Kernel(cwd=tmp_path)
    try:
        kernel.run("import labkit")
        code = (
            "%%explain 5\nimport os, time\ntry:\n    print('process', os.getpid())\n"
            "    time.sleep(600)\nfinally:\n    print('ends')"
        )
        seen = kernel.run(code, until=r"process \d+\n")
        kernel.manager.interrupt_kernel()
        rest = kernel.rest()
        assert fault_of(rest) == "KeyboardInterrupt"
        assert "ends" in text_of(rest)
        with pytest.raises(ProcessLookupError):
            os.kill(int(text_of(seen).split()[-1]), 0)
    finally:
        kernel.close()
