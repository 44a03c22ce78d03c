"""A wrong answer of lecture 60 is refused; its programs run, and ranks end with equal weights."""

import json
import re
from pathlib import Path

import pytest

from tests.cluster.test_frameworks import TIMEOUT, cluster

ROOT = Path(__file__).parents[2]
PROGRAMS = ROOT / "notebooks" / "programs"


@pytest.mark.parametrize(
    ("program", "arguments"),
    [("60_mnist_keras.py", ["--epochs", 1, "--images", 1000]),
     ("60_cifar100_tape.py", ["--updates", 8])],
)  # fmt: skip
def test_the_corrected_programs_leave_equal_weights_on_all_ranks(program, arguments):
    with cluster("horovod", 2) as c:
        outputs = c.run_script(PROGRAMS / program, *arguments, timeout=TIMEOUT, show=False)
    assert re.search("weights are equal on all ranks: True", outputs[0])
    assert "equal" not in outputs[1]


def test_the_page_of_reference_shows_the_bytes_and_speeds_that_were_recorded():
    page = (ROOT / "docs" / "horovod.md").read_text(encoding="utf-8")
    for name in ("60_bytes", "60_against_native"):
        recording = json.loads((PROGRAMS / "recordings" / f"{name}.json").read_text())
        lines = [line for run in recording["value"]["runs"] for line in run["lines"]]
        for text in (line["text"] for line in lines if line["rank"] == 0 and line["text"]):
            shown = f"{int(text.split()[1]):,}" if text[0].isdigit() else text
            assert shown in page
