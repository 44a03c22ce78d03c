"""Makes .venv: `install.py lab`, `test` or `website`; `--fits` only says if it could.

Everything comes from the locks beside this file, with hashes. A stamp is written at the very end:
with it a second call starts in a moment, without it an interrupted installation starts afresh.
Only the standard library is used here, because nothing else exists yet.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
STAMP, UNFINISHED, LOG = (
    VENV / name for name in ("labkit.json", "labkit.unfinished", "labkit.log")
)
GIGABYTES = {"cpu": (0.5, 2.5), "cuda": (3.5, 8.0)}  # to download, on disk
# They would send packages elsewhere, or let pip take foreign ones for installed ones.
DIVERSIONS = {"PIP_PREFIX", "PIP_ROOT", "PIP_TARGET", "PIP_USER", "PYTHONPATH"}

LOADED = ("Collecting ", "Processing ")  # pip's first word on a package
loaded: list[str] = []


class CannotInstall(Exception):
    """One sentence for the person at the terminal."""


def misfit() -> str | None:
    """Why labkit cannot run on this Python; "" when only its version is wrong; None if it can.

    TensorFlow decides. It has wheels for CPython 3.11 to 3.13, on Linux with glibc (x86_64,
    aarch64) and on macOS (Apple silicon).
    """
    here = f"{sys.executable} (Python {platform.python_version()})"
    system, machine = platform.system(), platform.machine()
    if not (3, 11) <= sys.version_info[:2] <= (3, 13):
        return ""
    if platform.python_implementation() != "CPython" or sysconfig.get_config_var("Py_GIL_DISABLED"):
        return f"{here} is not the usual CPython, and TensorFlow is built for no other."
    if system == "Darwin" and machine != "arm64":
        return (
            f"{here} runs on Intel, for which TensorFlow no longer exists on macOS: on Apple "
            "silicon install an arm64 Python; on an Intel Mac see docs/setup.md."
        )
    if (system, machine) not in {("Darwin", "arm64"), ("Linux", "aarch64"), ("Linux", "x86_64")}:
        return (
            f"{here} runs on {system} {machine}, for which TensorFlow has no wheel: docs/setup.md."
        )
    if system == "Linux" and not platform.libc_ver()[0].startswith("glibc"):
        return (
            f"{here} uses musl, for which TensorFlow has no wheel: use a distribution with glibc "
            "(Debian, Ubuntu, Fedora), or a container of one."
        )
    try:
        import ensurepip  # noqa: F401
        import venv  # noqa: F401
    except ImportError:
        package = f"python{sys.version_info.major}.{sys.version_info.minor}-venv"
        return (
            f"{here} cannot make virtual environments: on Debian and Ubuntu, "
            f"`sudo apt install {package}`, then try again."
        )
    return None


def has_nvidia_gpu() -> bool:
    """Whether the driver lists a GPU; a driver without one does not count."""
    try:
        answer = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return answer.returncode == 0 and answer.stdout.startswith("GPU ")


def tensorflow_build(asked: str, present: str | None) -> str:
    """`cpu` or `cuda`: what was asked for, else what is installed, else what suits the machine."""
    possible = (platform.system(), platform.machine()) == ("Linux", "x86_64")
    if asked not in ("", "cpu", "cuda"):
        raise CannotInstall(f"TENSORFLOW={asked} is neither cpu nor cuda.")
    if asked == "cuda" and not possible:
        raise CannotInstall("TENSORFLOW=cuda exists on Linux x86_64 only: say TENSORFLOW=cpu.")
    if asked:
        return asked
    useful = "cuda" if possible and has_nvidia_gpu() else "cpu"
    if (present, useful) == ("cpu", "cuda"):
        say("This machine has an NVIDIA GPU; to use it, once: make lab TENSORFLOW=cuda (3.5 GB).")
    return present or useful


def lock_of(part: str, build: str) -> Path:
    """The lock of `lab`, `test` or `website`."""
    return ROOT / "requirements" / f"{'lab-cuda' if (part, build) == ('lab', 'cuda') else part}.txt"


def requirements(locks: list[Path]) -> dict[str, str]:
    """What the locks say of each package, with its hashes, by name."""
    found: dict[str, str] = {}
    for lock in locks:
        for one in re.split(r"\n(?=\S)", lock.read_text("utf-8").strip()):
            name = one.partition("==")[0]
            if one.partition("\\")[0] not in found.get(name, ""):
                found[name] = found.get(name, "") + one + "\n"  # each with its own markers
    return found


def wanted(build: str, parts: list[str]) -> dict[str, Any]:
    """What the stamp of a finished environment says, apart from its packages."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    ours = json.dumps([project[part] for part in ("project", "build-system")])
    ours += json.dumps(project["tool"]["hatch"])  # what an installation puts elsewhere: the kernel
    return {
        "venv": str(VENV),
        "python": f"{sys.implementation.cache_tag} {platform.machine()}",
        "tensorflow": build,
        "project": hashlib.sha256(ours.encode()).hexdigest(),
        "locks": {p: hashlib.sha256(lock_of(p, build).read_bytes()).hexdigest() for p in parts},
    }


def read_stamp() -> dict[str, Any]:
    """The stamp of the present .venv; empty when there is none."""
    try:
        stamp = json.loads(STAMP.read_text(encoding="utf-8"))
        return stamp if stamp["locks"].keys() and stamp["packages"] is not None else {}
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return {}


def write_stamp(need: dict[str, Any]) -> None:
    """Say that .venv is finished."""
    draft = STAMP.with_suffix(".draft")
    draft.write_text(json.dumps({**need, "packages": packages()}, indent=1), encoding="utf-8")
    draft.replace(STAMP)
    UNFINISHED.unlink(missing_ok=True)


def packages() -> list[str]:
    """The packages in .venv as their folders name them, each with its version."""
    # By the name of the scheme, because Debian's own Python has another default.
    base = {"base": str(VENV), "platbase": str(VENV)}
    site = Path(sysconfig.get_path("purelib", "venv", vars=base))
    return sorted(folder.name for folder in site.glob("*.dist-info"))


def is_complete(stamp: dict[str, Any], need: dict[str, Any]) -> bool:
    """Whether the environment with this stamp needs nothing more."""
    facts = {fact: value for fact, value in stamp.items() if fact != "packages"}
    return facts == need and set(stamp["packages"]) <= set(packages()) and python_runs()


def python_runs() -> bool:
    """Whether .venv has a Python of this version that runs."""
    program = "import sys; print(sys.implementation.cache_tag)"
    try:
        answer = subprocess.run(
            [VENV / "bin/python", "-c", program], capture_output=True, text=True
        )
    except OSError:
        return False
    return answer.stdout.strip() == sys.implementation.cache_tag


def why_afresh(stamp: dict[str, Any], need: dict[str, Any]) -> str | None:
    """Why the present .venv cannot be added to, or None. One made by hand, with no stamp, can."""
    reasons = {
        "venv": "the checkout has moved",
        "python": "another Python was chosen",
        "tensorflow": "the CPU and CUDA builds of TensorFlow own the same files",
    }
    if not VENV.exists():
        return "there is none yet"
    if UNFINISHED.exists():
        return "the last installation was interrupted"
    if not python_runs():
        return "its Python does not run here"
    changed = (reasons[fact] for fact in reasons if stamp and stamp.get(fact) != need[fact])
    return next(changed, None)


def what_goes(afresh: str, on_disk: float, build: str) -> list[Path]:
    """What of labkit's own lies in .venv; refused where it is another's, or the disk is full."""
    parts = [*VENV.iterdir()] if VENV.is_dir() and not VENV.is_symlink() else []
    if parts and not any(mark.exists() for mark in (STAMP, UNFINISHED, LOG)):
        raise CannotInstall(
            f"{VENV} was not made by labkit, and {afresh}: move it away, or remove it yourself."
        )
    held = sum(file.lstat().st_blocks for part in parts for file in (part, *part.rglob("*")))
    free = (shutil.disk_usage(ROOT).free + 512 * held) / 1e9
    if free < on_disk:
        raise CannotInstall(
            f"{ROOT} has {free:.1f} GB free and the {build.upper()} environment needs "
            f"{on_disk:g} GB: make room, or clone to a larger disk."
        )
    return parts


def install(stamp: dict[str, Any], need: dict[str, Any]) -> None:
    """Bring .venv to what is wanted; afterwards, and only then, the stamp says so."""
    build, afresh = need["tensorflow"], why_afresh(stamp, need)
    download, on_disk = GIGABYTES[build]
    goes = what_goes(afresh, on_disk, build) if afresh else []
    if gone := sorted(set(stamp.get("packages", [])) - set(packages())):
        say(f"In .venv these are missing or have changed: {', '.join(gone)}.")
    if afresh:
        if VENV.exists():
            say(f"Building .venv from scratch: {afresh}.")
        say(
            f"Installing TensorFlow ({build.upper()}) and JupyterLab into .venv with Python "
            f"{platform.python_version()}: loads up to {download:g} GB, takes 1 to 10 minutes."
        )
        if VENV.is_symlink():
            VENV.unlink()
        VENV.mkdir(exist_ok=True)
    UNFINISHED.touch()  # before anything goes: what an interrupt leaves is labkit's own
    for part in goes:
        if part.is_dir() and not part.is_symlink():
            shutil.rmtree(part)
        elif part != UNFINISHED:
            part.unlink(missing_ok=True)
    STAMP.unlink(missing_ok=True)
    python = VENV / "bin" / "python"
    if afresh:
        base = getattr(sys, "_base_executable", None) or sys.executable
        run("make a virtual environment", base, "-m", "venv", VENV)
    if not (VENV / "bin" / "pip").exists():  # uv makes environments without pip
        run("install pip", python, "-m", "ensurepip", "--upgrade")
    pip = (python, "-m", "pip", "--disable-pip-version-check", "--no-input", "install", "--no-deps")
    # A new pip, and two at a time, take 30 s where the one that comes with Python takes 60.
    every = requirements([lock_of(part, build) for part in need["locks"]])
    thirds = [every.pop("pip")], [*every.values()][::2], [*every.values()][1::2]
    files = [VENV / name for name in ("pip.txt", "half.txt", "other-half.txt")]
    for file, third in zip(files, thirds, strict=True):
        file.write_text("".join(third), encoding="utf-8")

    def load(file: Path) -> None:
        run("install packages", *pip, "--no-compile", "--require-hashes", "-r", file)

    load(files[0])
    with ThreadPoolExecutor() as both:
        list(both.map(load, files[1:]))
    # Hatchling and editables are in the lock, so labkit itself needs no network.
    run("install labkit", *pip, "--no-build-isolation", "-e", ".")
    # Without byte code TensorFlow takes twice as long to start. The rest is compiled when imported.
    site = next((VENV / "lib").glob("python*/site-packages"), VENV)
    places = [site / name for name in ("tensorflow", "keras", "numpy", "matplotlib")]
    compiler = ("-m", "compileall", "-q", "-j", "2", *places, ROOT / "labkit")
    run("compile", python, *compiler, may_fail=True)
    write_stamp(need)
    say("Installed.")


def run(purpose: str, *command: object, may_fail: bool = False) -> None:
    """Run a command into the log; say how many packages pip has loaded."""
    kept = {name: value for name, value in os.environ.items() if name not in DIVERSIONS}
    kept.pop("PYTHONDONTWRITEBYTECODE", None)
    lines: list[str] = []
    with subprocess.Popen(
        [str(word) for word in command],
        cwd=ROOT,
        env={**kept, "PYTHONNOUSERSITE": "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            lines.append(line)
            if line.startswith(LOADED):
                loaded.append(line)
                if len(loaded) % 40 == 0:
                    say(f"  {len(loaded)} packages loaded")
    if VENV.is_dir():
        with LOG.open("a", encoding="utf-8") as log:
            log.writelines([f"$ {' '.join(map(str, command))}\n", *lines])
    if process.returncode and not may_fail:
        sys.stderr.writelines(lines[-12:])
        raise CannotInstall(
            f"could not {purpose} (exit {process.returncode}); the lines above say why, and "
            f".venv/{LOG.name} has all. The first time needs the network. Then try again."
        )


def say(text: str) -> None:
    """To the terminal, at once, even when make's output goes through a pipe."""
    print(text, flush=True)


def lock_this_file() -> object:
    """Two terminals do not install into one environment: the second waits for the first."""
    file = Path(__file__).open("rb")  # noqa: SIM115 (closing it would release the lock)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        say("Another make is installing into .venv; waiting for it.")
        fcntl.flock(file, fcntl.LOCK_EX)
    except OSError:
        pass  # a file system without locks
    return file


def main() -> int:
    """Install what the command line asks for. Exit status 1 comes with one sentence."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", nargs="?", choices=["lab", "test", "website"], default="lab")
    parser.add_argument("--fits", action="store_true", help="only: can labkit run on this Python?")
    arguments = parser.parse_args()
    reason = misfit()
    if arguments.fits:
        print(reason or "", end="")
        return 0 if reason is None else 1
    try:
        if reason is not None:
            raise CannotInstall(reason or "labkit needs Python 3.11, 3.12 or 3.13.")
        held = lock_this_file()
        stamp = read_stamp()
        build = tensorflow_build(os.environ.get("TENSORFLOW", ""), stamp.get("tensorflow"))
        # What was installed stays: `make lab` after `make test` renews both.
        known = {part for part in stamp.get("locks", {}) if lock_of(part, build).is_file()}
        need = wanted(build, sorted({"lab", arguments.what, *known}))
        if not (stamp and is_complete(stamp, need)):
            install(stamp, need)
        del held
    except CannotInstall as fault:
        print(f"labkit: {fault}", file=sys.stderr)
        return 1
    except OSError as fault:
        print(f"labkit: {fault}. If the disk is full, make room, and try again.", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nlabkit: interrupted. The next make begins afresh.", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
