"""Run a command as it is, watched; and again in a copy of its folder, with something left out.

The second kind may write only into its copy: the kernel (Landlock) refuses everything else.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from labkit.kinds import LabError
from labkit.linux import adopt_orphans, call, children

SITE = Path(__file__).parent / "agent" / "site"
LEFT = (".git", ".venv", "venv", "node_modules", "__pycache__", ".ipynb_checkpoints")
FILES, SMALL, TOGETHER = 20_000, 20_000_000, 300_000_000  # of a copy; bytes of one file and of all

Report = dict[str, Any]


@dataclass
class OneRun:
    """What the processes of a run reported, or why there is nothing to read."""

    reports: list[Report]
    code: int
    seconds: float
    failed: str = ""
    load: float = 0.0  # cores that other programs took meanwhile


@dataclass
class Runs:
    """The runs of one command, and the scratch folder that they share."""

    command: list[str]
    cwd: Path = field(default_factory=Path.cwd)
    number: int = 0

    def __post_init__(self) -> None:
        self.scratch = Path(tempfile.mkdtemp(prefix="labkit-explain-"))
        self.original, self.place = self.scratch / "original", self.scratch / "run"
        (self.scratch / "tmp").mkdir()
        named = [Path(self.cwd, one) for one in self.command[:4] if one.endswith(".py")]
        self.script = named[0].resolve() if named and named[0].exists() else None
        home = self.script.parent if self.script else self.cwd
        inside = home.is_relative_to(self.cwd.resolve())
        self.roots = [self.cwd.resolve()] if inside else [self.cwd.resolve(), home]
        self.uncopied = ""

    def close(self) -> None:
        """End what is left, and remove the scratch folder."""
        for _ in range(20):
            if not (left := children()):
                break
            _end(left)
        shutil.rmtree(self.scratch, ignore_errors=True)

    # -- as it is

    def watched(self) -> OneRun:
        """The user's own run, in this terminal: its exit code is the answer's."""
        try:
            self._copy()
        except OSError as fault:
            self.uncopied = f"its folder could not be copied ({fault})"
        config = {"watch": True, "folders": [f"{one}/" for one in self.roots]}
        environment, out = self._environment(config, {})
        started, interrupted = time.monotonic(), []

        def seen(number: int, _: Any) -> None:
            interrupted.append(number)
            if number != signal.SIGINT:  # the terminal gives Ctrl-C to the whole group
                process.send_signal(number)

        try:
            process = subprocess.Popen(self.command, env=environment)
        except OSError as fault:
            raise LabError(
                f"{self.command[0]!r} cannot be started: {fault.strerror}. "
                "Write the command after -- as you would without labkit."
            ) from fault
        known = {n: signal.signal(n, seen) for n in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
        try:
            code = process.wait()
        finally:
            for number, handler in known.items():
                signal.signal(number, handler)
        code = 128 - code if code < 0 else code
        failed = "it was interrupted" if interrupted else ""
        return OneRun(_read(out), code, time.monotonic() - started, failed)

    # -- with something left out

    def shorter(
        self, config: dict[str, Any], edits: dict[Path, str], env: dict[str, str], limit: float
    ) -> OneRun:
        """Run the command in a fresh copy, for `config["stop"]` steps at most."""
        shutil.rmtree(self.place, ignore_errors=True)
        shutil.copytree(self.original, self.place, symlinks=True)
        for file, text in edits.items():
            self.moved(file).write_text(text, "utf-8")
        config = {"watch": False, **config, "folders": [f"{self.place}/"]}
        extra = {
            "OMP_WAIT_POLICY": os.environ.get("OMP_WAIT_POLICY", "passive"),  # spinning is no work
            "PET_MASTER_PORT": str(_free_port()), "TMPDIR": str(self.scratch / "tmp"),
            "PYTHONDONTWRITEBYTECODE": "1", **env,
        }  # fmt: skip
        environment, out = self._environment(config, extra)
        command = [self._moved_text(one) for one in self.command]
        busy, begin = _busy(), time.monotonic()
        source = _again(sys.stdin)
        with (out / "errors").open("wb") as errors:
            process = subprocess.Popen(
                command, cwd=self.moved(self.cwd.resolve()), env=environment, stdin=source,
                stdout=subprocess.DEVNULL, stderr=errors, start_new_session=True,
                preexec_fn=lambda: only_writes_in([self.scratch, Path("/dev")]),  # noqa: PLW1509
            )  # fmt: skip
            try:
                process.wait(limit)
                late = ""
            except subprocess.TimeoutExpired:
                late = f"it had not ended after {limit:.0f} s"
                process.terminate()  # torchrun ends its ranks, which have sessions of their own
                _wait(process, 5)
            finally:
                _end([process.pid])
                process.wait()
        _end(children())
        seconds = time.monotonic() - begin
        load = max(0.0, _busy() - busy) / seconds
        reports = _read(out)
        steps = [len(one["marks"].get(config["kind"], ())) for one in reports if not one["worker"]]
        enough = [n for n in steps if n > config["warm"] + 1]
        failed = ""
        if late or not enough or (process.returncode and min(enough) < config["stop"] - 1):
            failed = late or _error((out / "errors").read_text("utf-8", "replace"))
        return OneRun(reports, process.returncode, seconds, failed, load)

    def moved(self, path: Path) -> Path:
        """Where the copy of a path of the user's lies."""
        for number, root in enumerate(self.roots):
            if path.is_relative_to(root):
                return self.place / str(number) / path.relative_to(root)
        return path

    def home(self, text: str) -> str:
        """A path of the copy as the user knows it."""
        for number, root in enumerate(self.roots):
            text = text.replace(f"{self.place / str(number)}/", f"{root}/")
        return text

    def _moved_text(self, word: str) -> str:
        path = Path(self.cwd, word)
        if word.endswith(".py") and path.exists():
            return str(self.moved(path.resolve()))
        for number, root in enumerate(self.roots):
            word = word.replace(f"{root}/", f"{self.place / str(number)}/")
        return word

    def _copy(self) -> None:
        files, size = 0, 0
        for number, root in enumerate(self.roots):
            for folder, names, found in os.walk(root):
                names[:] = [n for n in names if n not in LEFT]
                target = self.original / str(number) / Path(folder).relative_to(root)
                target.mkdir(parents=True, exist_ok=True)
                for name in found:
                    source = Path(folder, name)
                    if source.is_symlink() or not source.is_file():
                        if source.is_symlink():
                            (target / name).symlink_to(source.resolve())
                        continue
                    files, length = files + 1, source.stat().st_size
                    if files > FILES:
                        raise OSError(f"more than {FILES} files")
                    if length > SMALL or size + length > TOGETHER:
                        (target / name).symlink_to(source)  # to read; nothing may write there
                        continue
                    size += length
                    shutil.copy2(source, target / name)

    def _environment(
        self, config: dict[str, Any], extra: dict[str, str]
    ) -> tuple[dict[str, str], Path]:
        out = self.scratch / f"out{self.number}"
        self.number += 1
        out.mkdir()
        file = out / "config.json"
        file.write_text(json.dumps({**config, "out": str(out)}), "utf-8")
        before = os.environ.get("PYTHONPATH", "")
        path = os.pathsep.join(one for one in (str(SITE), before) if one)
        return {**os.environ, **extra, "LABKIT_EXPLAIN": str(file), "PYTHONPATH": path}, out


def _read(out: Path) -> list[Report]:
    found = []
    for path in out.glob("p*.json"):
        try:
            found.append(json.loads(path.read_text("utf-8")))
        except ValueError:
            continue
    return sorted(found, key=lambda one: (one["rank"], one["born"]))


def _error(text: str) -> str:
    """The exception that a program ended with, of all that it and torchrun wrote."""
    found = re.findall(
        r"(?:^|: )((?:\w+\.)*\w*(?:Error|Exception|Exit|Interrupt): .*)", text, re.MULTILINE
    )
    lines = [one for one in found if "ChildFailedError" not in one] or text.strip().splitlines()
    return lines[-1].strip()[:200] if lines else "it took no step"


def _wait(process: subprocess.Popen[bytes], seconds: float) -> None:
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(seconds)


def _end(pids: list[int]) -> None:
    """End processes of ours with all that they started."""
    for pid in pids:
        try:
            below = Path(f"/proc/{pid}/task/{pid}/children").read_text("ascii").split()
        except OSError:
            below = []
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        _end([*map(int, below)])
        with contextlib.suppress(ChildProcessError, OSError):
            os.waitpid(pid, 0)


def _again(stream: Any) -> Any:
    """The same input, if it is a file; a pipe or a terminal cannot be read twice."""
    try:
        path = Path(f"/proc/self/fd/{stream.fileno()}").resolve()
        return path.open("rb") if path.is_file() else subprocess.DEVNULL
    except (OSError, ValueError, AttributeError):
        return subprocess.DEVNULL


def _busy() -> float:
    """Seconds of CPU that all programs but ours have taken."""
    first = Path("/proc/stat").read_text(encoding="ascii").partition("\n")[0]
    values = [int(one) for one in first.split()[1:9]]
    times = os.times()
    own = times.user + times.system + times.children_user + times.children_system
    return (sum(values) - values[3] - values[4]) / os.sysconf("SC_CLK_TCK") - own


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


# ---- Landlock ------------------------------------------------------------------------------------

_CREATE, _ADD, _RESTRICT, _NO_NEW_PRIVILEGES = 444, 445, 446, 38
_WRITES = sum(1 << bit for bit in (1, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14))  # of a version ≥ 3


def can_protect() -> bool:
    """Does this kernel know Landlock, with truncating a file (since Linux 6.2)?"""
    if sys.platform != "linux":
        return False
    return int(ctypes.CDLL(None).syscall(_CREATE, None, 0, 1)) >= 3


def only_writes_in(folders: list[Path]) -> None:
    """From now on this process and its children may change files only below these folders."""
    library = ctypes.CDLL(None, use_errno=True)
    handled = ctypes.c_uint64(_WRITES)
    rules = library.syscall(_CREATE, ctypes.byref(handled), 8, 0)
    if rules < 0:
        raise OSError(ctypes.get_errno(), "landlock")
    for folder in folders:
        place = os.open(folder, os.O_PATH)
        rule = _WRITES.to_bytes(8, "little") + place.to_bytes(4, "little")
        if library.syscall(_ADD, rules, 1, rule, 0) < 0:
            raise OSError(ctypes.get_errno(), "landlock")
        os.close(place)
    call("prctl", _NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    if library.syscall(_RESTRICT, rules, 0) < 0:
        raise OSError(ctypes.get_errno(), "landlock")
    os.close(rules)


__all__ = ["OneRun", "Runs", "adopt_orphans", "can_protect"]
