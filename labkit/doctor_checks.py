"""The checks of `labkit doctor`: each asks one thing and says what to do about the answer."""

from __future__ import annotations

import importlib
import importlib.metadata
import platform
import shutil
import socket
import sys
import tempfile
from pathlib import Path

from labkit.doctor import Line
from labkit.kinds import bytes_text

__all__ = [
    "all_reduce",
    "data",
    "disk",
    "driver",
    "jupyter",
    "kernel",
    "memory",
    "mpi",
    "ports",
    "python",
    "ranks",
    "slurm",
    "tensorflow",
    "widgets",
]

_RENEW = "Run `make lab`; if that changes nothing, `make clean` and then `make lab`."
_OLDEST, _TOO_NEW = (3, 11), (3, 14)
# TensorFlow and a lesson's data take about 2 GB; below 1 GB the kernel dies in the middle.
_MEMORY_GOOD, _MEMORY_LEAST = 3_000_000_000, 1_000_000_000
# MNIST, CIFAR-100 and saved models.
_DISK_GOOD, _DISK_LEAST = 2_000_000_000, 500_000_000
_JUPYTER_PORT = 8888


def python() -> Line:
    """TensorFlow has wheels for some versions of Python only."""
    version = ".".join(map(str, sys.version_info[:3]))
    if _OLDEST <= sys.version_info[:2] < _TOO_NEW:
        return Line("Python", "pass", version)
    return Line("Python", "fail", f"{version}; the course needs 3.11 to 3.13", _RENEW)


def driver() -> Line:
    """No driver is fine; a broken one is not, because TensorFlow then silently uses the CPU."""
    from labkit.hardware import nvml

    here = nvml.read()
    notes = " ".join(here.notes)
    if here.state == "none":
        return Line("GPU driver", "pass", notes)
    if here.state == "broken":
        return Line("GPU driver", "fail", notes, "Do what the line says, or run lessons on CPUs.")
    names = [gpu.name or "a GPU that does not tell its name" for gpu in here.gpus]
    counted = ", ".join(f"{names.count(name)} × {name}" for name in dict.fromkeys(names))
    found = f"{here.version or 'unknown version'}: {counted or 'no GPU'}"
    if any("is lost" in note for note in here.notes):
        return Line("GPU driver", "fail", f"{found}. {notes}", "Restart the machine.")
    if not here.gpus:
        return Line("GPU driver", "warn", found, "Ask for access to a GPU, or use CPUs.")
    return Line("GPU driver", "pass", f"{found}. {notes}" if notes else found)


def tensorflow() -> Line:
    """TensorFlow loads, and sees the GPUs that the driver has."""
    from labkit.hardware import nvml
    from labkit.hardware.tensorflow import import_tensorflow, logical_gpus

    tf = import_tensorflow()
    gpus = len(logical_gpus())
    found = f"{tf.__version__}, {gpus} GPU{'s' if gpus != 1 else ''}"
    if not gpus and (known := nvml.read().gpus):
        if all(gpu.cuda == "hidden" for gpu in known):
            found = f"{found}: CUDA_VISIBLE_DEVICES hides all of them"
            do = "Unset CUDA_VISIBLE_DEVICES to use the GPUs."
            return Line("TensorFlow", "warn", found, do)
        do = _cuda_advice(cuda_build=tf.test.is_built_with_cuda())
        return Line("TensorFlow", "warn", f"{found}, but the driver has {len(known)}", do)
    return Line("TensorFlow", "pass", found)


def _cuda_advice(*, cuda_build: bool) -> str:
    """What makes TensorFlow see the GPUs that the driver has."""
    if cuda_build:
        return (
            "Update the NVIDIA driver. If it is new: `make clean`, then `make lab TENSORFLOW=cuda`."
        )
    if (platform.system(), platform.machine()) == ("Linux", "x86_64"):
        return "Run `make lab TENSORFLOW=cuda`: this TensorFlow is the build for CPUs."
    return "Use CPUs: TensorFlow's build for GPUs exists for Linux on x86_64 only."


def all_reduce() -> Line:
    """Two replicas add up their numbers, which is what every lesson stands on."""
    from labkit.hardware import replicas
    from labkit.hardware.tensorflow import import_tensorflow

    two = replicas(2)
    tf = import_tensorflow()
    strategy = two.strategy()

    @tf.function  # type: ignore[untyped-decorator,unused-ignore]
    def added() -> object:
        def one() -> object:
            here = tf.distribute.get_replica_context()
            mine = tf.cast(here.replica_id_in_sync_group + 1, tf.float32) * tf.ones([4])
            return here.all_reduce("sum", mine)

        return strategy.run(one)

    sums = [value.numpy().tolist() for value in strategy.experimental_local_results(added())]
    if sums == [[3.0] * 4] * 2:
        return Line("All-reduce", "pass", f"1 + 2 = 3 on both of {two.describe()}, {two.reduction}")
    return Line("All-reduce", "fail", f"1 + 2 gave {sums} on {two.describe()}", _RENEW)


def memory() -> Line:
    """Enough main memory for TensorFlow and a lesson's data."""
    from labkit.hardware.host import read_memory

    here = read_memory()
    found = f"{bytes_text(here.available)} available of {bytes_text(here.limit or here.total)}"
    end = "End other programs and other notebooks' kernels."
    if here.available < _MEMORY_LEAST:
        return Line("Memory", "fail", found, end)
    if here.available < _MEMORY_GOOD:
        return Line("Memory", "warn", found, end)
    return Line("Memory", "pass", found)


def disk() -> Line:
    """Room for the data beside the cache and for saved models beside the notebooks."""
    from labkit import datasets

    places = {"data": datasets.cache_folder(), "course": _course()}
    free = {name: shutil.disk_usage(_existing(path)).free for name, path in places.items()}
    found = ", ".join(f"{bytes_text(count)} free for {name}" for name, count in free.items())
    scarce = min(free.values())
    if scarce < _DISK_LEAST:
        return Line("Disk", "fail", found, "Make room, or set LABKIT_CACHE to another disk.")
    if scarce < _DISK_GOOD:
        return Line("Disk", "warn", found, "Make room, or set LABKIT_CACHE to another disk.")
    return Line("Disk", "pass", found)


def data() -> Line:
    """What lessons will train on, without downloading anything."""
    from labkit import datasets

    folder = datasets.cache_folder()
    in_the_way = [path for path in (folder, *folder.parents) if path.exists() and not path.is_dir()]
    if in_the_way:
        found = f"data cannot be kept in {folder}: {in_the_way[0]} is a file"
        do = "Set LABKIT_CACHE to a folder of yours, or move the file away."
        return Line("Data", "warn", found, do)
    place = _existing(folder)
    try:
        with tempfile.TemporaryFile(dir=place):
            pass
    except OSError as fault:
        reason = fault.strerror or str(fault)
        found = f"nothing can be written to {place}: {reason}"
        do = "Set LABKIT_CACHE to a folder of yours, or data is loaded anew each time."
        return Line("Data", "warn", found, do)
    words = {
        "cached": "ready",
        "download": "not there yet",
        "synthetic": "not there, so synthetic data are used",
    }
    titles = {"mnist": "MNIST", "cifar100": "CIFAR-100"}
    states = {name: datasets.state(name) for name in titles}
    found = ", ".join(f"{titles[name]} {words[state]}" for name, state in states.items())
    if all(state == "cached" for state in states.values()):
        return Line("Data", "pass", found)
    missing = [name for name, state in states.items() if state != "cached"]
    calls = " and ".join(f"labkit.datasets.{name}()" for name in missing)
    do = f"Call {calls} once with network access, before class."
    if datasets.offline():
        do = f"Unset LABKIT_OFFLINE. {do}"
    return Line("Data", "warn", found, do)


def ports() -> Line:
    """Jupyter and its kernels talk over the machine's own loopback address."""
    try:
        with socket.create_server(("127.0.0.1", 0)) as here:
            address = here.getsockname()
            with socket.create_connection(address, timeout=5):
                pass
    except OSError as fault:
        reason = fault.strerror or str(fault)
        found = f"nothing can listen on 127.0.0.1: {reason}"
        do = "Ask your administrator to allow connections on the loopback address."
        return Line("Ports", "fail", found, do)
    try:
        with socket.create_server(("127.0.0.1", _JUPYTER_PORT)):
            pass
    except OSError:
        found = f"{_JUPYTER_PORT} is taken, perhaps by another JupyterLab"
        do = "Nothing: JupyterLab takes the next free port and prints it."
        return Line("Ports", "warn", found, do)
    return Line("Ports", "pass", f"loopback works, {_JUPYTER_PORT} is free")


def jupyter() -> Line:
    """JupyterLab and the Python kernel are installed."""
    return _packages("Jupyter", "jupyterlab", "ipykernel")


def widgets() -> Line:
    """What moves in a notebook needs a package here and an extension in the browser's page."""
    line = _packages("Widgets", "ipywidgets", "jupyterlab_widgets")
    folder = Path(sys.prefix, "share/jupyter/labextensions/@jupyter-widgets/jupyterlab-manager")
    if line.status == "pass" and not (folder / "package.json").is_file():
        return Line("Widgets", "fail", f"{line.found}; JupyterLab's extension is missing", _RENEW)
    return line


def kernel() -> Line:
    """The kernel called python3 is this environment's, not another Python of the machine."""
    from jupyter_client.kernelspec import KernelSpecManager, NoSuchKernel

    try:
        command = KernelSpecManager().get_kernel_spec("python3").argv
    except NoSuchKernel:
        return Line("Kernel", "fail", "there is no kernel called python3", _RENEW)
    program = shutil.which(command[0]) or command[0]
    # The kernel spec may say just "python"; Jupyter then takes the Python that runs it.
    ours = command[0] in ("python", "python3") or Path(program).absolute() in (
        Path(sys.executable).absolute(),
        Path(sys.prefix, "bin", "python3").absolute(),
        Path(sys.prefix, "bin", "python").absolute(),
    )
    if ours:
        return Line("Kernel", "pass", "python3 is this environment's")
    return Line("Kernel", "fail", f"python3 is another Python: {program}", _RENEW)


def ranks() -> Line:
    """Two processes, started as the lectures on many workers start them."""
    from labkit.cluster import Cluster

    with Cluster(ranks=2, keep_warm=False) as c:
        c.run(abs, show=False)
        return Line("Ranks", "pass", f"two processes {c.engine.describe()}")


def mpi() -> Line:
    """None is fine: everything but engine="mpi" and run_mpi works without."""
    from labkit.collectives.mpi.launch import mpiexec
    from labkit.kinds import LabError

    try:
        return Line("MPI", "pass", mpiexec()[0])
    except LabError as fault:
        return Line("MPI", "pass", f"none, and the lectures work without. {fault}")


def slurm() -> Line:
    """None is fine: lecture 10 then shows what was recorded."""
    from labkit.cluster.slurm_queue import partitions, slurm_version, why_no_slurm

    missing = why_no_slurm()
    if missing:
        return Line("Slurm", "pass", f"none used: {missing}")
    return Line("Slurm", "pass", f"{slurm_version()}, partitions {partitions()}")


def _packages(check: str, *names: str) -> Line:
    found, missing = [], []
    for name in names:
        try:
            importlib.import_module(name)
            found.append(f"{name} {importlib.metadata.version(name)}")
        except (ImportError, importlib.metadata.PackageNotFoundError) as fault:
            missing.append(f"{name} cannot be loaded ({fault})")
    if missing:
        return Line(check, "fail", ", ".join(missing + found), _RENEW)
    return Line(check, "pass", ", ".join(found))


def _course() -> Path:
    from labkit.cli import course_folder

    return course_folder() or Path.cwd()


def _existing(path: Path) -> Path:
    """The folder itself, or the nearest one above it that exists."""
    return next(p for p in (path.absolute(), *path.absolute().parents) if p.is_dir())
