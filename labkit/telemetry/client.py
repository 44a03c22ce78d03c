"""The kernel's side of the sampler's process: starts it, hands its lines on, ends it.

>>> client = SamplerClient(every=0.1, take=print, where="this laptop")       # doctest: +SKIP
>>> client.start()                                                          # doctest: +SKIP
>>> client.flush(timeout=1.0)                                               # doctest: +SKIP
True
>>> client.stop()                                                           # doctest: +SKIP
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable
from contextlib import suppress

from labkit.kinds import LabError
from labkit.telemetry.format import line
from labkit.telemetry.metrics import State, Why

__all__ = ["UP_TO_NOW", "SamplerClient"]

RESTARTS = 3  # of a sampler that has ended by itself
FIRST_SAMPLE = 2.0  # seconds that start() waits for it, so that nothing is missed
APART = 0.06  # seconds between two samples that give a utilisation
UP_TO_NOW = 0.3  # seconds to wait for the samples of this moment


class SamplerClient:
    """Samples of this machine, from now on.

    `take(text)` is called in the client's own thread with whole lines of `format`. `clock` is
    time.monotonic() when time is 0. A client is for one time; its process ends with this one.
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
        """Begin, and wait for two samples: utilisation is known between two."""
        self._process = self._launch()
        self._thread.start()
        self.flush(FIRST_SAMPLE)
        time.sleep(APART)
        self.flush(UP_TO_NOW)

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
        self._ask(f"batch {samples}", standing=True)

    def watch_process(self, pid: int) -> None:
        """From now on the process memory is that of `pid`; it begins with this process."""
        self._ask(f"process {pid}", standing=True)

    def stop(self, timeout: float = 2.0) -> None:
        """End the process, after handing on what it still writes. May be called again."""
        if self.alive:
            self._stopping.set()
            self._ask("end")
            self._thread.join(timeout)
        if self.alive and self._process is not None:
            self._process.kill()
            self._thread.join(timeout)

    @property
    def alive(self) -> bool:
        """Whether samples may still come; in a fork the process is the parent's."""
        return self._owner == os.getpid() and self._thread.is_alive()

    @property
    def pid(self) -> int | None:
        """Of the sampler's process."""
        return self._process.pid if self._process is not None else None

    def _ask(self, request: str, standing: bool = False) -> None:
        if standing:
            self._standing[request.partition(" ")[0]] = request
        process = self._process
        if self._owner == os.getpid() and process is not None and process.stdin is not None:
            # It has ended or hangs: its reader notices.
            with suppress(OSError, ValueError):
                process.stdin.write(f"{request}\n".encode())

    def _launch(self, *more: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-P", "-m", "labkit.telemetry.sampler"]
        command += [f"--every={self._every!r}", f"--pid={self._owner}", f"--clock={self.clock!r}"]
        command += [f"--where={self._where}", *more]
        try:
            process = subprocess.Popen(
                command,
                bufsize=0,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                start_new_session=True,  # Ctrl-C in a terminal is not meant for it
            )
        except OSError as fault:
            raise LabError(
                f"The sampler's process cannot be started: {fault}. "
                "End programs that you do not need, and try again."
            ) from fault
        assert process.stdin is not None
        os.set_blocking(process.stdin.fileno(), False)
        return process

    # In the client's thread.

    def _work(self) -> None:
        for left in reversed(range(RESTARTS + 1)):
            process = self._process
            assert process is not None
            self._read(process)
            if self._stopping.is_set():
                break
            says = f"The sampler ended by itself (exit status {process.returncode})."
            if not left:
                for source in ("gpus", "host"):
                    self._tell(source, "silent", f"{says} Start a new panel.")
                break
            self._tell("", "note", f"{says} It was started again.")
            self._process = self._launch("--continued")
            for request in (*self._standing.values(), *["end"] * self._stopping.is_set()):
                self._ask(request)
        with self._answered:
            self._answered.notify_all()

    def _read(self, process: subprocess.Popen[bytes]) -> None:
        """Hand lines on until the process ends."""
        with process:
            assert process.stdout is not None
            begun = b""
            while chunk := os.read(process.stdout.fileno(), 1 << 16):
                whole, newline, begun = (begun + chunk).rpartition(b"\n")
                if newline:
                    self._hand_on(whole.decode(errors="replace"))

    def _hand_on(self, text: str) -> None:
        lines = text.split("\n")
        answers = [one for one in lines if one.startswith('{"flushed"')]
        if answers:
            text = "\n".join(one for one in lines if one not in answers)
        try:
            if text:
                self._take(text)
        except Exception as fault:  # noqa: BLE001 (the samples that follow may be used)
            warnings.warn(f"Some samples were not used: {fault!r}", RuntimeWarning, stacklevel=2)
        if answers:
            with self._answered:
                self._flushed = json.loads(answers[-1])["flushed"]
                self._answered.notify_all()

    def _tell(self, source: str, why: Why, says: str) -> None:
        self._hand_on(line(State(time.monotonic() - self.clock, source, "", why, says)))
