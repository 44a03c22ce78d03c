"""`labkit record -- python train.py` and `labkit replay FILE`."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from labkit.hardware import machine_text
from labkit.kinds import LabError, bytes_text, seconds_text
from labkit.telemetry.child import Child
from labkit.telemetry.lines import Header, Span, span_line
from labkit.telemetry.parsing import Damage, header_of, parse
from labkit.telemetry.program import held
from labkit.telemetry.record_file import claim
from labkit.telemetry.spans import SPANS_TO, tidy

__all__ = ["record", "replay"]

_START, _END = 15.0, 5.0  # seconds that the sampler has to begin and to finish
_NAME_LENGTH = 60


def record(program: list[str], to: Path | None = None, every: float = 0.1) -> int:
    """Run a program, watch the devices meanwhile, and give back the program's exit code.

    What it prints is the program's own; what is said here goes to standard error.
    """
    if not program:
        raise LabError("There is nothing to run. Write: labkit record -- python train.py")
    if not 0.01 <= every <= 60:
        raise LabError(f"{every:g} s between two looks cannot be had: give 0.01 to 60 seconds.")
    found = shutil.which(program[0])
    if found is None:
        raise LabError(
            f"There is no program {program[0]!r} here. Write it as you would without "
            "`labkit record`, after two dashes: labkit record -- python train.py"
        )
    file = Path(time.strftime("recording-%Y%m%d-%H%M%S.jsonl")) if to is None else to
    out = claim(file)
    # Its spans go where the file is now, wherever the program goes.
    environment = {**os.environ, SPANS_TO: str(file.resolve())}
    try:
        # It waits to be let go, so that nothing of it happens before the first looks.
        with held(program, found, environment) as running:
            try:
                sampler = _Sampler(file, every, running.pid)
            except BaseException:
                with suppress(OSError):
                    file.unlink()
                raise
            began = time.monotonic()
            running.go()
            code = running.wait()
            try:
                _finish(sampler, out, Span(_name(program), began, time.monotonic()))
                _say(file, out)
            except Exception as fault:  # noqa: BLE001 (the program has run: its exit code counts)
                _print(f"labkit record: {fault if isinstance(fault, LabError) else repr(fault)}")
    finally:
        os.close(out)
    # A shell says 128 + the signal for a program that a signal has ended.
    return 128 - code if code < 0 else code


def replay(file: Path, html: Path | None = None, *, show: bool = True) -> int:
    """Print the table, write the page, open it where there is a browser."""
    from labkit.telemetry.reading_files import read
    from labkit.views.panel_page import document

    if html is not None and _same(html, file):
        raise LabError(
            f"{html} is the recording itself, and the page would take its place. "
            f"Choose another name: --html {shlex.quote(file.stem + '.html')}"
        )
    recording = read(file)
    page = document(recording.html(), f"{file.name}: {recording.stamp}")
    target = html or Path(tempfile.mkdtemp(prefix="labkit-replay-")) / f"{file.stem}.html"
    try:
        # Names in it may have letters that no file can hold.
        target.write_bytes(page.encode(errors="replace"))
    except OSError as fault:
        raise LabError(
            f"The page cannot be written to {target}: {fault.strerror}. "
            "Choose a folder that exists and is yours."
        ) from fault
    # Only now: whoever reads this may stop reading, as in `labkit replay FILE | head`.
    print(recording.table())
    opened = show and _opened(target)
    print(f"{'It is open in your browser' if opened else 'Open it in a browser'}: {target}")
    return 0


def _same(one: Path, other: Path) -> bool:
    """Whether both lead to one file, by whatever name or link."""
    try:
        return one.samefile(other)
    except OSError:
        return False


class _Sampler:
    """The sampler's process, which writes to the file; and when it has looked at each source."""

    def __init__(self, file: Path, every: float, pid: int) -> None:
        self._header: Header | None = None
        self._newest: dict[int, float] = {}  # of each source
        self._begun = b""  # a line whose end has not come yet
        arguments = ["--every", str(every), "--pid", str(pid), "--to", str(file.resolve())]
        self._process = Child([*arguments, f"--where={machine_text()}"])
        self._lines = file.open("rb")
        try:
            self._begin()
        except BaseException:
            self._process.finish(_END)
            self._lines.close()
            raise

    def look(self, deadline: float) -> None:
        """A look at every source, now. Not waited for beyond the deadline: one may be silent."""
        moment = round(time.monotonic() - self.clock, 4)
        self._process.tell()
        self._until(lambda: all(seen >= moment for seen in self._newest.values()), deadline)

    def end(self) -> str | None:
        """Look once more, and end. What went wrong, if anything did."""
        from labkit.telemetry.watch import CATCH_UP

        self._lines.seek(0, os.SEEK_END)
        self._begun = b""
        self.look(CATCH_UP)
        self._lines.close()
        how = self._process.finish(_END)
        return None if how == "exit status 0" else f"The sampler ended with {how}."

    def _begin(self) -> None:
        """Two looks: utilisation is known between looks, and the program may begin at once."""
        # While the process starts, there is time to load this.
        from labkit.telemetry.watch import APART, FIRST_LOOK

        self._until(lambda: self._header is not None, _START)
        if self._header is None:
            raise LabError(
                f"The devices cannot be watched: the sampler gave no answer and ended with "
                f"{self._process.finish(_END)}. The program was not started; without "
                "`labkit record` it will run."
            )
        self.clock = self._header.clock
        until = time.monotonic() + FIRST_LOOK
        self._until(lambda: bool(self._newest), FIRST_LOOK)
        later = self.clock + max(self._newest.values(), default=0.0) + APART
        self._until(lambda: time.monotonic() >= later, APART)
        self.look(until - time.monotonic())

    def _until(self, condition: Callable[[], bool], deadline: float) -> None:
        """Follow the file until then, or the deadline, or the end of the process."""
        until = time.monotonic() + deadline
        self._follow()
        while not condition() and time.monotonic() < until:
            if self._process.receive(0.01) is None:
                return
            self._follow()

    def _follow(self) -> None:
        whole, _, self._begun = (self._begun + self._lines.read()).rpartition(b"\n")
        for line in whole.split(b"\n"):
            # The program may write to the file as well; what it holds is judged when it is read.
            with suppress(Damage, IndexError, TypeError):
                said = parse(line)
                if self._header is None:
                    self._header = header_of(said)
                elif (
                    isinstance(said, list) and said[2:]
                ):  # there are devices: it is looked at again
                    self._newest[said[0]] = float(said[1])


def _finish(sampler: _Sampler, out: int, span: Span) -> None:
    """The program as a span, its last moment looked at, then the sampler's own last line."""
    assert span.end is not None
    placed = Span(span.name, span.start - sampler.clock, span.end - sampler.clock)
    try:
        os.write(out, (span_line(placed) + "\n").encode())
    except OSError as fault:
        _print(f"labkit record: the recording could not be finished: {fault.strerror}.")
    finally:
        said = sampler.end()
    if said is not None:
        _print(f"labkit record: {said}")


def _name(program: list[str]) -> str:
    name = tidy(shlex.join([Path(program[0]).name, *program[1:]]))
    return name if len(name) <= _NAME_LENGTH else name[: _NAME_LENGTH - 1] + "…"


def _say(file: Path, out: int) -> None:
    from labkit.telemetry.reading_files import read

    try:
        ours = os.path.samestat(os.fstat(out), file.stat())
    except OSError:
        ours = False
    if not ours:
        raise LabError(
            f"{file} was removed or replaced while the program ran, so there is no recording. "
            "Record again, with a name that the program leaves alone."
        )
    recording = read(file)
    _print(f"\n{recording.table()}")
    _print(
        f"Recorded {seconds_text(recording.seconds)} in {file} "
        f"({bytes_text(file.stat().st_size)}). See it with: labkit replay {shlex.quote(str(file))}"
    )


def _print(text: str) -> None:
    """To standard error. That nobody listens there is no reason to lose the exit code."""
    if sys.stderr is None:
        return
    try:
        print(text, file=sys.stderr, flush=True)
    except OSError:
        # What could not be written would be tried again at the end, and change the exit code.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stderr.fileno())
        os.close(nowhere)


def _opened(page: Path) -> bool:
    """Whether a browser has opened it. Without a display there is none, but for those in a text
    terminal, which cannot show it.
    """
    import webbrowser

    if sys.platform.startswith("linux"):
        if not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
            return False
    try:
        return webbrowser.open(page.resolve().as_uri())
    except webbrowser.Error:
        return False
