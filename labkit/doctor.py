"""`labkit doctor`: is this machine ready for class?

$ labkit doctor
pass  GPU driver       580.65.06: 8 × NVIDIA H100

Each check runs in a process of its own and for a limited time: a driver that hangs or a library
that crashes costs one line only.
"""

import json
import os
import pkgutil
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Literal, NamedTuple

from labkit.kinds import LabError, bytes_text


class CheckResult(NamedTuple):
    """What one check found, and what to do about it unless it passed."""

    status: Literal["pass", "warn", "fail"]
    found: str
    do: str = ""


class Check(NamedTuple):
    """The function "module:name", which takes no arguments and returns a CheckResult."""

    name: str
    function: str
    seconds: float = 30


CHECKS = (
    Check("GPU driver", "labkit.doctor:check_driver"),
    Check("TensorFlow", "labkit.doctor:check_tensorflow", seconds=120),
    Check("Memory", "labkit.doctor:check_memory"),
    Check("Disk", "labkit.doctor:check_disk"),
    Check("Data", "labkit.doctor:check_data"),
    Check("Ranks", "labkit.doctor:check_ranks", seconds=60),
    Check("Links", "labkit.doctor:check_links", seconds=60),
    Check("MPI", "labkit.doctor:check_mpi"),
    Check("Slurm", "labkit.doctor:check_slurm"),
    Check("Centre", "labkit.doctor:check_centre"),
    Check("Frameworks", "labkit.doctor:check_frameworks"),
    Check("Kernel", "labkit.doctor:check_kernel"),
)
_RENEW = "Run `make lab`; if that changes nothing, `make clean` and then `make lab`."
_MEMORY = 3_000_000_000  # TensorFlow and a lesson's data take about 2 GB
_DISK = 2_000_000_000  # MNIST, CIFAR-100 and saved models


def main(job: bool = False) -> int:
    """Print a line for each check; 0 when nothing fails, 1 when something does."""
    ready = True
    for check in (*CHECKS, *[Check("Job", "labkit.doctor:check_job", seconds=420)] * job):
        line = examine(check)
        ready = ready and line.status != "fail"
        do = "" if line.status == "pass" else f"\n{'do':>21}:  {line.do}"
        print(f"{line.status}  {check.name:<15}  {line.found}{do}", flush=True)
    print("Ready for class." if ready else "Not ready: fix what fails.")
    return 0 if ready else 1


def examine(check: Check) -> CheckResult:
    """Run one check in a process of its own."""
    program = f"from labkit.doctor import answer; answer({check.function!r})"
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-c", program],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=check.seconds,
            encoding="utf-8",
            errors="replace",
            check=False,
        )
    except subprocess.TimeoutExpired:
        do = "Run `labkit doctor` again when this machine is less busy."
        return CheckResult("fail", f"gave no answer within {check.seconds:g} s", do)
    last = (done.stdout.splitlines() or ["no message"])[-1]
    if done.returncode == 0:
        return CheckResult(*json.loads(last))
    return CheckResult("fail", f"ended with code {done.returncode}: {last[:300]}", _RENEW)


def answer(function: str) -> None:
    """In the check's own process: run it and print its line."""
    try:
        line = pkgutil.resolve_name(function)()
    except LabError as fault:
        line = CheckResult("fail", str(fault), "Do what it says, then run `labkit doctor` again.")
    except BaseException as fault:  # noqa: BLE001 (whatever it is, doctor reports it)
        line = CheckResult(
            "fail", f"{type(fault).__name__}: {' '.join(str(fault).split())}", _RENEW
        )
    print(f"\n{json.dumps(line)}", flush=True)
    os._exit(0)  # threads of a broken library must not keep a finished check alive


def check_driver() -> CheckResult:
    """No driver is fine; a broken one is not, because TensorFlow then silently uses the CPU."""
    from labkit.hardware import gpus

    here = gpus.read_gpus()
    notes = " ".join(here.notes)
    if here.state == "none":
        return CheckResult("pass", notes)
    found = f"{here.version}: {gpus.names_text(here.gpus) or 'no GPU'} {notes}".strip()
    if here.state == "broken" or "is lost" in notes:
        return CheckResult("fail", notes, "Restart the machine, or run lessons on CPUs.")
    return CheckResult(
        "pass" if here.gpus else "warn", found, "Ask for access to a GPU, or use CPUs."
    )


def check_tensorflow() -> CheckResult:
    """TensorFlow loads, sees the driver's GPUs, and adds up the numbers of two replicas."""
    from labkit.hardware import devices, gpus, replicas

    tf = devices.import_tensorflow()
    two = replicas(2)
    strategy = two.strategy()

    @tf.function(autograph=False)  # type: ignore[untyped-decorator,unused-ignore]
    def added() -> object:
        return strategy.run(
            lambda: tf.distribute.get_replica_context().all_reduce("sum", tf.ones([4]))
        )

    sums = [value.numpy().tolist() for value in strategy.experimental_local_results(added())]
    found = f"{tf.__version__}, {two.describe()}"
    if sums != [[2.0] * 4] * 2:
        return CheckResult("fail", f"{found}: the all-reduce of 1 and 1 is {sums}", _RENEW)
    known = gpus.read_gpus().gpus
    if known and not devices.logical_gpus():
        do = (
            "Unset CUDA_VISIBLE_DEVICES, which hides GPUs, run `make lab TENSORFLOW=cuda`, which "
            "exists for Linux on x86_64, or update the NVIDIA driver."
        )
        return CheckResult("warn", f"{found}, but the driver has {len(known)} GPUs", do)
    return CheckResult("pass", f"{found}: all-reduce works")


def check_memory() -> CheckResult:
    """Enough main memory for TensorFlow and a lesson's data."""
    from labkit.hardware.machine import read_memory

    here = read_memory()
    found = f"{bytes_text(here.available)} available of {bytes_text(here.limit or here.total)}"
    do = "End other programs and other notebooks' kernels."
    return CheckResult("pass" if here.available >= _MEMORY else "warn", found, do)


def check_disk() -> CheckResult:
    """Room for the data in the cache and for saved models beside the notebooks."""
    from labkit import datasets

    cache = datasets.cache_folder()
    there = next(path for path in (cache, *cache.parents) if path.exists())
    free = {"data": shutil.disk_usage(there).free, "this folder": shutil.disk_usage(".").free}
    found = ", ".join(f"{bytes_text(count)} free for {name}" for name, count in free.items())
    do = "Make room, or set LABKIT_CACHE to a folder on another disk."
    return CheckResult("pass" if min(free.values()) >= _DISK else "warn", found, do)


def check_data() -> CheckResult:
    """What lessons will train on; this downloads nothing."""
    from labkit import datasets

    there = {one.name: one.is_here() for one in (datasets.MNIST, datasets.FASHION)}
    found = " and ".join(name for name, here in there.items() if here) or "no published images"
    do = "Call labkit.datasets.mnist() with network access, before class."
    return CheckResult("pass" if there["MNIST"] else "warn", f"{found} on this machine", do)


def check_ranks() -> CheckResult:
    """Two processes, started as the lectures on many workers start them."""
    from labkit.cluster import Cluster
    from labkit.cluster.links.namespaces import private_network_refused

    refused = private_network_refused()
    network = "shared" if refused else "own"
    with Cluster(ranks=2, network=network, keep_warm=False) as cluster:
        cluster.run(abs, show=False)
        found = f"two processes {cluster.engine.describe()}"
    if refused:
        do = "Read what labkit.cluster says before you write network='shared'."
        return CheckResult("warn", f"{found}; no private network: {refused}", do)
    return CheckResult("pass", found)


def check_links() -> CheckResult:
    """None are fine: the lectures then model what they would measure."""
    from labkit.cluster import Cluster
    from labkit.cluster.links.namespaces import private_network_refused

    if refused := private_network_refused():
        return CheckResult("pass", f"none with a rate: times over links are modelled. {refused}")
    with Cluster(ranks=2, link="1 Gbit/s", keep_warm=False) as cluster:
        cluster.run(abs, show=False)
        found = (
            "two hosts, joined by links with a rate" if cluster.has_links else "none with a rate"
        )
    return CheckResult("pass", found)


def check_mpi() -> CheckResult:
    """None is fine: only what runs under mpiexec needs it."""
    from labkit.mpi.run import mpiexec

    try:
        return CheckResult("pass", mpiexec())
    except LabError as fault:
        return CheckResult("pass", f"none, and the lectures work without. {fault}")


def check_slurm() -> CheckResult:
    """None is fine: the lecture on Slurm then shows what was recorded."""
    from labkit.cluster.slurm.queue import partitions, slurm_version, why_no_slurm

    missing = why_no_slurm()
    found = f"none used: {missing}" if missing else f"{slurm_version()}, partitions {partitions()}"
    return CheckResult("pass", found)


def check_centre() -> CheckResult:
    """No file is fine: jobs then ask for what Slurm itself has."""
    from labkit.centre import FILE, centre

    found = centre().file
    return CheckResult("pass", f"{found}; labkit doctor --job tries it" if found else f"no {FILE}")


def check_job() -> CheckResult:
    """`--job`: two ranks in a job, as the centre's file asks; what each finds on its node."""
    from labkit.centre import centre
    from labkit.cluster import Cluster

    asks = centre()
    with Cluster(2, "slurm", name="labkit-doctor", time="5", wait=300.0) as cluster:
        run = cluster.start(look_around, dict(asks.variables), asks.data, show=False).finish(60)
    ranks = run.results.values()
    problems = {text for rank in ranks for text in rank[1]}
    if run.fault:
        problems |= {line.text for line in run.lines}
    found = str(run.fault or f"two ranks on {' and '.join(sorted({rank[0] for rank in ranks}))}")
    if problems or run.fault:
        do = f"Correct {asks.file}: {'; '.join(sorted(problems))}."
        return CheckResult("fail", found, do)
    return CheckResult("pass", f"{found} with {len(asks.variables)} variables of {asks.file}")


def look_around(rank: int, variables: dict[str, str], data: str) -> tuple[str, list[str]]:
    """In a rank of the job: its node, and what is not as the file says."""
    problems = [
        f"{name} is {os.environ.get(name)!r} in the job, and {text!r} in [variables]"
        for name, text in variables.items()
        if os.environ.get(name) != text
    ]
    if data and not Path(data).is_dir():
        problems.append(f"data: there is no folder {data} on the node")
    return os.environ.get("SLURMD_NODENAME", f"rank {rank}"), problems


def check_frameworks() -> CheckResult:
    """What is not built is fine: the lectures then show what was recorded."""
    from labkit import environments

    try:
        known = environments.known().values()
    except LabError as fault:
        return CheckResult("pass", f"none. {fault}")
    return CheckResult("pass", "; ".join(f"{one.name} {one.state}" for one in known))


def check_kernel() -> CheckResult:
    """Not built is fine: notebooks of PyTorch then open on the course's Python and say so."""
    from jupyter_client.kernelspec import find_kernel_specs

    from labkit import kernel

    name = kernel.SPEC["display_name"]
    if kernel.SPEC["name"] not in find_kernel_specs():
        return CheckResult("warn", f"{name} is not installed beside this Jupyter", _RENEW)
    if why := kernel.missing("torch"):
        return CheckResult("pass", f"{name}, on the course's Python. {why}")
    return CheckResult("pass", f"{name}, on Python {kernel.python_version('torch')}")
