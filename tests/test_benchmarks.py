"""Every benchmark keeps its promise about --quick and --json."""

import json
import math
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"

pytestmark = pytest.mark.stress
needs_stand_in = pytest.mark.skipif(
    sys.platform != "linux" or not (shutil.which("gcc") or shutil.which("cc")),
    reason="benchmarks/telemetry.py needs Linux and a C compiler",
)


def rows_and_table(done, written):
    rows = json.loads(written.read_text(encoding="utf-8"))["results"]
    for row in rows:
        assert set(row) == {"what", "against", "ratio", "low", "high"}
        assert 0 < row["low"] <= row["ratio"] <= row["high"] < math.inf
    table = done.stdout.rstrip().split("\n\n")[-1].splitlines()
    assert table[0].split() == ["what", "against", "ratio", "interval"]
    assert len(table) == 1 + len(rows)
    return rows


def quick(name, tmp_path):
    """The rows of a benchmark's --quick run, and what it printed."""
    written = tmp_path / f"{name}.json"
    done = subprocess.run(
        [sys.executable, BENCHMARKS / f"{name}.py", "--quick", "--json", written],
        capture_output=True, text=True, timeout=400,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return rows_and_table(done, written), done.stdout


def test_timing_reaches_its_targets_and_ends_with_its_table(tmp_path):
    """Also where none of its peers is installed, the promises are rows of the table."""
    rows, printed = quick("timing", tmp_path)
    assert printed.count("reached") == 4, printed
    assert len([row for row in rows if row["against"] in ("5% allowed", "95% promised")]) == 4
    assert all(row["ratio"] > 1 for row in rows)


def test_simulator_prices_many_ranks_and_traces_few(tmp_path):
    rows, _ = quick("simulator", tmp_path)
    named = {row["what"] for row in rows}
    assert {"trace of a ring, 8 ranks, 8 elements"} <= named
    assert any("16,384 ranks" in what for what in named)


def test_collectives_compares_our_ring_with_what_is_installed(tmp_path):
    pytest.importorskip("mpi4py")
    rows, printed = quick("collectives", tmp_path)
    assert any(row["what"].startswith("ring ") and "16 MB" in row["what"] for row in rows)
    assert "at least 0.9 of the best library" in printed


def test_player_is_compared_with_matplotlib(tmp_path):
    rows, _ = quick("player", tmp_path)
    named = [row["what"] for row in rows]
    assert any(what.startswith("first picture") for what in named)
    assert any(what.startswith("size") for what in named)


@needs_stand_in
def test_telemetry_compares_what_is_there_and_ends_with_its_table(tmp_path):
    """Nothing is loaded from the network here: peers that are not installed are left out."""
    written = tmp_path / "telemetry.json"
    done = subprocess.run(
        [sys.executable, BENCHMARKS / "telemetry.py", "--quick", "--json", written],
        env={**os.environ, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": ""},
        capture_output=True, text=True, timeout=500,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    against = {row["against"] for row in rows_and_table(done, written)}
    assert "no panel" in against
    if "are left out" not in done.stdout:
        assert {"nvitop, statistics", "nvitop, each result kept", "gpustat"} <= against
    assert "a tenth of the cheapest that keeps a history of readings" in done.stdout
    assert {"between looks"} <= against
    assert "messages to the front end" in done.stdout


def test_launch_is_the_quickest_to_start_processes(tmp_path):
    rows, printed = quick("launch", tmp_path)
    assert "round 1: labkit" in printed
    found = {(row["what"], row["against"]) for row in rows}
    for until in ("first line", "first sum"):
        for when in ("cold", "warm"):
            assert (f"{until}, {when}", "multiprocessing spawn") in found
    # Several times as quick, so that no busy machine makes this another answer.
    assert all(
        row["ratio"] > 1 for row in rows if "warm" in row["what"] and "ipyp" not in row["against"]
    )
