"""Makes .venv: `python requirements/install.py lab`, or `test`; `--fits` only says if it could.

Everything comes from the locks beside this file, with hashes. What is finished is written into a
stamp at the very end, so a second call starts in a moment and an interrupted one begins afresh.
Only the standard library is used here, because nothing else exists yet.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import sysconfig
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
STAMP, UNFINISHED, LOG = (
    VENV / name for name in ("labkit.json", "labkit.unfinished", "labkit.log")
)
SIZES = {  # to load, on disk (GB)
    "cpu": (0.5, 2.5),
    "cuda": (3.5, 8.0),
}
LOADED = ("Collecting ", "Processing ", "Requirement already ")  # pip's first word on a package


class CannotInstall(Exception):
    """One sentence for the person at the terminal."""


def misfit() -> str | None:
    """Why labkit cannot live on this Python; "" when only its version is wrong; None if it can.

    The wheels that count are TensorFlow's: CPython 3.11 to 3.13; Linux with glibc on x86_64 and
    aarch64; macOS on Apple silicon.
    """
    here = f"{sys.executable} (Python {platform.python_version()})"
    if not (3, 11) <= sys.version_info[:2] <= (3, 13):
        return ""
    if platform.python_implementation() != "CPython" or sysconfig.get_config_var("Py_GIL_DISABLED"):
        return f"{here} is not the usual CPython, and TensorFlow is built for no other."
    system, machine = platform.system(), platform.machine()
    if system == "Darwin" and machine != "arm64":
        return (
            f"{here} runs on Intel, for which TensorFlow no longer exists on macOS: on Apple "
            "silicon install an arm64 Python; on an Intel Mac use Binder, Colab or a JupyterHub "
            "(README.md)."
        )
    if system == "Linux" and not _glibc():
        return (
            f"{here} uses musl, for which TensorFlow has no wheel: "
            "use a distribution with glibc (Debian, Ubuntu, Fedora), or a container of one."
        )
    if system not in ("Darwin", "Linux") or machine not in ("arm64", "aarch64", "x86_64"):
        return (
            f"{here} runs on {system} {machine}, for which TensorFlow has no wheel; see README.md."
        )
    try:
        import ensurepip
        import venv  # noqa: F401

        ensurepip.version()
    except ImportError:
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        return (
            f"{here} cannot make virtual environments: "
            f"on Debian and Ubuntu, `sudo apt install python{version}-venv`, then try again."
        )
    return None


def _glibc() -> bool:
    try:
        return (os.confstr("CS_GNU_LIBC_VERSION") or "").startswith("glibc")
    except (OSError, ValueError):
        return False


def has_nvidia_gpu() -> bool:
    """Whether a driver answers for a GPU; one that is there and answers for none does not count."""
    if shutil.which("nvidia-smi"):
        try:
            answer = subprocess.run(
                ["nvidia-smi", "-L"], capture_output=True, text=True, timeout=30
            )
        except (OSError, subprocess.TimeoutExpired):
            return False
        return answer.returncode == 0 and answer.stdout.startswith("GPU ")
    devices = Path("/proc/driver/nvidia/gpus")
    return devices.is_dir() and any(devices.iterdir()) and Path("/dev/nvidiactl").exists()


def tensorflow_build(asked: str, present: object) -> str:
    """`cpu` or `cuda`: what was asked for, else what is there, else what suits the machine."""
    possible = platform.system() == "Linux" and platform.machine() == "x86_64"
    if asked not in ("", "cpu", "cuda"):
        raise CannotInstall(f"TENSORFLOW={asked} is neither cpu nor cuda.")
    if asked == "cuda" and not possible:
        raise CannotInstall(
            "TENSORFLOW=cuda exists on Linux x86_64 only; leave it out, or say TENSORFLOW=cpu."
        )
    if asked:
        return asked
    useful = "cuda" if possible and has_nvidia_gpu() else "cpu"
    if present == "cpu" and useful == "cuda":
        say("This machine has an NVIDIA GPU; to use it, once: make lab TENSORFLOW=cuda (3.5 GB).")
    return str(present) if present in ("cpu", "cuda") else useful


def wanted(build: str, parts: list[str]) -> dict[str, object]:
    """What the stamp says of an environment that needs nothing more."""
    locks = {"lab": "lab-cuda.txt" if build == "cuda" else "lab.txt", "test": "test.txt"}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    return {
        "venv": str(VENV),
        "python": f"{sys.implementation.cache_tag} {platform.machine()}",
        "tensorflow": build,
        "project": _digest(json.dumps([project["project"], project["build-system"]]).encode()),
        "locks": {p: _digest((ROOT / "requirements" / locks[p]).read_bytes()) for p in parts},
    }


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def found() -> dict[str, object]:
    """What the stamp of the present .venv says; empty when there is none that can be believed."""
    try:
        stamp = json.loads(STAMP.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return stamp if isinstance(stamp, dict) and isinstance(stamp.get("locks"), dict) else {}


def enough(stamp: dict[str, object], need: dict[str, object]) -> bool:
    """Whether the environment with this stamp needs nothing more."""
    if not stamp or not _python_of_venv_runs():
        return False
    locks = {**stamp["locks"], **need["locks"]}  # type: ignore[dict-item]
    facts = {fact: value for fact, value in stamp.items() if fact != "packages"}
    return {**facts, "locks": locks} == {**need, "locks": locks} and (
        locks == stamp["locks"] and missing(stamp) == []
    )


def missing(stamp: dict[str, object]) -> list[str] | None:
    """Which packages the stamp names and .venv no longer has; None if it does not say."""
    named, here = stamp.get("packages"), packages()
    return [name for name in named if name not in here] if isinstance(named, list) else None


def packages() -> list[str]:
    """The packages in .venv as their folders name them, each with its version."""
    return sorted(folder.name for folder in _site().glob("*.dist-info"))


def _site() -> Path:
    # By name, because Debian's own Python has another idea of where packages go.
    places = {"base": str(VENV), "platbase": str(VENV)}
    return Path(sysconfig.get_path("purelib", "venv", vars=places))


def must_start_afresh(stamp: dict[str, object], need: dict[str, object]) -> str | None:
    """Why the present .venv cannot be added to, or None. One made by hand, with no stamp, can."""
    if not VENV.exists():
        return "there is none yet"
    if UNFINISHED.exists():
        return "the last installation was interrupted"
    if not _python_of_venv_runs():
        return "its Python does not run here"
    for fact, reason in (
        ("venv", "the checkout has moved"),
        ("python", "another Python was chosen"),
        ("tensorflow", "the CPU and CUDA builds of TensorFlow own the same files"),
    ):
        if stamp and stamp.get(fact) != need[fact]:
            return reason
    return None


def _python_of_venv_runs() -> bool:
    ask = "import sys; print(sys.implementation.cache_tag)"
    try:
        answer = subprocess.run(
            [VENV / "bin" / "python", "-c", ask], capture_output=True, text=True
        )
    except OSError:
        return False
    return answer.returncode == 0 and answer.stdout.strip() == sys.implementation.cache_tag


def install(need: dict[str, object], parts: list[str]) -> None:
    """Bring .venv to what is wanted; afterwards, and only then, the stamp says so."""
    if VENV.is_file() and not VENV.is_symlink():
        raise CannotInstall(f"{VENV} is a file, and labkit's folder goes there: move it away.")
    stamp, build = found(), str(need["tensorflow"])
    afresh = must_start_afresh(stamp, need)
    lab_is_new = bool(afresh) or stamp.get("locks", {}).get("lab") != need["locks"]["lab"]  # type: ignore[attr-defined,index]
    if lab_is_new:
        to_load, on_disk = SIZES[build]
        free = shutil.disk_usage(ROOT).free / 1e9
        if afresh and free < on_disk:
            raise CannotInstall(
                f"{ROOT} has {free:.1f} GB free and the {build.upper()} environment needs "
                f"{on_disk:g} GB: make room, or clone to a larger disk."
            )
        say(
            f"Installing TensorFlow ({build.upper()}) and JupyterLab into .venv with Python "
            f"{platform.python_version()}: loads up to {to_load:g} GB, takes 2 to 10 minutes."
        )
    # What went missing may be another part's, which this call does not put back.
    gone = missing(stamp)
    still = stamp["locks"] if not afresh and gone == [] else {}
    if gone and not lab_is_new:
        say(f"Mending .venv, where these are missing or have changed: {', '.join(gone)}.")
    if afresh:
        if VENV.exists():
            say(f"Building .venv from scratch: {afresh}.")
        if VENV.is_symlink():
            VENV.unlink()
        shutil.rmtree(VENV, ignore_errors=True)
        VENV.mkdir()
        UNFINISHED.touch()
        base = getattr(sys, "_base_executable", None) or sys.executable
        _run([base, "-m", "venv", VENV], "make a virtual environment", log=None)
    UNFINISHED.touch()
    STAMP.unlink(missing_ok=True)
    python = VENV / "bin" / "python"
    if not (VENV / "bin" / "pip").exists():  # uv makes environments without pip
        _run([python, "-m", "ensurepip", "--upgrade"], "install pip")
    pip = [python, "-m", "pip", "--disable-pip-version-check", "--no-input", "install"]
    for part in parts:
        lock = f"requirements/{'lab-cuda' if (part, build) == ('lab', 'cuda') else part}.txt"
        total = (ROOT / lock).read_text(encoding="utf-8").count("==")
        # The lock names everything that is needed, so there is nothing left to resolve.
        command = [*pip, "--no-deps", "--require-hashes", "-r", lock]
        _run(command, f"install {lock}", counting=total)
    # Hatchling and editables are in the lock, so labkit itself needs no network.
    _run([*pip, "--no-deps", "--no-build-isolation", "-e", "."], "install labkit")
    # Without byte code each start of TensorFlow takes twice as long, and an environment that uv
    # made, or a machine with PYTHONDONTWRITEBYTECODE, has none. What is compiled is skipped.
    _run([python, "-m", "compileall", "-q", "-j", "2", _site()], "compile", may_fail=True)
    _write_stamp({**need, "locks": {**still, **need["locks"]}})  # type: ignore[dict-item]
    say("Installed.")


def _write_stamp(stamp: dict[str, object]) -> None:
    draft = STAMP.with_suffix(".draft")
    draft.write_text(
        json.dumps({**stamp, "packages": packages()}, indent=1) + "\n", encoding="utf-8"
    )
    draft.replace(STAMP)
    UNFINISHED.unlink(missing_ok=True)


def _run(
    command: list[object],
    purpose: str,
    counting: int = 0,
    may_fail: bool = False,
    log: Path | None = LOG,
) -> None:
    words = [str(word) for word in command]
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    # A PYTHONPATH or a user site would let pip take foreign packages for installed ones.
    environment.pop("PYTHONPATH", None)
    environment["PYTHONNOUSERSITE"] = "1"
    for diversion in ("PIP_USER", "PIP_TARGET", "PIP_PREFIX", "PIP_ROOT"):
        environment.pop(diversion, None)
    lines: list[str] = []
    process = subprocess.Popen(
        words,
        cwd=ROOT,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    assert process.stdout is not None
    try:
        for line in process.stdout:
            lines.append(line)
            _progress(line, lines, counting)
        process.wait()
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
            process.wait()
        if counting and sys.stderr.isatty():
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
        if log:
            with log.open("a", encoding="utf-8") as file:
                file.write(f"$ {' '.join(words)}\n{''.join(lines)}\n")
    if process.returncode and not may_fail:
        where = f" The whole log: {log.relative_to(ROOT)}" if log else ""
        sys.stderr.writelines(lines[-12:])
        raise CannotInstall(
            f"`{' '.join(words[:4])} …` could not {purpose} (exit {process.returncode}); the lines "
            f"above say why. Mend that (the first time needs the network) and try again.{where}"
        )


def _progress(line: str, lines: list[str], counting: int) -> None:
    if not counting or not line.startswith((*LOADED, "Installing collected")):
        return
    seen = sum(earlier.startswith(LOADED) for earlier in lines)
    text = f"  {seen} of at most {counting} packages"
    if line.startswith("Installing"):
        text = f"  {seen} packages loaded, now unpacking"
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)
    elif seen % 40 == 0 or line.startswith("Installing"):
        say(text)


def say(text: str) -> None:
    """To the terminal, at once, even when make's output goes through a pipe."""
    print(text, flush=True)


def one_at_a_time() -> object:
    """Hold this file's lock, so that two terminals do not install into one environment."""
    file = Path(__file__).open("rb")  # noqa: SIM115 (closing it would give the lock back)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        say("Another make is installing into .venv; waiting for it.")
        fcntl.flock(file, fcntl.LOCK_EX)
    except OSError:
        pass  # a file system without locks: nothing to be done about it
    return file


def main() -> int:
    """Install what the command line asks for. Exit status 1 comes with one sentence."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", nargs="?", choices=["lab", "test"], default="lab")
    parser.add_argument("--fits", action="store_true", help="only: can labkit live on this Python?")
    arguments = parser.parse_args()
    reason = misfit()
    if arguments.fits:
        print(reason or "", end="")
        return 0 if reason is None else 1
    try:
        if reason is not None:
            raise CannotInstall(reason or "labkit needs Python 3.11, 3.12 or 3.13.")
        parts = ["lab", "test"] if arguments.what == "test" else ["lab"]
        held = one_at_a_time()
        build = tensorflow_build(os.environ.get("TENSORFLOW", ""), found().get("tensorflow"))
        need = wanted(build, parts)
        if not enough(found(), need):
            install(need, parts)
        del held
    except CannotInstall as fault:
        print(f"labkit: {fault}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nlabkit: interrupted. The next make begins afresh.", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
