"""A stand-in for NVIDIA's library, built from C, and what a test can change in it.

    folder = built(tmp_path)                      # libnvidia-ml.so.1
    environment = {"LD_LIBRARY_PATH": str(folder), "NVML_SCENE": "eight"}

The real nvidia-ml-py finds it there. The scene "eight": eight GPUs that train, all metrics move.
`Control` changes faults while a process uses the library:

    control = Control(tmp_path / "control")       # environment["NVML_CONTROL"] = str(control.path)
    control.fault("power", 999, gpu=1)

`Apart` runs labkit's source of telemetry on it, in a process of its own and by the test's clock.
"""

from __future__ import annotations

import json
import math
import mmap
import os
import pickle
import shutil
import struct
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, NamedTuple

import pytest

SOURCE = Path(__file__).parent / "hardware" / "nvml_stand_in.c"
ROOT = Path(__file__).parent.parent

GPUS = 8
# In the order of nvml_stand_in.c.
CALLS = (
    "anything", "fields", "memory", "utilisation", "power", "energy", "temperature", "clock",
    "gpm", "field power", "gpm sm",
)  # fmt: skip
# The columns of the source.
METRICS = (
    "utilisation", "sm_activity", "memory_activity", "memory", "power",
    "temperature", "clock", "energy",
)  # fmt: skip
_CODE_AT = 8
_CALLED_AT = _CODE_AT + 4 * GPUS * len(CALLS)
_SIZE = _CALLED_AT + 8 * GPUS * len(CALLS)


def built(folder: Path) -> Path:
    """Compile the library into the folder, which LD_LIBRARY_PATH must then name."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler (gcc), so the stand-in for NVIDIA's library cannot be built")
    folder.mkdir(parents=True, exist_ok=True)
    library = folder / "libnvidia-ml.so.1"
    flags = ["-O2", "-shared", "-fPIC", "-Wall", "-Werror"]
    command = [compiler, *flags, "-o", library, SOURCE, "-lm"]
    subprocess.run(command, check=True, timeout=300)
    return folder


class Control:
    """A file that the library maps: its time and faults, for all processes that use it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.write_bytes(bytes(_SIZE))
        with path.open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), _SIZE)
        self.at(math.nan)  # until then the machine's clock

    def heal(self) -> None:
        """No faults any more."""
        self._memory[_CODE_AT:_CALLED_AT] = bytes(_CALLED_AT - _CODE_AT)

    def at(self, seconds: float) -> None:
        """What the library takes for the time."""
        struct.pack_into("<d", self._memory, 0, seconds)

    def fault(self, call: str, code: int, gpu: int | None = None) -> None:
        """From now on the call answers with NVML's error code; 0: as the scene has it."""
        for number in range(GPUS) if gpu is None else (gpu,):
            at = _CODE_AT + 4 * (GPUS * CALLS.index(call) + number)
            struct.pack_into("<i", self._memory, at, code)

    def called(self, call: str, gpu: int = 0) -> int:
        """How often the call was made."""
        at = _CALLED_AT + 8 * (GPUS * CALLS.index(call) + gpu)
        return int(struct.unpack_from("<q", self._memory, at)[0])


# Which process finds which library is settled when it starts, so the source runs in one of its own.
_PROGRAM = """
import pickle, sys
from pathlib import Path
from labkit.telemetry.amd import AmdGpus
from labkit.telemetry.nvidia import NvidiaGpus
now = 0.0
for line in sys.stdin:
    what, now = line.split()
    now = float(now)
    if what == "open":
        gpus = NvidiaGpus(clock=lambda: now)
        if sys.argv[1:]:
            gpus = AmdGpus(gpus, Path(sys.argv[1]))
    what, *edge = what.split(":")
    pickle.dump(getattr(gpus, what)(*edge), sys.stdout.buffer)
    sys.stdout.buffer.flush()
"""


class Row(NamedTuple):
    """One sample of all GPUs: for each the numbers in the order of METRICS."""

    time: float
    values: list[list[float | None]]


class Apart:
    """labkit's `NvidiaGpus` in a process of its own in which the driver shows a scene."""

    def __init__(
        self, folder: Path, control: Control, scene: str = "eight", *, amd: Path | None = None
    ) -> None:
        """`amd`: a folder whose /sys shows AMD's GPUs."""
        seen = {"LD_LIBRARY_PATH": str(folder), "NVML_SCENE": scene, "PYTHONPATH": str(ROOT)}
        self.control = control
        self.now = 1000.0
        control.at(self.now)
        self._process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM, *([amd] if amd else [])],
            env={**os.environ, **seen, "NVML_CONTROL": str(control.path)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def open(self) -> Any:
        """The devices and the first states."""
        return self._ask("open")

    def sample(self, later: float = 0.1, *, edge: bool = False) -> None:
        """The next sample, so many seconds later."""
        self.now += later
        self.control.at(self.now)
        self._ask("sample:edge" if edge else "sample")

    def take(self) -> Any:
        """The rows of all samples since the last time, and the states."""
        rows, states = self._ask("take")
        return [Row(time, json.loads(f"[{values}]")) for time, values in rows], states

    def samples(
        self, count: int, later: float = 0.1
    ) -> tuple[list[list[dict[str, Any]]], list[Any]]:
        """So many samples, each taken at once: their rows by device and metric, and the states."""
        rows, states = [], []
        for _ in range(count):
            self.sample(later)
            ((row,), new) = self.take()
            states.extend(new)
            rows.append([dict(zip(METRICS, values, strict=True)) for values in row.values])
        return rows, states

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.communicate()

    def _ask(self, what: str) -> Any:
        watchdog = threading.Timer(30, self._process.kill)
        watchdog.start()
        try:
            assert self._process.stdin
            assert self._process.stdout
            self._process.stdin.write(f"{what} {self.now!r}\n".encode())
            self._process.stdin.flush()
            answer = pickle.load(self._process.stdout)
        finally:
            watchdog.cancel()
        return answer
