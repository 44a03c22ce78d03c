"""What srun starts as a task: a rank of a run (`main`), or of a batch script (`run_target`).

A rank of a run is two processes. The parent obeys lines that the client writes to srun's stdin and
that srun sends to all ranks: "go", "kill 1", "stacks 0 2". The end of stdin ends the rank. The
child is the rank itself. Both report to the client on stdout: srun labels every line with the rank,
and lines with MARK are for the client. An end is also reported on stderr, so that the client knows
that it has all lines. Each rank writes its result to a file.
"""

import importlib
import json
import os
import pickle
import select
import signal
import socket
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from labkit.cluster.ranks import in_rank, tf_config
from labkit.cluster.ranks.environment import THREADS, rank_environment
from labkit.cluster.ranks.ports import hold_port
from labkit.cluster.ranks.protocol import Addresses, RunSpec
from labkit.kinds import LabError
from labkit.linux import adopt_orphans, children

MARK = "\x1elabkit "  # then JSON: [what, value, reason] of an Event
LONGEST = 400  # characters of a line of a stack: srun cuts lines at 1024 bytes
SIGNALS = {"kill": signal.SIGKILL, "pause": signal.SIGSTOP}


def main(folder: str) -> None:
    """Be a rank of the run in this folder, until the client closes srun's stdin."""
    rank = int(os.environ["SLURM_PROCID"])
    spec: RunSpec = pickle.loads(Path(folder, "spec").read_bytes())  # noqa: S301 (ours: mode 0700)
    commands, nothing = os.dup(0), os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(  # type: ignore[union-attr]
            encoding="utf-8", errors="backslashreplace", line_buffering=True
        )
    port = spec.addresses[rank].rpartition(":")[2]
    held = hold_port(f":{port}")  # of all addresses: TensorFlow listens on all
    if held is None:
        host = os.environ["SLURMD_NODENAME"]
        why = f"Port {port} of {host} is taken. Each run has other ports: run again."
        _report("ended", 1, why, files=(1, 2))
        return
    go, our_go = os.pipe()
    our_stacks, stacks = os.pipe()
    reports = os.dup(1), os.dup(2)
    adopt_orphans()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            for file in (commands, our_go, our_stacks):
                os.close(file)
            link = _SrunLink(Path(folder, f"result{rank}"), go, reports)
            code = in_rank.run(rank, spec, variables_of_node(os.environ), stacks, link)
        finally:
            os._exit(code)
    os.close(stacks)
    os.set_blocking(our_stacks, False)
    _obey(rank, pid, commands, our_go, our_stacks)


class _SrunLink:
    """The rank's connection to the client."""

    def __init__(self, result: Path, go: int, reports: tuple[int, int]) -> None:
        self._result, self._go, self._reports = result, go, reports

    def started(self) -> bool:
        _report("started", os.getpid(), files=self._reports[:1])
        return bool(os.read(self._go, 1))

    def finished(self, how: in_rank.How, payload: bytes) -> None:
        self._result.write_bytes(payload)
        _report(how, files=self._reports)
        if how == "returned":
            os.read(self._go, 1)  # until the parent kills it: other ranks may need this process


def _obey(rank: int, pid: int, commands: int, go: int, stacks: int) -> None:
    """Do, in the parent, what the client orders, and report how the rank ended."""
    child = os.pidfd_open(pid)
    watched, unread, stack = [commands, stacks, child], b"", b""
    while commands in watched:
        ready = select.select(watched, (), ())[0]
        if stacks in ready or child in ready:
            stack = _report_stack(stacks, stack)
        if child in ready:
            code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            watched = [commands]
            _report("ended", code, files=(1, 2))
        if commands in ready:
            data = os.read(commands, 1 << 16)
            *whole, unread = (unread + data).split(b"\n")
            for line in whole:
                what, *ranks = line.decode().split()
                if what == "go":
                    os.write(go, b"g")
                elif str(rank) in ranks and child in watched:
                    _do(what, pid)
            if not data:
                watched.remove(commands)
    # Kill the rank and all that it has started: orphans of it have become our children.
    while pids := children():
        for left in pids:
            os.kill(left, signal.SIGKILL)
        os.waitpid(-1, 0)


def _report_stack(file: int, partial: bytes) -> bytes:
    """Report whole lines that faulthandler has written. Returns the beginning of the next line."""
    with suppress(BlockingIOError):
        while data := os.read(file, 1 << 16):
            partial += data
    *lines, partial = partial.split(b"\n")
    for line in lines:
        _report("stack", line.decode(errors="replace")[:LONGEST] + "\n")
    return partial


def _do(what: str, pid: int) -> None:
    if what != "stacks":
        os.kill(pid, SIGNALS[what])
    elif not in_rank.ask_stack(pid):
        _report("paused")


def _report(what: str, value: Any = None, reason: str = "", files: tuple[int, ...] = (1,)) -> None:
    for file in files:
        with suppress(OSError):  # srun is gone: stdin ends, too
            os.write(file, f"{MARK}{json.dumps((what, value, reason))}\n".encode())


def variables_of_node(environ: Mapping[str, str]) -> dict[str, str]:
    """Returns what only the node knows: the rank's number there, its GPUs and cores.

    >>> variables_of_node({"SLURM_LOCALID": "1", "SLURM_NODEID": "0",
    ...     "SLURM_TASKS_PER_NODE": "2(x2)", "CUDA_VISIBLE_DEVICES": "0,1,2,3"})
    {'LOCAL_RANK': '1', 'LOCAL_WORLD_SIZE': '2', 'CUDA_VISIBLE_DEVICES': '1,3'}
    """
    counts = environ.get("SLURM_STEP_TASKS_PER_NODE") or environ["SLURM_TASKS_PER_NODE"]
    local, together = int(environ["SLURM_LOCALID"]), tf_config.counts_of(counts)
    ranks = together[int(environ["SLURM_NODEID"])]
    found = {"LOCAL_RANK": str(local), "LOCAL_WORLD_SIZE": str(ranks)}
    gpus = environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
    if len(gpus) >= ranks > 1:  # with --gpus-per-task each rank sees its own already
        found["CUDA_VISIBLE_DEVICES"] = ",".join(gpus[local::ranks])
    if cores := environ.get("SLURM_CPUS_PER_TASK"):
        found |= {name: cores for name in THREADS if name not in environ}
    return found


def run_target(target: str) -> int:
    """Run FILE.py:NAME on this rank of a batch job, and print what it returns."""
    os.environ.update(environment_of_batch_rank(os.environ))
    file, _, name = target.rpartition(":")
    path = Path(file).resolve()
    if not path.is_file():
        raise LabError(f"There is no file {path} on {socket.gethostname()}.")
    # What lies beside the program can be imported, as when the file itself is run.
    sys.path.insert(0, str(path.parent))
    value = getattr(importlib.import_module(path.stem), name)(int(os.environ["RANK"]))
    if value is not None:
        print(f"returned {value!r}", flush=True)
    return 0


def environment_of_batch_rank(environ: Mapping[str, str]) -> dict[str, str]:
    """Returns TF_CONFIG, RANK, WORLD_SIZE, MASTER_ADDR and the like, from srun's variables."""
    config = tf_config.from_slurm(environ)
    host, _, port = config.addresses[0].rpartition(":")
    # The last port of this step: ranks have the first ones.
    master = f"{host}:{int(port) + tf_config.STEP_PORTS - 1}"
    addresses = Addresses(config.addresses, master)
    common = rank_environment(["worker"] * config.ranks, addresses, config.rank)
    return variables_of_node(environ) | common
