"""`labkit doctor`: is this machine ready for class?

$ labkit doctor
pass  Python           3.11.7

Each check runs in a process of its own and for a limited time: a driver that hangs or a library
that crashes costs one line only.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Literal

from labkit.kinds import LabError, bytes_text

__all__ = ["CHECKS", "Check", "Line", "answer", "examine", "main"]


@dataclass(frozen=True)
class Line:
    """What one check found, and what to do about it; `do` is empty when there is nothing to do."""

    status: Literal["pass", "warn", "fail"]
    found: str
    do: str = ""
    check: str = ""

    def __str__(self) -> str:
        text = f"{self.status}  {self.check:<15}  {self.found}"
        return f"{text}\n      {'':<15}  do: {self.do}" if self.do else text


@dataclass(frozen=True)
class Check:
    """The function "module:name", which takes no arguments and returns a Line."""

    name: str
    function: str
    seconds: float = 30


CHECKS = (
    Check("Python", "labkit.doctor:check_python"),
    Check("GPU driver", "labkit.doctor:check_driver"),
    Check("TensorFlow", "labkit.doctor:check_tensorflow", seconds=120),
    Check("Memory", "labkit.doctor:check_memory"),
    Check("Disk", "labkit.doctor:check_disk"),
    Check("Data", "labkit.doctor:check_data"),
    Check("Ranks", "labkit.doctor:check_ranks", seconds=60),
    Check("MPI", "labkit.doctor:check_mpi"),
    Check("Slurm", "labkit.doctor:check_slurm"),
    Check("Jupyter", "labkit.doctor:check_jupyter"),
)

_AGAIN = "Run `labkit doctor` again when this machine is less busy."
_RENEW = "Run `make lab`; if that changes nothing, `make clean` and then `make lab`."
_MARK = "labkit-doctor-line "
# TensorFlow and a lesson's data take about 2 GB; below 1 GB the kernel dies in the middle.
_MEMORY_GOOD, _MEMORY_LEAST = 3_000_000_000, 1_000_000_000
# MNIST, CIFAR-100 and saved models.
_DISK_GOOD, _DISK_LEAST = 2_000_000_000, 500_000_000


def main() -> int:
    """Print a line for each check; 0 when nothing fails, 1 when something does."""
    counts: Counter[str] = Counter()
    for line in examine(CHECKS):
        counts[line.status] += 1
        print(line, flush=True)
    words = {"pass": "passed", "warn": "with a warning", "fail": "failed"}
    told = ", ".join(f"{counts[key]} {word}" for key, word in words.items() if counts[key])
    print(f"{'Not ready: fix what fails.' if counts['fail'] else 'Ready for class.'} {told}.")
    return 1 if counts["fail"] else 0


def examine(checks: Sequence[Check]) -> Iterator[Line]:
    """Run the checks, one after the other."""
    for check in checks:
        yield replace(_run(check), check=check.name)


def _run(check: Check) -> Line:
    program = f"from labkit.doctor import answer; answer({check.function!r})"
    # A file and not a pipe: what the check has started may keep a pipe open after its end.
    with tempfile.TemporaryFile("w+", errors="replace") as output:
        process = subprocess.Popen(
            [sys.executable, "-P", "-c", program],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        try:
            code = process.wait(check.seconds)
        except subprocess.TimeoutExpired:
            return Line("fail", f"gave no answer within {check.seconds:g} s", _AGAIN)
        finally:  # also after Ctrl-C: end the check and all that it has started
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        output.seek(0)
        lines = output.read().splitlines()
    for text in lines:
        if text.startswith(_MARK):
            return Line(**json.loads(text.removeprefix(_MARK)))
    ending = f"ended by signal {-code}" if code < 0 else f"ended with code {code}"
    return Line("fail", f"{ending}: {lines[-1][:300] if lines else 'no message'}", _RENEW)


def answer(function: str) -> None:
    """In the check's own process: run it and print its line."""
    try:
        module, _, name = function.partition(":")
        line = getattr(importlib.import_module(module), name)()
    except LabError as fault:
        line = Line("fail", str(fault), "Do what it says, then run `labkit doctor` again.")
    except BaseException as fault:  # noqa: BLE001 (whatever it is, doctor reports it)
        reason = " ".join(str(fault).split()) or "no reason given"
        line = Line("fail", f"{type(fault).__name__}: {reason[:300]}", _RENEW)
    print(f"\n{_MARK}{json.dumps(asdict(line))}", flush=True)
    os._exit(0)  # threads of a broken library must not keep a finished check alive


def check_python() -> Line:
    """TensorFlow has wheels for some versions of Python only."""
    version = platform.python_version()
    if (3, 11) <= sys.version_info[:2] < (3, 14):
        return Line("pass", version)
    return Line("fail", f"{version}; the course needs 3.11 to 3.13", _RENEW)


def check_driver() -> Line:
    """No driver is fine; a broken one is not, because TensorFlow then silently uses the CPU."""
    from labkit.hardware import gpus

    here = gpus.read_gpus()
    notes = " ".join(here.notes)
    if here.state == "none":
        return Line("pass", notes)
    if here.state == "broken":
        return Line("fail", notes, "Do what the line says, or run lessons on CPUs.")
    names = [gpu.name for gpu in here.gpus]
    counted = ", ".join(f"{names.count(name)} × {name}" for name in dict.fromkeys(names))
    found = f"{here.version}: {counted or 'no GPU'}. {notes}".removesuffix(". ")
    if "is lost" in notes:
        return Line("fail", found, "Restart the machine.")
    if not here.gpus:
        return Line("warn", found, "Ask for access to a GPU, or use CPUs.")
    return Line("pass", found)


def check_tensorflow() -> Line:
    """TensorFlow loads, sees the driver's GPUs, and adds up the numbers of two replicas."""
    from labkit.hardware import devices, gpus, replicas

    tf = devices.import_tensorflow()
    count = len(devices.logical_gpus())
    two = replicas(2)
    strategy = two.strategy()

    @tf.function  # type: ignore[untyped-decorator,unused-ignore]
    def added() -> object:
        def one() -> object:
            here = tf.distribute.get_replica_context()
            mine = tf.cast(here.replica_id_in_sync_group + 1, tf.float32) * tf.ones([4])
            return here.all_reduce("sum", mine)

        return strategy.run(one)

    sums = [value.numpy().tolist() for value in strategy.experimental_local_results(added())]
    found = f"{tf.__version__}, {count} GPU{'s' if count != 1 else ''}, {two.describe()}"
    if sums != [[3.0] * 4] * 2:
        return Line("fail", f"{found}: the all-reduce of 1 and 2 is {sums}", _RENEW)
    known = gpus.read_gpus().gpus
    if count or not known:
        return Line("pass", f"{found}: all-reduce works")
    hidden = all(gpu.visible is False for gpu in known)
    do = cuda_advice(hidden=hidden, cuda_build=tf.test.is_built_with_cuda())
    return Line("warn", f"{found}, but the driver has {len(known)}", do)


def cuda_advice(*, hidden: bool, cuda_build: bool) -> str:
    """What makes TensorFlow see the GPUs that the driver has."""
    if hidden:
        return "Unset CUDA_VISIBLE_DEVICES, which hides all GPUs."
    if cuda_build:
        return "Update the NVIDIA driver. If it is new: `make clean`, `make lab TENSORFLOW=cuda`."
    if (platform.system(), platform.machine()) == ("Linux", "x86_64"):
        return "Run `make lab TENSORFLOW=cuda`: this TensorFlow is the build for CPUs."
    return "Use CPUs: TensorFlow's build for GPUs exists for Linux on x86_64 only."


def check_memory() -> Line:
    """Enough main memory for TensorFlow and a lesson's data."""
    from labkit.hardware.machine import read_memory

    here = read_memory()
    found = f"{bytes_text(here.available)} available of {bytes_text(here.limit or here.total)}"
    do = "End other programs and other notebooks' kernels."
    return _enough(here.available, _MEMORY_GOOD, _MEMORY_LEAST, found, do)


def check_disk() -> Line:
    """Room for the data in the cache and for saved models beside the notebooks."""
    from labkit import datasets

    places = {"data": datasets.cache_folder(), "this folder": Path.cwd()}
    free = {name: shutil.disk_usage(_existing(path)).free for name, path in places.items()}
    found = ", ".join(f"{bytes_text(count)} free for {name}" for name, count in free.items())
    do = "Make room, or set LABKIT_CACHE to a folder on another disk."
    return _enough(min(free.values()), _DISK_GOOD, _DISK_LEAST, found, do)


def check_data() -> Line:
    """What lessons will train on; this downloads nothing."""
    from labkit import datasets

    place = _existing(datasets.cache_folder())
    if not os.access(place, os.W_OK) or not place.is_dir():
        found = f"data cannot be kept in {datasets.cache_folder()}"
        return Line("warn", found, "Set LABKIT_CACHE to a folder of yours.")
    titles = {"mnist": "MNIST", "cifar100": "CIFAR-100"}
    missing = [name for name in titles if datasets.state(name) != "cached"]
    if not missing:
        return Line("pass", f"{' and '.join(titles.values())} are here")
    found = f"{' and '.join(titles[name] for name in missing)} not downloaded yet"
    calls = " and ".join(f"labkit.datasets.{name}()" for name in missing)
    offline = "Unset LABKIT_OFFLINE. " if datasets.offline() else ""
    return Line("warn", found, f"{offline}Call {calls} with network access, before class.")


def check_ranks() -> Line:
    """Two processes, started as the lectures on many workers start them."""
    from labkit.cluster import Cluster
    from labkit.cluster.network import private_network_refused

    refused = private_network_refused()
    network = "shared" if refused else "own"
    with Cluster(ranks=2, network=network, keep_warm=False) as cluster:
        cluster.run(abs, show=False)
        found = f"two processes {cluster.engine.describe()}"
    if not refused:
        return Line("pass", found)
    do = "Read what labkit.cluster says before you write network='shared'."
    return Line("warn", f"{found}; no private network: {refused}", do)


def check_mpi() -> Line:
    """None is fine: only what runs under mpiexec needs it."""
    from labkit.mpi.run import mpiexec

    try:
        return Line("pass", mpiexec())
    except LabError as fault:
        return Line("pass", f"none, and the lectures work without. {fault}")


def check_slurm() -> Line:
    """None is fine: lecture 10 then shows what was recorded."""
    from labkit.cluster.slurm_queue import partitions, slurm_version, why_no_slurm

    missing = why_no_slurm()
    if missing:
        return Line("pass", f"none used: {missing}")
    return Line("pass", f"{slurm_version()}, partitions {partitions()}")


def check_jupyter() -> Line:
    """JupyterLab, its widgets, and a kernel "python3" that is this environment's Python."""
    from jupyter_client.kernelspec import KernelSpecManager

    names = ("jupyterlab", "ipykernel", "ipywidgets", "jupyterlab_widgets")
    for name in names:
        importlib.import_module(name)
    found = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in names)
    extension = "share/jupyter/labextensions/@jupyter-widgets/jupyterlab-manager/package.json"
    if not Path(sys.prefix, extension).is_file():
        return Line("fail", f"{found}; JupyterLab's extension for widgets is missing", _RENEW)
    program = KernelSpecManager().get_kernel_spec("python3").argv[0]
    # A kernel may name just "python"; Jupyter then takes the Python that runs it.
    if program not in ("python", "python3") and Path(program).parent != Path(sys.executable).parent:
        return Line("fail", f"the kernel python3 is another Python: {program}", _RENEW)
    return Line("pass", found)


def _enough(free: int, good: int, least: int, found: str, do: str) -> Line:
    if free < least:
        return Line("fail", found, do)
    return Line("warn", found, do) if free < good else Line("pass", found)


def _existing(path: Path) -> Path:
    """The path itself, or the nearest one above it that exists."""
    return next(p for p in (path.absolute(), *path.absolute().parents) if p.exists())
