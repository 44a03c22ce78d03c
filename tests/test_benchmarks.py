"""Every benchmark keeps its promise about --quick and --json, and reaches its targets."""

import json
import math
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"
NAMES = sorted({one.stem for one in BENCHMARKS.glob("*.py")} - {"harness", "peers"})
# Against what a benchmark has a row wherever it runs.
AGAINST = {
    "timing": "95% promised",
    "simulator": "1 s allowed",
    "pipelines": "graphlib, longest path",
    "telemetry": "no panel",
    "links": "rate",
    "launch": "multiprocessing spawn",
}
NEEDS_C = sys.platform != "linux" or not (shutil.which("gcc") or shutil.which("cc"))

pytestmark = pytest.mark.stress


@pytest.mark.parametrize("name", NAMES)
def test_a_quick_run_ends_with_its_table_and_writes_it(name, tmp_path):
    """Nothing is loaded from the network here: peers that are not installed are left out."""
    if name == "collectives":
        pytest.importorskip("mpi4py")
    if name == "telemetry" and NEEDS_C:
        pytest.skip("benchmarks/telemetry.py needs Linux and a C compiler")
    written = tmp_path / "results.json"
    done = subprocess.run(
        [sys.executable, BENCHMARKS / f"{name}.py", "--quick", "--json", written],
        env={**os.environ, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": ""},
        capture_output=True, text=True, timeout=500,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    rows = json.loads(written.read_text(encoding="utf-8"))["results"]
    for row in rows:
        assert set(row) == {"what", "against", "ratio", "low", "high"}
        assert 0 < row["low"] <= row["ratio"] <= row["high"] < math.inf
    head = done.stdout.splitlines()[-1 - len(rows)]  # above them may stand what the machine lacks
    assert head.split() == ["what", "against", "ratio", "interval"], done.stdout
    assert AGAINST.get(name, rows[0]["against"]) in {row["against"] for row in rows}
    if name in ("timing", "launch"):  # by so much that no busy machine changes it
        first = [row for row in rows if "warm" in row["what"] or name == "timing"]
        assert all(row["ratio"] > 1 for row in first if "ipyp" not in row["against"])
