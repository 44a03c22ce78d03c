"""Environments beside the course: PyTorch, Horovod, Flower, each a Python with packages of its own.

$ labkit env list
$ labkit env build torch

`environments/NAME/` holds a lock and a description; what is built from them lies in its `.venv`,
which git ignores. labkit itself is found there by a .pth file, and in ranks by PYTHONPATH.
"""

import argparse
import fcntl
import hashlib
import json
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from labkit.arguments import one_of
from labkit.centre import centre
from labkit.hardware import gpus
from labkit.hardware.machine import read_cores, read_memory
from labkit.kinds import LabError, bytes_text, seconds_text
from labkit.plain import read, write
from labkit.progress import ProgressLine

FOLDER = Path(__file__).resolve().parent.parent / "environments"
# They would send packages elsewhere, or let pip take foreign ones for installed ones.
DIVERSIONS = {"PIP_PREFIX", "PIP_ROOT", "PIP_TARGET", "PIP_USER", "PYTHONPATH", "PYTHONHOME"}
GIGABYTE = 1e9
PERCENT = re.compile(r"^\s*\[ *(\d+)%\]")  # of make


@dataclass(frozen=True)
class Stamp:
    """What a complete build has written of itself, in `.venv/labkit.json`."""

    folder: str
    """Where it was built: its scripts name this folder, so that it works nowhere else."""
    recipe: str
    python: str
    versions: dict[str, str]
    bytes: int

    def words(self) -> str:
        """The versions, as "torch 2.13.0, Python 3.11.7"."""
        versions = {**self.versions, "Python": self.python}
        return ", ".join(f"{name} {version}" for name, version in versions.items())


@dataclass(frozen=True)
class Environment:
    """What `environments/NAME/environment.toml` describes."""

    name: str
    folder: Path
    about: str
    pythons: tuple[str, ...]
    """Minor versions that it can be built with, such as "3.11"."""
    shown: tuple[str, ...]
    """The packages whose versions `labkit env list` shows, where they are installed."""
    gigabytes: Mapping[str, float]
    minutes: float
    cuda: Mapping[str, float] = field(default_factory=dict)
    """The gigabytes where there is an NVIDIA driver, if they differ."""
    unlocked: tuple[str, ...] = ()
    """Exact versions without a hash, because several builds of them exist."""
    index: str = ""
    """The variable in which users may name an index for these."""
    compiled: str = ""
    """A second lock: of packages that are built from source."""
    commands: tuple[str, ...] = ()
    """What compiling them needs."""
    while_compiling: Mapping[str, str] = field(default_factory=dict)
    before: str = ""
    """A file of the folder that each rank runs before its program."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """Of all ranks."""
    rank_variables: Mapping[str, str] = field(default_factory=dict)
    """Of each rank where there are several, with {rank}, {ranks} and so on: see `variables_of`."""

    @property
    def venv(self) -> Path:
        """Where it is built."""
        return self.folder / ".venv"

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return self.venv / "bin" / "python"

    @property
    def stamp(self) -> Stamp | None:
        """Of the last complete build; None without one that works here."""
        with suppress(LabError):
            found = read(self.venv / "labkit.json", Stamp, "a build")
            return found if self.python.exists() and found.folder == str(self.folder) else None
        return None

    @property
    def recipe(self) -> str:
        """A hash of what it is built from."""
        files = (self.folder / name for name in ("lock.txt", self.compiled))
        locks = [file.read_text("utf-8") for file in files if file.is_file()]
        chosen = [self.pythons, self.unlocked, dict(self.while_compiling), *locks]
        return hashlib.sha256(json.dumps(chosen).encode()).hexdigest()

    @property
    def state(self) -> str:
        """Either "built", "not built", "outdated" (older lock, other Python), or "incomplete".

        Incomplete is what was interrupted or damaged, or built before the folder was moved.
        """
        if stamp := self.stamp:
            new = stamp.recipe == self.recipe and not self.needs_this_python
            return "built" if new else "outdated"
        return "incomplete" if self.venv.exists() else "not built"

    def needs(self) -> Mapping[str, float]:
        """The gigabytes to download and on disk, on this machine."""
        return self.cuda if self.cuda and gpus.read_gpus().gpus else self.gigabytes

    def cost(self) -> str:
        """Download, disk and time in words."""
        need = self.needs()
        return (
            f"downloads about {bytes_text(need['download'] * GIGABYTE)}, takes "
            f"{bytes_text(need['disk'] * GIGABYTE)} on disk and about "
            f"{self.minutes:g} minute{'s' * (self.minutes != 1)} on two cores"
        )

    def how_to_build(self) -> str:
        """What to do where it is not built."""
        return (
            f"The environment {self.name} is {self.state}. In a terminal: labkit env build "
            f"{self.name} ({self.cost()})."
        )

    def variables_of(self, rank: int, addresses: Sequence[str], master: str) -> dict[str, str]:
        """The variables of a rank. `addresses`, of all ranks, and `master` are each "host:port"."""
        host, _, port = master.rpartition(":")
        hosts = [address.rpartition(":")[0] for address in addresses]
        found, here = dict(self.variables), hosts[rank]
        if len(hosts) > 1:
            local = hosts[:rank].count(here)  # its number among the ranks of its host
            across = [each for each in dict.fromkeys(hosts) if hosts.count(each) > local]
            words: dict[str, object] = {"rank": rank, "ranks": len(hosts), "host": here}
            words |= {"local": local, "locals": hosts.count(here), "master": host, "port": port}
            words |= {"cross": across.index(here), "crosses": len(across)}
            found |= {name: text.format(**words) for name, text in self.rank_variables.items()}
            found |= {"LABKIT_BEFORE": str(self.folder / self.before)} if self.before else {}
        path = os.pathsep.join([str(self.python.parent), os.environ.get("PATH", "")])
        return {**found, "PATH": path, "VIRTUAL_ENV": str(self.venv)}

    @property
    def takes_byte_code(self) -> bool:
        """Whether its Python is of the same minor version: then functions can be sent as usual."""
        python = self.stamp.python if self.stamp else ""
        return python.split(".")[:2] == platform.python_version().split(".")[:2]

    @property
    def needs_this_python(self) -> bool:
        """Whether it was built with another Python, but can be built with this one."""
        minor = platform.python_version().rpartition(".")[0]
        return minor in self.pythons and not self.takes_byte_code

    def __str__(self) -> str:
        stamp = self.stamp
        words = f"{stamp.words()}; {bytes_text(stamp.bytes)}" if stamp else ""
        return f"{self.name:<10} {self.state:<11} {words or f'{self.about}; {self.cost()}'}"


def known() -> dict[str, Environment]:
    """All environments that can be built, by name."""
    files = sorted(FOLDER.glob("*/environment.toml"))
    if not files:
        raise LabError(
            f"There is no {FOLDER}: environments are built in the folder of the course. Clone the "
            "course and use its own labkit (`make lab`)."
        )
    return {file.parent.name: _read(file) for file in files}


def find(name: str) -> Environment:
    """The environment of this name."""
    return known()[one_of("environment", name, known())]


def built(name: str) -> Environment:
    """The same, if it is built; otherwise a LabError that says how."""
    found = find(name)
    if not found.stamp:
        raise LabError(found.how_to_build())
    return found


def build(name: str, check: Callable[[Environment], None], *, again: bool = False) -> Environment:
    """Build it, unless it is built; `check` runs at the end, and raises if it does not work."""
    chosen = find(name)
    with _alone(chosen):
        if chosen.state == "built" and not again:
            print(f"{chosen}\nNothing to do; `labkit env build {name} --again` builds it afresh.")
            return chosen
        try:
            _build(chosen, check)
        except OSError as fault:
            raise LabError(
                f"{name} could not be built: {fault}. If the disk is full, make room; "
                f"`labkit env remove {name}` gives back what was begun."
            ) from fault
    _say(str(chosen))
    return chosen


def _build(chosen: Environment, check: Callable[[Environment], None]) -> None:
    python = _python_for(chosen)
    if missing := [command for command in chosen.commands if shutil.which(command) is None]:
        raise LabError(
            f"{' and '.join(missing)} must be installed: {chosen.name} is compiled here. On Debian "
            "and Ubuntu: sudo apt install build-essential; on macOS: xcode-select --install."
        )
    free, needed = shutil.disk_usage(FOLDER).free, chosen.needs()["disk"] * GIGABYTE
    if free < needed:
        raise LabError(
            f"{chosen.name} needs {bytes_text(needed)}, and {FOLDER} has {bytes_text(free)} free. "
            "Make room, and try again."
        )
    _say(
        f"Building {chosen.name} with Python {_version(python)}: {chosen.cost()}. Ctrl-C stops it; "
        "the same command then begins again."
    )
    began = time.monotonic()
    _remove(chosen)
    _install(chosen, python)
    _say(f"Installed in {seconds_text(time.monotonic() - began)}. Running two ranks as a check.")
    stamp = Stamp(
        folder=str(chosen.folder),
        recipe=chosen.recipe,
        python=_version(str(chosen.python)),
        versions=_versions(chosen),
        bytes=sum(file.lstat().st_size for file in chosen.venv.rglob("*") if file.is_file()),
    )
    file = write(chosen.venv / "labkit.json", stamp)
    try:
        check(chosen)
    except BaseException:
        file.unlink(missing_ok=True)
        raise


@contextmanager
def _alone(chosen: Environment) -> Iterator[None]:
    """Nothing else builds or removes it now; closing the terminal stops it as Ctrl-C does."""

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    folder = os.open(chosen.folder, os.O_RDONLY)
    # `nohup` has it ignore SIGHUP: that stays so.
    numbers = (signal.SIGHUP, signal.SIGTERM)
    both = [number for number in numbers if signal.getsignal(number) == signal.SIG_DFL]
    try:
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise LabError(
                f"Another process builds or removes {chosen.name} at this moment. Wait for its end."
            ) from None
        except OSError:  # some network file systems know no locks
            pass
        for number in both:
            signal.signal(number, stop)
        yield
    finally:
        for number in both:
            signal.signal(number, signal.SIG_DFL)
        os.close(folder)


def remove(name: str) -> bool:
    """Remove what was built; False if there was nothing."""
    chosen = find(name)
    with _alone(chosen):
        return _remove(chosen)


def _remove(chosen: Environment) -> bool:
    venv = chosen.venv
    there = venv.exists() or venv.is_symlink()
    if venv.is_symlink():
        venv.unlink()
    elif there:
        (venv / "labkit.json").unlink(missing_ok=True)  # what an interrupt leaves is not "built"
        shutil.rmtree(venv)
    return there


def main(chosen: argparse.Namespace, check: Callable[[Environment], None]) -> int:
    """`labkit env list`, `build` and `remove`; `build` goes on with the next after a failure."""
    if chosen.env == "list":
        print("\n".join(map(str, known().values())))
        return 0
    for name in chosen.names:
        find(name)
    failed = []
    for name in chosen.names:
        if chosen.env == "remove":
            print(f"{name}: {'removed' if remove(name) else 'nothing to remove'}.")
            continue
        try:
            build(name, check, again=chosen.again)
        except LabError as fault:
            failed.append(name)
            print(f"labkit env build {name}: {fault}", file=sys.stderr)
    return 2 if failed else 0


def _read(file: Path) -> Environment:
    with file.open("rb") as opened:
        described = tomllib.load(opened)
    values: Any = {k: tuple(v) if isinstance(v, list) else v for k, v in described.items()}
    return Environment(name=file.parent.name, folder=file.parent, **values)


def _python_for(chosen: Environment) -> str:
    """A Python of a version that fits: this one, to which functions can be sent, or another."""
    own = getattr(sys, "_base_executable", None) or sys.executable
    for candidate in (own, *(f"python{version}" for version in chosen.pythons)):
        path = shutil.which(candidate)  # a name on the path may be a shim that only fails
        if path and _version(path).rpartition(".")[0] in chosen.pythons:
            return path
    *others, last = chosen.pythons
    wanted = f"{', '.join(others)} or {last}" if others else last
    raise LabError(
        f"{chosen.name} needs Python {wanted}, and no python{last} on the path runs. Install one "
        f"(with uv: uv python install {last}, then add it to the path), and try again."
    )


def _version(python: str) -> str:
    """Its version, such as "3.11.7"; "" if it does not run."""
    program = "import platform; print(platform.python_version())"
    with suppress(OSError, subprocess.SubprocessError):
        command = [python, "-I", "-c", program]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
        return done.stdout.strip()
    return ""


def _versions(chosen: Environment) -> dict[str, str]:
    program = (
        "import json, sys; from importlib.metadata import distributions; "
        "found = {one.metadata['Name'].lower(): one.version for one in distributions()}; "
        "print(json.dumps({name: found[name] for name in sys.argv[1:] if name in found}))"
    )
    command = [str(chosen.python), "-I", "-c", program, *chosen.shown]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    found: dict[str, str] = json.loads(done.stdout)
    return found


def _install(chosen: Environment, python: str) -> None:
    """venv, the lock, what has no hash, what is compiled; everything is in the log."""
    chosen.venv.mkdir()
    install = [str(chosen.python), "-m", "pip", "--disable-pip-version-check", "--no-input"]
    install.append("install")
    lock = chosen.folder / "lock.txt"
    locked = ["--no-deps", "--require-hashes", "-r"]
    packages = "==" in lock.read_text("utf-8")
    venv = [python, "-m", "venv", str(chosen.venv)]
    with_pip = packages or chosen.unlocked or chosen.compiled
    _run(chosen, "make a virtual environment", venv if with_pip else [*venv, "--without-pip"])
    where = os.environ.get(chosen.index, "") if chosen.index else ""
    options = ["--index-url", where] if where else []
    if chosen.unlocked and sys.platform == "linux" and not gpus.read_gpus().gpus:
        _refuse_cuda(chosen, [*install, *options])
    if packages:
        _run(chosen, "install its lock", [*install, *locked, str(lock)])
    if chosen.unlocked:
        _run(chosen, f"install {chosen.unlocked[0]}", [*install, *options, *chosen.unlocked])
    if chosen.compiled:
        _compile(chosen, install, [*locked, str(chosen.folder / chosen.compiled)])
    [packages_of] = chosen.venv.glob("lib/python*/site-packages")
    (packages_of / "labkit.pth").write_text(f"{FOLDER.parent}\n", encoding="utf-8")
    # ipykernel brings a kernel of its own; the lab has those that name this Python.
    shutil.rmtree(chosen.venv / "share" / "jupyter" / "kernels", ignore_errors=True)


def _compile(chosen: Environment, install: list[str], locked: list[str]) -> None:
    """Make a wheel in a folder that goes with all that an interrupt leaves, and install it.

    Compilers cut paths at spaces: there the environment has a name without any.
    """
    with tempfile.TemporaryDirectory(prefix="labkit-compile-") as folder:
        venv = Path(folder, "venv")
        venv.symlink_to(chosen.venv)
        wheel = [str(venv / "bin" / "python"), *install[1:-1], "wheel", "--verbose"]
        wheel += ["--no-build-isolation", "--wheel-dir", folder, *locked]
        # A process takes up to 1 GB.
        processes = max(1, min(read_cores().usable, int(read_memory().available / GIGABYTE)))
        variables = {"TMPDIR": folder, "MAKEFLAGS": f"-j{processes}", **chosen.while_compiling}
        variables["PIP_CACHE_DIR"] = str(_compiled_before(chosen))
        _run(chosen, "compile", wheel, variables=variables)
        wheels = map(str, Path(folder).glob("*.whl"))
        _run(chosen, "install what was compiled", [*install, "--no-deps", *wheels])


def _compiled_before(chosen: Environment) -> Path:
    """The user's cache for pip, which keeps wheels that it makes: one for each recipe and libc.

    pip's own cache would not do: it knows neither the packages nor the variables of a compilation.
    """
    user = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(user, "labkit", f"{chosen.recipe[:16]}{''.join(platform.libc_ver())}")


def _refuse_cuda(chosen: Environment, install: list[str]) -> None:
    """On Linux the usual index has builds for CUDA only: several GB, useless without a driver."""
    report = chosen.venv / "report.json"
    command = [*install, "--no-deps", "--dry-run", "--report", str(report), *chosen.unlocked]
    _run(chosen, "find a build for CPUs", command)
    found = [one["metadata"]["version"] for one in json.loads(report.read_text())["install"]]
    if not all("+cpu" in version for version in found):
        raise LabError(
            f"pip finds only the build of {chosen.unlocked[0]} for CUDA, of several GB, and this "
            f"machine has no NVIDIA driver. PyTorch's installation page shows, for Pip and CPU, "
            "the address of an index of CPU builds, behind --index-url. Then run: "
            f"{chosen.index}=ADDRESS labkit env build {chosen.name} (docs/setup.md has other ways)."
        )


def _run(
    chosen: Environment,
    purpose: str,
    command: list[str],
    variables: Mapping[str, str] | None = None,
) -> None:
    """Run a command into the log, and show how far it is."""
    env = {name: text for name, text in os.environ.items() if name not in DIVERSIONS}
    env |= {"PYTHONNOUSERSITE": "1", "PIP_PROGRESS_BAR": "off", **(variables or {})}
    env["PATH"] = os.pathsep.join([str(chosen.python.parent), env.get("PATH", "")])
    log, last, line = chosen.venv / "labkit.log", deque[str](maxlen=6), ProgressLine()
    began = time.monotonic()
    _say(f"  {purpose}")
    process = subprocess.Popen(
        centre().in_shell(command),  # compilers may be modules
        cwd=chosen.folder,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,  # so that an interrupt ends its compilers, too
    )
    assert process.stdout is not None
    try:
        with process.stdout, log.open("a", encoding="utf-8", buffering=1) as opened:
            opened.write(f"$ {' '.join(command)}\n")
            for text in process.stdout:
                opened.write(text)
                last.append(text)
                percent = PERCENT.match(text)
                done = f"{percent[1]} % compiled" if percent else "at work"
                line.show(f"  {purpose}: {done}, {time.monotonic() - began:.0f} s")
        code = process.wait()
    finally:
        line.erase()
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    if code:
        errors = [text for text in last if text.startswith("ERROR")]
        words = " ".join("".join(errors or last).split())[-500:]
        raise LabError(
            f"pip or the compiler could not {purpose} (exit status {code}): {words} All of it is "
            f"in {log}. Without a network nothing can be installed; otherwise try again."
        )


def _say(text: str) -> None:
    print(text, flush=True)
