"""Every benchmark keeps its promise about --quick and --json."""

import json
import math
import subprocess
import sys
from pathlib import Path

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"


def test_timing_reaches_its_targets_and_ends_with_its_table(tmp_path):
    """Also where none of its peers is installed, the promises are rows of the table."""
    written = tmp_path / "timing.json"
    done = subprocess.run(
        [sys.executable, BENCHMARKS / "timing.py", "--quick", "--json", written],
        capture_output=True, text=True, timeout=300, check=True,
    )  # fmt: skip
    assert done.stdout.count("reached") == 4, done.stdout
    rows = json.loads(written.read_text(encoding="utf-8"))["results"]
    assert len([row for row in rows if row["against"] in ("5% allowed", "95% promised")]) == 4
    assert all(row["ratio"] > 1 for row in rows)
    for row in rows:
        assert set(row) == {"what", "against", "ratio", "low", "high"}
        assert 0 < row["low"] <= row["ratio"] <= row["high"] < math.inf
    table = done.stdout.rstrip().split("\n\n")[-1].splitlines()
    assert table[0].split() == ["what", "against", "ratio", "interval"]
    assert len(table) == 1 + len(rows)
