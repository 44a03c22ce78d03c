"""A wrong answer of lecture 23 is refused; its programs run, and ranks end with equal weights."""

import re
from pathlib import Path

import pytest

from tests.cluster.test_frameworks import TIMEOUT, cluster
from tests.exercises.cells import changed, refused

PROGRAMS = Path(__file__).parents[2] / "notebooks" / "programs"


@pytest.mark.parametrize(
    ("task", "old", "new", "words"),
    [
        ("checksum", "weights.tobytes()", "np.sort(weights).tobytes()", ["the order of two"]),
        ("checksum", "zlib.crc32(weights.tobytes())", "weights.sum()", ["last bit of one value"]),
        ("checksum", "zlib.crc32(weights.tobytes())", "hash(weights.tobytes())", ["zlib.crc32"]),
        ("checksum", "np.array([checksum, -checksum])", "np.tile([checksum, -checksum], 500)",
         ["correct", "bytes"]),
        ("step", "    tape = hvd.DistributedGradientTape(tape)\n", "", ["different weights"]),
        ("step", "(tape)", "(tape, op=hvd.Sum)", ["not those of one process", "not the sum"]),
        ("step", "from_logits=True", "", ["it needs from_logits=True"]),
        ("start", "model.variables", "model.trainable_variables", ["moving mean"]),
        ("start", "optimizer.variables, root_rank=0", "optimizer.variables, root_rank=1",
         ["updates"]),
        ("start", "    optimizer.build(model.trainable_variables)\n", "", ["no momentum"]),
    ],
)  # fmt: skip
def test_a_wrong_answer_is_refused_with_what_is_wrong(task, old, new, words):
    refused(f"23.{task}", changed(f"23.{task}", old, new), *words)


@pytest.mark.parametrize(
    ("program", "arguments"),
    [("23_mnist_keras.py", ["--epochs", 1, "--images", 1000]),
     ("23_cifar100_tape.py", ["--updates", 8])],
)  # fmt: skip
def test_the_corrected_programs_leave_equal_weights_on_all_ranks(program, arguments):
    with cluster("horovod", 2) as c:
        outputs = c.run_script(PROGRAMS / program, *arguments, timeout=TIMEOUT, show=False)
    assert re.search("weights are equal on all ranks: True", outputs[0])
    assert "equal" not in outputs[1]
