"""The kernel's side of the sampler's process: starts it, hands its lines on, ends it.

>>> client = SamplerClient(print, every=0.1)                                # doctest: +SKIP
>>> client.start()                                                          # doctest: +SKIP
>>> client.flush(timeout=1.0)                                               # doctest: +SKIP
True
>>> client.stop()                                                           # doctest: +SKIP
"""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime

from labkit.arguments import number
from labkit.hardware import machine_text
from labkit.telemetry.format import Header, line
from labkit.telemetry.metrics import DeviceState
from labkit.time_limit import slowdown

FIRST_SAMPLE = (
    2.0  # seconds that start() waits for it on an idle machine, so that it misses nothing
)
APART = 0.06  # seconds between two samples that give a utilisation
UP_TO_NOW = 0.3  # seconds to wait for the samples of this moment


def interval(every: float) -> float:
    """Returns the checked number of seconds between two samples."""
    return number("every", every, at_least=0.02, at_most=60)


class SamplerClient:
    """Samples of this machine, from now on.

    `take(text)` is called in the client's own thread with whole lines of `format`. A client cannot
    be started again. Its process ends with this process.
    """

    def __init__(self, take: Callable[[str], object], every: float = 0.1, title: str = "") -> None:
        when = datetime.now().astimezone().isoformat(timespec="seconds")
        self.header = Header(machine_text(), when, every, time.monotonic(), title)
        self._take = take
        self._stopping = threading.Event()
        self._answered = threading.Condition()
        self._asked = self._flushed = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread(target=self._read, name="labkit sampler", daemon=True)

    def start(self) -> None:
        """Begin, and wait for two samples: utilisation is known between two."""
        self._take(line(self.header))  # however late the process: spans look into it for the clock
        self._process = subprocess.Popen(
            [
                *(sys.executable, "-P", "-m", "labkit.telemetry.sampler"),
                *("--pid", str(os.getpid())),
                *("--every", str(self.header.every), "--clock", str(self.header.clock)),
            ],
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C in a terminal is not meant for it
        )
        assert self._process.stdin is not None
        os.set_blocking(self._process.stdin.fileno(), False)
        self._thread.start()
        self.flush(FIRST_SAMPLE * slowdown())
        time.sleep(APART)
        self.flush(UP_TO_NOW)

    def sample(self) -> None:
        """Sample now. The rows come with the next batch. Training calls this, so it never waits."""
        self._ask("sample")

    def flush(self, timeout: float) -> bool:
        """Sample now, and wait until `take` has everything up to now. Returns whether it has."""
        with self._answered:
            self._asked += 1
            number = self._asked
        self._ask(f"flush {number}")
        with self._answered:
            self._answered.wait_for(lambda: self._flushed >= number or not self.alive, timeout)
            return self._flushed >= number

    def show(self) -> None:
        """Send samples twice a second from now on, because a page shows them."""
        self._ask("show")

    def watch_process(self, pid: int) -> None:
        """Sample the process memory of `pid` from now on, in place of this process's."""
        self._ask(f"process {pid}")

    def stop(self, timeout: float = 2.0) -> None:
        """End the process after handing on what it still writes. A second call does nothing."""
        if self.alive:
            self._stopping.set()
            self._ask("end")
            self._thread.join(timeout)
        if self.alive and self._process is not None:
            self._process.kill()
            self._thread.join(timeout)

    @property
    def alive(self) -> bool:
        """Whether samples may still come."""
        return self._thread.is_alive()

    @property
    def pid(self) -> int | None:
        """The pid of the sampler's process."""
        return self._process.pid if self._process is not None else None

    def _ask(self, request: str) -> None:
        process = self._process
        if process is not None and process.stdin is not None:
            # It has ended or hangs: its reader notices.
            with suppress(OSError, ValueError):
                process.stdin.write(f"{request}\n".encode())

    # In the client's thread.

    def _read(self) -> None:
        """Hand lines on until the process ends."""
        process = self._process
        assert process is not None
        with process:
            assert process.stdout is not None
            begun = b""
            while chunk := os.read(process.stdout.fileno(), 1 << 16):
                whole, newline, begun = (begun + chunk).rpartition(b"\n")
                if newline:
                    self._hand_on(whole.decode(errors="replace"))
        if not self._stopping.is_set():
            now = time.monotonic() - self.header.clock
            says = f"The sampler ended by itself (exit status {process.returncode}). "
            for source in ("gpus", "host"):
                state = DeviceState(now, source, "", "silent", f"{says}Start a new panel.")
                self._hand_on(line(state))
        with self._answered:
            self._answered.notify_all()

    def _hand_on(self, text: str) -> None:
        lines = text.split("\n")
        answers = [line for line in lines if line.startswith('{"flushed"')]
        if answers:
            text = "\n".join(line for line in lines if line not in answers)
        if text:
            self._take(text)
        if answers:
            with self._answered:
                self._flushed = json.loads(answers[-1])["flushed"]
                self._answered.notify_all()
