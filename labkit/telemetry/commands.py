"""`labkit record -- python train.py` and `labkit replay FILE`."""

import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from labkit.kinds import LabError, bytes_text, seconds_text
from labkit.plain import write_text
from labkit.telemetry.client import UP_TO_NOW, SamplerClient, interval
from labkit.telemetry.format import Span, line
from labkit.telemetry.recording import read
from labkit.telemetry.spans import SPANS_TO, one_line

_NAME_LENGTH = 60


def record(program: list[str], to: Path | None = None, every: float = 0.1) -> int:
    """Run a program and sample the devices meanwhile. Returns the program's exit code.

    Standard output is the program's alone: labkit writes to standard error.
    """
    if not program:
        raise LabError("There is no program to run. Write: labkit record -- python train.py")
    name = one_line(shlex.join([Path(program[0]).name, *program[1:]]))[:_NAME_LENGTH]
    file = Path(time.strftime("recording-%Y%m%d-%H%M%S.jsonl")) if to is None else to

    faults: list[str] = []

    def write(text: str) -> None:
        try:
            os.write(out, f"{text}\n".encode())
        except OSError as fault:  # a full disk ends the recording, not the program
            faults.append(f"{str(file)!r} is not whole: {fault.strerror}.")

    client = SamplerClient(write, interval(every), title=name)
    clock = client.header.clock
    try:
        out = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o644)
    except OSError as fault:
        raise LabError(
            f"{str(file)!r} cannot be written: {fault.strerror}. A recording never replaces a "
            "file: give the name of a new one, in a folder that is yours."
        ) from fault
    try:
        client.start()
        began = time.monotonic()
        code = _run(program, {**os.environ, SPANS_TO: str(file.resolve())}, client)
        write(line(Span(name, began - clock, time.monotonic() - clock)))
        client.flush(UP_TO_NOW)
    except LabError:
        file.unlink(missing_ok=True)  # nothing has run
        raise
    finally:
        client.stop()
        os.close(out)
    try:
        recording = read(file)
        said = (
            f"\n{recording.table()}\nRecorded {seconds_text(recording.seconds)} in {file} "
            f"({bytes_text(file.stat().st_size)}). See it with: "
            f"labkit replay {shlex.quote(str(file))}"
        )
    except LabError as fault:  # the program has removed it, say: the exit code is still its own
        said = str(fault)
    print("\n".join([said, *faults[:1]]), file=sys.stderr)
    # A shell says 128 + the signal for a program that a signal has ended.
    return 128 - code if code < 0 else code


def replay(file: Path, html: Path | None = None, *, show: bool = True) -> int:
    """Print the table, write the page, and open it if there is a browser."""
    from labkit.views.embed import document

    recording = read(file)
    target = html or Path(tempfile.mkdtemp(prefix="labkit-replay-")) / f"{file.stem}.html"
    write_text(target, document(recording.html(), f"{file.name}: {recording.kind}"))
    # Last, because a reader may stop reading, as in `labkit replay FILE | head`.
    print(recording.table())
    opened = show and _opened(target)
    print(f"{'It is open in your browser' if opened else 'Open it in a browser'}: {target}")
    return 0


def _run(program: list[str], environment: dict[str, str], client: SamplerClient) -> int:
    """Returns the exit code of a program, or minus the signal that has ended it."""
    started: list[subprocess.Popen[bytes]] = []
    requests: list[int] = []

    def pass_on(number: int, _: object) -> None:
        requests.append(number)
        for process in started:
            process.send_signal(number)

    # Before the program starts, so that a request to end always reaches it.
    end = signal.signal(signal.SIGTERM, pass_on)
    interrupt = signal.getsignal(signal.SIGINT)
    try:
        started.append(subprocess.Popen(program, env=environment))
        for number in requests:  # it ran before Popen was back
            started[0].send_signal(number)
        # Ctrl-C reaches the program from the terminal.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        client.watch_process(started[0].pid)
        return started[0].wait()
    except OSError as fault:
        raise LabError(
            f"{program[0]!r} cannot be run: {fault.strerror}. Write it as you would without "
            "`labkit record`, after two dashes: labkit record -- python train.py"
        ) from fault
    finally:
        signal.signal(signal.SIGINT, interrupt)
        signal.signal(signal.SIGTERM, end)


def _opened(page: Path) -> bool:
    """Whether a browser has opened a page. Without a display no graphical browser could."""
    import webbrowser

    display = os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    if sys.platform == "linux" and not display:
        return False
    return webbrowser.open(page.resolve().as_uri())
