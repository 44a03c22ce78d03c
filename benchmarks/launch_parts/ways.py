"""Ways of starting four ranks, each called by a process of its own that runs already.

`python ways.py NAME` answers each line of standard input with seconds from the call: to the moment
at which every rank's first line was there, and to the moment at which every rank's sum was.
"""

from __future__ import annotations

import contextlib
import io
import json
import multiprocessing
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from program import RANKS, program

PROGRAM = str(Path(__file__).with_name("program.py"))
TIMEOUT = 180.0


Seconds = tuple[float, float]
WANTED = {f"{what} of rank {rank}:" for what in ("line", "sum") for rank in range(RANKS)}


class Screen(io.TextIOBase):
    """Notes when each line came."""

    def __init__(self) -> None:
        self.began = time.perf_counter()
        self.came: dict[str, float] = {}

    def write(self, text: str) -> int:
        """A piece of a line, or more than one."""
        for one in WANTED:
            if one in text:
                self.came.setdefault(one, time.perf_counter() - self.began)
        return len(text)

    def seconds(self) -> Seconds:
        """When the last rank's first line was there, and the last rank's sum."""
        if missing := WANTED - set(self.came):
            raise SystemExit(f"never seen: {', '.join(sorted(missing))}")
        first, sums = (
            max(at for one, at in self.came.items() if one.startswith(what))
            for what in ("line", "sum")
        )
        return first, sums

    def read(self, lines: Iterable[str]) -> Seconds:
        """What a pipe brings; its end may not come, where a helper of a launcher holds it open."""
        for line in lines:
            self.write(line)
            if len(self.came) == len(WANTED):
                break
        return self.seconds()


def labkit_way() -> Iterator[Seconds]:
    """A block as in a notebook; the fork server stays warm for the next one."""
    import labkit

    while True:
        screen = Screen()
        shown = contextlib.redirect_stdout(screen)
        with shown, labkit.cluster(ranks=RANKS, keep_warm=True) as ranks:
            ranks.run(program, timeout=TIMEOUT)
        yield screen.seconds()


def spawn_way() -> Iterator[Seconds]:
    """multiprocessing with spawn; the ranks' standard output is a pipe."""
    context = multiprocessing.get_context("spawn")
    before = os.dup(1)
    while True:
        read, write = os.pipe()
        screen = Screen()
        os.dup2(write, 1)
        ranks = [context.Process(target=program, args=(rank,)) for rank in range(RANKS)]
        for rank in ranks:
            rank.start()
        os.dup2(before, 1)
        os.close(write)
        with os.fdopen(read) as lines:
            seconds = screen.read(lines)
        yield seconds
        for rank in ranks:
            rank.join()


def command_way(command: list[str], environment: dict[str, str]) -> Iterator[Seconds]:
    """A launcher that is a command."""
    while True:
        screen = Screen()
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment
        ) as started:
            assert started.stdout is not None
            seconds = screen.read(started.stdout)
        yield seconds


def ipyparallel_way() -> Iterator[Seconds]:
    """Four engines, started for the first program and kept for the next ones."""
    import ipyparallel as ipp

    screen = Screen()
    cluster = ipp.Cluster(n=RANKS, log_level=40)
    client = cluster.start_and_connect_sync()
    try:
        while True:
            results = [client[rank].apply_async(program, rank) for rank in range(RANKS)]
            until = time.perf_counter() + TIMEOUT
            while len(screen.came) < len(WANTED) and time.perf_counter() < until:
                for one in results:
                    screen.write(one.stdout)
                time.sleep(0.001)
            yield screen.seconds()
            screen = Screen()
    finally:
        cluster.stop_cluster_sync()


def mpiexec_way() -> Iterator[Seconds]:
    from labkit.mpi.run import environment as mpi_environment
    from labkit.mpi.run import mpiexec

    return command_way([mpiexec(), "-n", str(RANKS), sys.executable, PROGRAM], mpi_environment())


def torchrun_way() -> Iterator[Seconds]:
    command = [os.environ["LABKIT_TORCHRUN"], f"--nproc-per-node={RANKS}", "--standalone"]
    return command_way([*command, "--no-python", sys.executable, PROGRAM], dict(os.environ))


WAYS: dict[str, Callable[[], Iterator[Seconds]]] = {
    "labkit": labkit_way,
    "spawn": spawn_way,
    "mpiexec": mpiexec_way,
    "torchrun": torchrun_way,
    "ipyparallel": ipyparallel_way,
}


if __name__ == "__main__":
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    way = WAYS[sys.argv[1]]()
    print("ready", file=answers, flush=True)
    for _ in sys.stdin:
        print(json.dumps(next(way)), file=answers, flush=True)
    way.close()
