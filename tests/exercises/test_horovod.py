"""A wrong answer of lecture 23 is refused; its programs run, and ranks end with equal weights."""

import os
import re
from pathlib import Path

import pytest

import labkit
from labkit import environments
from labkit.exercises import tasks
from tests.exercises.cells import value

PROGRAMS = Path(__file__).parents[2] / "notebooks" / "programs"
needs_horovod = pytest.mark.skipif(
    not environments.find("horovod").stamp and os.environ.get("LABKIT_REQUIRE_ENVIRONMENTS") != "1",
    reason="labkit env build horovod",
)


def changed(task, old, new):
    solution = tasks()[f"23.{task}"].solution.strip() + "\n"
    assert old in solution
    return tasks()[f"23.{task}"].check(value(solution.replace(old, new)))


@pytest.mark.parametrize(
    ("task", "old", "new", "words"),
    [
        ("checksum", "zlib.crc32(weights.tobytes())", "weights.sum()", ["exchanged"]),
        ("checksum", "zlib.crc32(weights.tobytes())", "weights[0]", ["1e-12", "returned True"]),
        ("checksum", "zlib.crc32(weights.tobytes())", "hash(weights.tobytes())", ["zlib.crc32"]),
        ("checksum", "bool(both[0] == -both[1])", "both", ["not True or False"]),
        ("checksum", "np.array([checksum, -checksum])", "np.tile([checksum, -checksum], 500)",
         ["correct", "bytes"]),
        ("fusion", "dtype != last or ", "", ["returned"]),
        ("fusion", "used + size > threshold", "used > threshold", ["returned"]),
        ("warm_up", "ranks - 1", "ranks", ["returned"]),
        ("steps", "images // ranks // batch", "-(-images // ranks // -batch)", ["returned"]),
    ],
)  # fmt: skip
def test_a_wrong_answer_is_refused_with_what_is_wrong(task, old, new, words):
    outcome = changed(task, old, new)
    assert outcome.state == "wrong"
    assert [word for word in words if word not in outcome.text] == [], outcome.text


@needs_horovod
@pytest.mark.parametrize(
    ("task", "old", "new", "words"),
    [
        ("step", "    tape = hvd.DistributedGradientTape(tape)\n", "", ["different weights"]),
        ("step", "(tape)", "(tape, op=hvd.Sum)", ["not those of one process", "not the sum"]),
        ("step", "from_logits=True", "", ["it needs from_logits=True"]),
        ("start", "model.variables", "model.trainable_variables", ["moving mean"]),
        (
            "start",
            "optimizer.variables, root_rank=0",
            "optimizer.variables, root_rank=1",
            ["updates"],
        ),
        ("start", "    optimizer.build(model.trainable_variables)\n", "", ["no momentum"]),
    ],
)
def test_a_wrong_step_on_real_ranks_is_refused(task, old, new, words):
    outcome = changed(task, old, new)
    assert outcome.state == "wrong"
    assert [word for word in words if word not in outcome.text] == [], outcome.text


@needs_horovod
@pytest.mark.parametrize(
    ("program", "arguments"),
    [("23_mnist_keras.py", ["--epochs", 1, "--images", 4000]),
     ("23_cifar100_tape.py", ["--updates", 40])],
)  # fmt: skip
def test_the_corrected_programs_leave_equal_weights_on_all_ranks(program, arguments):
    with labkit.cluster(ranks=2, environment="horovod", start=180) as c:
        outputs = c.run_script(PROGRAMS / program, *arguments, timeout=150, show=False)
    assert re.search("weights are equal on all ranks: True", outputs[0])
    assert "equal" not in outputs[1]
