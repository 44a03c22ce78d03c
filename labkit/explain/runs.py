"""Run a command as it is, watched; and again in a copy of its folder, with something left out.

The second kind may write only into its copy: the kernel (Landlock) refuses everything else.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
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
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from labkit.kinds import LabError
from labkit.linux import adopt_orphans, call, children, end_with_parent

SITE = Path(__file__).parent / "agent" / "site"
LINKED = (".git", ".venv", "venv", "node_modules")  # folders that a copy only reads
LEFT = ("__pycache__", ".ipynb_checkpoints")
MANY = 5_000  # files, with which a folder below is linked, too
FILES, SMALL, TOGETHER = 20_000, 20_000_000, 300_000_000  # of a copy; bytes of one file and of all
SCRATCH = "labkit-explain-"
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1,
           signal.SIGUSR2)  # fmt: skip

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
        self.scratch = Path(tempfile.mkdtemp(prefix=SCRATCH)).resolve()
        self.original, self.place = self.scratch / "original", self.scratch / "run"
        (self.scratch / "tmp").mkdir()
        named = [Path(self.cwd, one) for one in self.command if one.endswith(".py")]
        self.script = next((one.resolve() for one in named if one.exists()), None)
        home = self.script.parent if self.script else self.cwd
        inside = home.is_relative_to(self.cwd.resolve())
        self.roots = [self.cwd.resolve()] if inside else [self.cwd.resolve(), home]
        self.uncopied = ""
        self.position = 0  # in a file that is the input, before the watched run read it
        self.process: subprocess.Popen[bytes] | None = None  # the watched one, while it runs
        self.ended: OneRun | None = None
        self.heard: list[int] = []  # signals that came meanwhile
        self.handlers = {
            number: signal.signal(number, self._hear)
            for number in SIGNALS
            if signal.getsignal(number) != signal.SIG_IGN  # nohup, or a script's background job
        }

    def close(self) -> None:
        """Remove the scratch folder."""
        for number in self.handlers:
            signal.signal(number, signal.SIG_IGN)
        shutil.rmtree(self.scratch, ignore_errors=True)
        for number, handler in self.handlers.items():
            signal.signal(number, handler)

    def _hear(self, number: int, _: Any) -> None:
        """A signal is the watched program's while it runs; after it, it ends labkit."""
        if self.process is None:
            raise KeyboardInterrupt if number == signal.SIGINT else SystemExit(128 + number)
        if number not in (signal.SIGUSR1, signal.SIGUSR2):
            self.heard.append(number)
        if number not in (signal.SIGINT, signal.SIGQUIT):  # a terminal sends these to both
            self.process.send_signal(number)

    # -- as it is

    def watched(self) -> OneRun:
        """The user's own run, in this terminal: its exit code is the answer's."""
        try:
            self._copy()
        except OSError as fault:
            self.uncopied = f"its folder could not be copied ({fault})"
        config = {"watch": True, "folders": [f"{one}/" for one in self.roots]}
        environment, out = self._environment(config, {})
        with contextlib.suppress(OSError):  # of a file
            self.position = os.lseek(0, 0, os.SEEK_CUR)
        started = time.monotonic()
        try:
            self.process = subprocess.Popen(self.command, env=environment, close_fds=False)
        except OSError as fault:
            raise LabError(
                f"{self.command[0]!r} cannot be started: {fault.strerror}. "
                "Write the command after -- as you would without labkit."
            ) from fault
        code = self.process.wait()
        self.process = None
        code = 128 - code if code < 0 else code
        failed = "it was interrupted" if self.heard else _unseen(out)
        self.ended = OneRun(_read(out), code, time.monotonic() - started, failed)
        return self.ended

    # -- with something left out

    def shorter(
        self, config: dict[str, Any], edits: dict[Path, str], env: dict[str, str], limit: float
    ) -> OneRun:
        """Run the command in a fresh copy, for `config["stop"]` steps at most."""
        try:
            return self._shorter(config, edits, env, limit)
        except (OSError, subprocess.SubprocessError) as fault:  # a full disk, no more processes
            return OneRun([], 1, 0.0, str(fault))

    def _shorter(
        self, config: dict[str, Any], edits: dict[Path, str], env: dict[str, str], limit: float
    ) -> OneRun:
        shutil.rmtree(self.place, ignore_errors=True)
        shutil.copytree(self.original, self.place, symlinks=True)
        for file, text in edits.items():
            copy = self.moved(Path(os.path.normpath(file)))  # ../code/train.py
            if not copy.parent.resolve().is_relative_to(self.place):
                raise OSError(f"{file} cannot be changed in the copy, where its folder is a link")
            copy.unlink(missing_ok=True)  # it may be a link to the user's file
            copy.write_text(text, "utf-8")
        config = {"watch": False, **config, "folders": [f"{self.place}/"]}
        cwd, tmp = self.moved(self.cwd.resolve()), self.scratch / "tmp"
        extra = {
            "OMP_WAIT_POLICY": os.environ.get("OMP_WAIT_POLICY", "passive"),  # spinning is no work
            "PET_MASTER_PORT": str(_free_port()), "TMPDIR": str(tmp), "PWD": str(cwd),
            "PYTHONDONTWRITEBYTECODE": "1", "WANDB_MODE": "offline", **env,
        }  # fmt: skip
        environment, out = self._environment(config, extra)
        command = [self._moved_text(one) for one in self.command]
        if os.sep in command[0]:  # .venv/bin/python
            command[0] = str(self.cwd / command[0])

        def apart() -> None:
            end_with_parent()
            only_writes_in([self.place, tmp, out, Path("/dev")])

        adopt_orphans()
        others, busy, begin = {*children()}, _busy(), time.monotonic()
        with (out / "errors").open("wb") as errors, self._input() as source:
            process = subprocess.Popen(
                command, cwd=cwd, env=environment, stdin=source, stdout=subprocess.DEVNULL,
                stderr=errors, start_new_session=True, preexec_fn=apart,  # noqa: PLW1509
            )  # fmt: skip
            try:
                process.wait(limit)
                late = ""
            except subprocess.TimeoutExpired:
                late = f"it had not ended after {limit:.0f} s"
                process.terminate()  # torchrun ends its ranks, which have sessions of their own
                _wait(process, 5)
            finally:
                process.kill()
                process.wait()
                while left := {*children()} - others:  # those of a process that ended are ours
                    for pid in left:
                        os.kill(pid, signal.SIGKILL)
                        os.waitpid(pid, 0)
        seconds = time.monotonic() - begin
        load = max(0.0, _busy() - busy) / seconds
        reports = _read(out)
        steps = [len(one["marks"].get(config["kind"], ())) for one in reports if not one["worker"]]
        enough = [n for n in steps if n > config["warm"] + 1]
        failed = ""
        if late or not enough or (process.returncode and min(enough) < config["stop"] - 1):
            failed = late or _said(out / "errors")
        (out / "errors").unlink()
        return OneRun(reports, process.returncode, seconds, failed, load)

    @contextlib.contextmanager
    def _input(self) -> Iterator[Any]:
        """The same input, if it is a file; a pipe or a terminal cannot be read twice."""
        path = Path("/proc/self/fd/0")
        if not path.is_file():
            yield subprocess.DEVNULL
            return
        with path.open("rb") as source:
            source.seek(self.position)
            yield source

    def moved(self, path: Path) -> Path:
        """Where the copy of a path of the user's lies."""
        for number, root in enumerate(self.roots):
            if path.is_relative_to(root):
                return self.place / str(number) / root.name / path.relative_to(root)
        return path

    def home(self, text: str) -> str:
        """A path of the copy as the user knows it."""
        for root in self.roots:
            text = text.replace(str(self.moved(root)), str(root))
        return text

    def _moved_text(self, word: str) -> str:
        path = Path(self.cwd, word)
        if word.endswith(".py") and path.exists():
            return str(self.moved(path.resolve()))
        for root in self.roots:
            if word == str(root):
                return str(self.moved(root))
            word = word.replace(f"{root}/", f"{self.moved(root)}/")
        return word

    def _copy(self) -> None:
        """Copy the user's folder, as it was before the watched run.

        What is large is linked instead: it can be read, and Landlock refuses to write there.
        """
        files, size = [], 0
        for number, root in enumerate(self.roots):
            place = self.original / str(number)
            place.mkdir(parents=True)
            for beside in itertools.islice(root.parent.iterdir(), MANY):  # for ../data
                (place / beside.name).symlink_to(beside)
            (place / root.name).unlink(missing_ok=True)
            for folder, names, found in os.walk(root):
                target = place / root.name / Path(folder).relative_to(root)
                target.mkdir(exist_ok=True)
                links = [n for n in names if n in LINKED or _linked(Path(folder, n))]
                names[:] = {*names}.difference(links, LEFT)
                names[:] = [one for one in names if not one.startswith(SCRATCH)]
                for name in [*links, *found]:
                    source = Path(folder, name)
                    if source.is_symlink():
                        end = os.path.realpath(source)
                        within = Path(end).is_relative_to(root)
                        (target / name).symlink_to(os.path.relpath(end, folder) if within else end)
                    elif source.is_dir():
                        (target / name).symlink_to(source)
                    elif source.is_file():  # and no pipe or socket
                        files.append((source, target / name))
                if len(files) > FILES:
                    raise OSError(f"more than {FILES} files")
        for source, copy in files:
            length = source.stat().st_size
            if length > SMALL or size + length > TOGETHER:
                copy.symlink_to(source)
                continue
            size += length
            shutil.copy2(source, copy)

    def _environment(
        self, config: dict[str, Any], extra: dict[str, str]
    ) -> tuple[dict[str, str], Path]:
        out = self.scratch / f"out{self.number}"
        self.number += 1
        out.mkdir()
        file = out / "config.json"
        file.write_text(json.dumps({**config, "out": str(out)}), "utf-8")
        own = _given()
        path = os.pathsep.join(one for one in (str(SITE), own.get("PYTHONPATH", "")) if one)
        return {**own, **extra, "LABKIT_EXPLAIN": str(file), "PYTHONPATH": path}, out


def _read(out: Path) -> list[Report]:
    found = []
    for path in out.glob("p*.json"):
        try:
            found.append(json.loads(path.read_text("utf-8")))
        except ValueError:
            continue
    return sorted(found, key=lambda one: (one["rank"], one["born"]))


def _wait(process: subprocess.Popen[bytes], seconds: float) -> None:
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(seconds)


def _linked(folder: Path) -> bool:
    """Is this folder only linked in the copy: a link itself, or one with very many files?"""
    inside = (name for _, _, found in os.walk(folder) for name in found)
    return folder.is_symlink() or next(itertools.islice(inside, MANY, None), None) is not None


def _unseen(out: Path) -> str:
    """Why no Python of the watched program could be watched."""
    if (out / "python").exists():
        return ""
    with contextlib.suppress(OSError):
        return f"its Python cannot be watched, {(out / 'fault').read_text('utf-8')}"
    return (
        "no Python of it could be watched (those with -I, -E or -S, or another PYTHONPATH cannot)"
    )


def _said(errors: Path) -> str:
    """The exception that a program ended with, of all that it and torchrun wrote."""
    with errors.open("rb") as file:
        file.seek(max(0, errors.stat().st_size - 100_000))
        text = file.read().decode("utf-8", "replace").strip()
    found = re.findall(
        r"(?:^|: )((?:\w+\.)*\w*(?:Error|Exception|Exit|Interrupt): .*)", text, re.MULTILINE
    )
    lines = [one for one in found if "ChildFailedError" not in one] or text.splitlines()
    refused = [one for one in lines if "ermission denied" in one]
    why = "it writes outside of its folder, which only the watched run may: " if refused else ""
    return why + (refused or lines or ["it took no step"])[-1].strip()[:200]


def _given() -> dict[str, str]:
    """The user's environment, without what `import labkit` has set for TensorFlow."""
    known = os.environ.copy()
    with contextlib.suppress(OSError):
        first = {os.fsdecode(one) for one in Path("/proc/self/environ").read_bytes().split(b"\0")}
        for name in ("TF_CPP_MIN_LOG_LEVEL", "TF_FORCE_GPU_ALLOW_GROWTH"):
            if not any(one.startswith(f"{name}=") for one in first):
                known.pop(name, None)
    return known


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
