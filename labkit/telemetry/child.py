"""The two ends that samples can come from: a process of our own, or this one.

Both are asked the same way: `receive` gives finished lines as bytes, nothing when there was nothing
in time, None when no more will come.
"""

from __future__ import annotations

import os
import select
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from labkit.kinds import LabError
from labkit.telemetry.metrics import Source
from labkit.telemetry.sampling import Sampling

__all__ = ["Child", "Inside"]

CHUNK = 1 << 16
WORDS = 600  # bytes of the last words of a sampler that died
ROUND = 1.0  # seconds between two looks at sources that may hang
HELD = 100_000  # lines that are kept while nobody takes them


class Child:
    """The sampler's process. Its own pid is all that is ever signalled."""

    def __init__(self, arguments: Sequence[str]) -> None:
        if not sys.executable:
            raise LabError(
                "Python does not know its own program here, so no sampler can be started. "
                "Start JupyterLab with `make lab` or `labkit lab`."
            )
        command = [sys.executable, "-P", "-m", "labkit.telemetry.process", *arguments]
        try:
            self._process = subprocess.Popen(
                command,
                bufsize=0,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=_environment(),
                start_new_session=True,  # so that Ctrl-C in a terminal is not meant for it
            )
        except OSError as fault:
            raise LabError(
                f"The sampler's process cannot be started: {fault}. "
                "End programs that you do not need, and try again."
            ) from fault
        self.pid = self._process.pid
        assert self._process.stdin
        assert self._process.stdout
        assert self._process.stderr
        self._asking, self._answers = self._process.stdin, self._process.stdout
        self._complaints = self._process.stderr
        os.set_blocking(self._asking.fileno(), False)
        self._poll = select.poll()
        self._poll.register(self._answers, select.POLLIN)
        self._poll.register(self._complaints, select.POLLIN)
        self._words = b""
        self._begun = b""  # a line whose end has not come yet
        self._lock = threading.RLock()  # over `_asking`: its number must not be another file's

    def receive(self, timeout: float) -> bytes | None:
        """Whole lines; empty when there were none in time; None when the process has ended."""
        for descriptor, _ in self._poll.poll(timeout * 1000):
            content = os.read(descriptor, CHUNK)
            if descriptor == self._answers.fileno():
                if not content:
                    return None
                whole, line_end, rest = (self._begun + content).rpartition(b"\n")
                self._begun = rest
                return whole + line_end
            self._words = (self._words + content)[-WORDS:]
            if not content:
                self._poll.unregister(descriptor)
        return b""

    def mark(self) -> None:
        """Ask for a look now. Never waits: who marks is at work."""
        self._ask(b"mark\n")

    def tell(self) -> None:
        """Ask for a look now, and for all that was seen until then."""
        self._ask(b"tell\n")

    def live(self) -> None:
        """Ask for looks while they are new, from now on."""
        self._ask(b"live\n")

    def each(self) -> None:
        """Ask for each look by itself, from now on."""
        self._ask(b"each\n")

    def end(self) -> None:
        """Ask it to end; `receive` gives what it still says."""
        # Said and not only shown by closing: a fork of the kernel may hold the other end open.
        self._ask(b"end\n")
        with self._lock:
            self._asking.close()

    def kill(self) -> None:
        """End it without asking."""
        with suppress(OSError):
            self._process.kill()

    def finish(self, deadline: float) -> str:
        """Wait for its end, and bring it about. How it ended, in words."""
        with self._lock:
            self._asking.close()
        try:
            self._process.wait(deadline)
        except subprocess.TimeoutExpired:
            self.kill()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(deadline)
        if not self._complaints.closed:
            self._read_last_words()
        self._answers.close()
        self._complaints.close()
        status = self._process.returncode
        said = self._words.decode(errors="replace").strip().splitlines()
        return f"exit status {status}" + (f": {said[-1]}" if said else "")

    def forget(self) -> None:
        """In a fork of the kernel: let go of the files, and leave the process to its parent."""
        self._process.returncode = 0
        for file in (self._asking, self._answers, self._complaints):
            file.close()

    def _read_last_words(self) -> None:
        os.set_blocking(self._complaints.fileno(), False)
        with suppress(OSError):
            self._words = (self._words + os.read(self._complaints.fileno(), CHUNK))[-WORDS:]

    def _ask(self, words: bytes) -> None:
        # Somebody else holds it: then a mark is on its way already, or the end is.
        if not self._lock.acquire(blocking=words != b"mark\n"):
            return
        try:
            if not self._asking.closed:
                with suppress(OSError):  # it has ended, or is stuck: `receive` notices
                    os.write(self._asking.fileno(), words)
        finally:
            self._lock.release()


class Inside:
    """Samples from sources that are objects of this process, such as a simulated one."""

    pid = None

    def __init__(self, sources: Sequence[Source], every: float, began: float, where: str) -> None:
        self._lines: deque[str] = deque(maxlen=HELD)
        self._come = threading.Event()
        self._ended = False
        self._checked = time.monotonic()
        self._sampling = Sampling(sources, every, self._put, began=began, where=where)
        self.mark = self.tell = self._sampling.look_now
        self._sampling.start()

    def receive(self, timeout: float) -> bytes | None:
        """Whole lines; empty when there were none in time; None at the end."""
        if time.monotonic() - self._checked >= ROUND:
            self._checked = time.monotonic()
            self._sampling.check()
        if not self._lines and not self._ended:
            self._come.wait(timeout)
        self._come.clear()
        taken = []
        with suppress(IndexError):
            while True:
                taken.append(self._lines.popleft())
        if not taken and self._ended:
            return None
        return "".join(f"{line}\n" for line in taken).encode()

    def live(self) -> None:
        """Looks of this process are handed over at once anyway."""

    each = live

    def end(self) -> None:
        """End the sampling; `receive` gives what it still says."""
        self._sampling.stop()
        self._ended = True
        self._come.set()

    def kill(self) -> None:
        """There is nothing to kill: a source that hangs is left alone in its thread."""

    def finish(self, _: float) -> str:
        """End it, unless that was done."""
        if not self._ended:
            self.end()
        return "ended"

    def forget(self) -> None:
        """In a fork of the kernel, threads are gone already."""

    def _put(self, lines: list[str]) -> None:
        self._lines.extend(lines)
        self._come.set()


def _environment() -> dict[str, str]:
    """That of the kernel; the sampler is of the labkit that runs now, whatever others there are."""
    home = str(Path(__file__).parents[2])
    environment = dict(os.environ)
    # Where packages are installed, Python looks by itself, and after its own library.
    if "site-packages" not in home:
        known = environment.get("PYTHONPATH")
        environment["PYTHONPATH"] = f"{home}{os.pathsep}{known}" if known else home
    return environment
