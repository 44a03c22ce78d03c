"""The kernel's side of the sampler's process: starts it, hands its lines on, ends it.

>>> client = SamplerClient(every=0.1, take=print, where="this laptop")       # doctest: +SKIP
>>> client.start()                                                          # doctest: +SKIP
>>> client.flush(timeout=1.0)                                               # doctest: +SKIP
True
>>> client.stop()                                                           # doctest: +SKIP
"""

from __future__ import annotations

import os
import select
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import IO

from labkit.kinds import LabError
from labkit.telemetry.format import state_line
from labkit.telemetry.metrics import State, Why

__all__ = ["SamplerClient"]

PAUSES = (0.1, 1.0, 3.0)  # seconds before each restart of a sampler that has ended by itself
STARTING = 60.0  # seconds until its first line: Python starts slowly on a busy network disk
SILENT = 15.0  # seconds without a line (it writes one every 5 s at least): it hangs
_CHUNK = 1 << 16


class SamplerClient:
    """Samples of this machine, from now on.

    `take(text)` is called in the client's own thread with whole lines of `labkit.telemetry.format`;
    a text without "{" has nothing but rows. `clock` is time.monotonic() when time is 0. A client
    is for one time. Its process is ended by its pid, and ends by itself with this one.
    """

    def __init__(
        self, every: float, take: Callable[[str], object], where: str, clock: float | None = None
    ) -> None:
        self.clock = time.monotonic() if clock is None else clock
        self._every, self._take, self._where = every, take, where
        self._owner = os.getpid()
        self._stopping = threading.Event()
        self._answered = threading.Condition()
        self._asked = self._flushed = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._standing: dict[str, str] = {}  # requests that hold for a restarted sampler, too
        self._thread = threading.Thread(target=self._work, name="labkit sampler", daemon=True)

    def start(self) -> None:
        """Begin; comes back at once."""
        self._launch(continued=False)
        self._thread.start()

    def sample(self) -> None:
        """Sample now; the rows come with the next batch. Never waits: it is called by training."""
        self._ask("sample")

    def flush(self, timeout: float) -> bool:
        """Sample now, and wait until `take` has got everything up to now; not for ever."""
        with self._answered:
            self._asked += 1
            number = self._asked
        self._ask(f"flush {number}")
        with self._answered:
            self._answered.wait_for(lambda: self._flushed >= number or not self.alive, timeout)
            return self._flushed >= number

    def batch(self, samples: int) -> None:
        """So many samples in one text from now on: few where a page shows them."""
        self._standing["batch"] = f"batch {samples}"
        self._ask(self._standing["batch"])

    def watch_process(self, pid: int) -> None:
        """From now on the process memory is that of `pid`; it begins with this process."""
        self._standing["process"] = f"process {pid}"
        self._ask(self._standing["process"])

    def stop(self, timeout: float = 2.0) -> None:
        """End the process, after handing on what it still writes. May be called again."""
        if self._owner != os.getpid():
            return  # in a fork: the process is the parent's
        self._stopping.set()
        self._ask("end")
        if self._thread is threading.current_thread() or not self._thread.is_alive():
            return
        self._thread.join(timeout)
        if self._thread.is_alive() and self._process is not None:
            self._process.kill()
            self._thread.join(timeout)

    @property
    def alive(self) -> bool:
        """Whether samples may still come."""
        return self._owner == os.getpid() and self._thread.is_alive()

    @property
    def pid(self) -> int | None:
        """Of the sampler's process."""
        return self._process.pid if self._process is not None else None

    def _ask(self, request: str) -> None:
        process = self._process
        if self._owner == os.getpid() and process is not None and process.stdin is not None:
            # It has ended or hangs: its reader notices.
            with suppress(OSError, ValueError):
                process.stdin.write(f"{request}\n".encode())

    def _launch(self, *, continued: bool) -> None:
        command = [sys.executable, "-P", "-m", "labkit.telemetry.sampler"]
        command += [f"--every={self._every!r}", f"--pid={self._owner}", f"--clock={self.clock!r}"]
        command += [f"--where={self._where}", *["--continued"] * continued]
        self._complaints: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 (closed by _finish)
        try:
            process = subprocess.Popen(
                command,
                bufsize=0,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._complaints,
                env=_environment(),
                start_new_session=True,  # Ctrl-C in a terminal is not meant for it
            )
        except OSError as fault:
            self._complaints.close()
            raise LabError(
                f"The sampler's process cannot be started: {fault}. "
                "End programs that you do not need, and try again."
            ) from fault
        assert process.stdin is not None
        os.set_blocking(process.stdin.fileno(), False)
        self._process = process
        for request in self._standing.values():
            self._ask(request)

    # In the client's thread.

    def _work(self) -> None:
        for pause in (*PAUSES, None):
            assert self._process is not None
            self._read(self._process)
            how = self._finish(self._process)
            if self._stopping.is_set():
                break
            if pause is None:
                says = f"The sampler ended by itself again ({how}). Start a new panel."
                self._tell("gpus", "silent", says)
                self._tell("host", "silent", says)
                break
            self._tell("", "note", f"The sampler ended by itself ({how}) and was started again.")
            if self._stopping.wait(pause):
                break
            try:
                self._launch(continued=True)
            except LabError as fault:
                self._tell("host", "silent", str(fault))
                break
            if self._stopping.is_set():
                self._ask("end")  # stop() has asked the one before it
        with self._answered:
            self._answered.notify_all()

    def _read(self, process: subprocess.Popen[bytes]) -> None:
        """Hand lines on until the process ends; one that hangs is ended."""
        assert process.stdout is not None
        output = process.stdout.fileno()
        poll = select.poll()
        poll.register(output, select.POLLIN)
        begun, patience = b"", STARTING
        while True:
            if not poll.poll(1000 * patience):
                process.kill()
            chunk = os.read(output, _CHUNK)
            if not chunk:
                return
            whole, newline, begun = (begun + chunk).rpartition(b"\n")
            if newline:
                self._hand_on(whole.decode(errors="replace"))
                patience = SILENT

    def _hand_on(self, text: str) -> None:
        answers = []
        if '{"flushed"' in text:
            lines = text.split("\n")
            answers = [line for line in lines if line.startswith('{"flushed"')]
            text = "\n".join(line for line in lines if not line.startswith('{"flushed"'))
        if text:
            try:
                self._take(text)
            except Exception as fault:  # noqa: BLE001 (the samples that follow may be used)
                warnings.warn(
                    f"Some samples were not used: {fault!r}", RuntimeWarning, stacklevel=2
                )
        if answers:
            with self._answered:
                self._flushed = int(answers[-1].partition(":")[2].rstrip("} "))
                self._answered.notify_all()

    def _finish(self, process: subprocess.Popen[bytes]) -> str:
        """Wait for the end of the process, or bring it about. How it ended, in words."""
        try:
            process.wait(1.0)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()
        with self._complaints as complaints:
            complaints.seek(0)
            said = complaints.read().decode(errors="replace").strip().splitlines()
        return f"exit status {process.returncode}" + (f": {said[-1]}" if said else "")

    def _tell(self, source: str, why: Why, says: str) -> None:
        self._hand_on(state_line(State(time.monotonic(), source, "", why, says), self.clock))


def _environment() -> dict[str, str]:
    """That of the kernel; the sampler is of the labkit that runs now, whatever others there are."""
    home = str(Path(__file__).parents[2])
    environment = dict(os.environ)
    if "site-packages" not in home:
        known = environment.get("PYTHONPATH")
        environment["PYTHONPATH"] = f"{home}{os.pathsep}{known}" if known else home
    return environment
