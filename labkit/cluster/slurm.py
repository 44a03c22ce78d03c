"""Ranks on the nodes of a cluster: `sbatch` holds the nodes for the block, one `srun` is one run.

>>> with labkit.cluster(ranks=4, engine="slurm", partition="alpha") as c:      # doctest: +SKIP
...     c.run(program)

srun's pipes are the connection to the ranks: see slurm_rank. Nothing polls a shared folder; it only
holds the program and one result file a rank. TensorFlow's servers accept everybody: under Slurm
their ports are open to the other users of the nodes.
"""

from __future__ import annotations

import json
import os
import pickle
import re
import select
import shutil
import subprocess
import sys
import tempfile
import time as clock
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from labkit.arguments import number
from labkit.cluster import tf_config
from labkit.cluster.batch import Resources
from labkit.cluster.engine import (
    Addresses,
    Ended,
    Event,
    Job,
    Raised,
    Returned,
    Signal,
    Stack,
    Started,
    Wrote,
)
from labkit.cluster.slurm_queue import (
    QueueState,
    cancel,
    pause_after,
    run_slurm,
    slurm_environment,
    state_of,
    submit,
)
from labkit.cluster.slurm_rank import MARK
from labkit.kinds import LabError, seconds_text

__all__ = ["SlurmEngine"]

LABELLED = re.compile(rb"\s*(\d+): (.*)", re.DOTALL)
CHUNK = 1 << 16
SETTLING = 2.0  # seconds in which a job that ends comes to its end
STOPPING = 5.0  # seconds for ranks to end when srun's stdin ends
LEAVING = 10.0  # seconds for a cancelled job to be gone
# A shell outlives a killed notebook, and cancels the job when the pipe from it ends.
GUARD = 'read -r line; scancel "$1"; rm -rf -- "$2"'
RANK = "import sys; from labkit.cluster.slurm_rank import main; main(sys.argv[1])"


class SlurmEngine:
    """The engine. The batch script is printed before it is sent; the job ends with the block."""

    name = "slurm"

    def __init__(
        self,
        *,
        nodes: int | None = None,
        partition: str | None = None,
        time: str | int | None = None,
        account: str | None = None,
        memory: str | None = None,
        cpus: int | None = None,
        gpus: int | None = None,
        extra: Sequence[str] = (),
        wait: float = 600.0,
        folder: str | Path | None = None,
    ) -> None:
        """`wait`: seconds for the job to get its nodes. `folder`: one that all nodes can read."""
        self._wait = number("wait", wait, above=0)
        self._resources = Resources(
            ranks=nodes or 1,
            nodes=nodes,
            partition=partition,
            time=time,
            account=account,
            memory=memory,
            cpus=cpus,
            gpus=gpus,
            extra=extra if isinstance(extra, str) else tuple(extra),
        )
        self._within = Path.home() / ".labkit" / "runs" if folder is None else Path(folder)
        self.job = ""
        self.script = ""
        self.states: list[tuple[float, QueueState]] = []
        """The states of the job until it ran, with the seconds since it was sent."""
        self._folder: Path | None = None
        self._guard: subprocess.Popen[bytes] | None = None
        self._hosts: tuple[str, ...] = ()
        self._runs = 0
        self._run: _Run | None = None

    def open(self, ranks: int, start: float) -> None:
        """Show the script, send it, and wait for the nodes."""
        self._resources = replace(self._resources, ranks=ranks)
        run_slurm("sinfo", "--version")
        try:
            self._folder = _new_folder(self._within)
            self.script = f"{self._resources.header('/dev/null')}\n\nexec sleep infinity\n"
            print(self.script, flush=True)
            self.job = submit(self.script)
            self._guard = subprocess.Popen(
                ["sh", "-c", GUARD, "sh", self.job, str(self._folder)],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=slurm_environment(),
                start_new_session=True,
            )
            self._await_nodes()
            self._hosts = self._hosts_of_ranks()
        except BaseException:
            self.close()
            raise

    def addresses(self) -> Addresses:
        """Each run is a step of the job, with ports of its own."""
        self._raise_if_over()
        ports = tf_config.step_ports(int(self.job), self._runs)
        ranks = tuple(f"{host}:{port}" for host, port in zip(self._hosts, ports, strict=False))
        return Addresses(ranks, f"{self._hosts[0]}:{ports[-1]}")

    def start(self, job: Job) -> None:
        """Write the job to a file, and let srun start the ranks."""
        assert self._folder is not None
        folder = self._folder / f"run{self._runs}"
        self._runs += 1
        folder.mkdir()
        (folder / "job").write_bytes(pickle.dumps(job))
        command = [*self._srun(), "--label", "--wait=0", "--kill-on-bad-exit=0"]
        self._run = _Run([*command, sys.executable, "-c", RANK, str(folder)], job.ranks, folder)

    def events(self, timeout: float) -> list[Event]:
        """What the ranks have reported; where Slurm has ended them, why."""
        if self._run is None:
            return []
        events = self._run.events(timeout)
        ended = [e for e in events if isinstance(e, Ended) and (e.code < 0 or e.reason)]
        if ended and not (state := self._last_state()).running:
            return [replace(e, reason=str(state)) if e in ended else e for e in events]
        return events

    def ask_stacks(self, ranks: Collection[int]) -> None:
        """Each rank's parent asks it, on its node."""
        if self._run is not None:
            self._run.send("stacks", ranks)

    def signal(self, rank: int, what: Signal) -> None:
        """By the rank's parent."""
        if self._run is not None:
            self._run.send(what, [rank])

    def stop(self) -> None:
        """End srun's stdin, and with it the ranks; Slurm ends what they have started."""
        if self._run is not None:
            self._run.stop()
            self._run = None

    def close(self) -> None:
        """Cancel the job; give the nodes back."""
        try:
            self.stop()
            job, self.job = self.job, ""
            if job:
                _cancel(job)
        finally:
            if self._guard is not None:
                assert self._guard.stdin is not None
                self._guard.stdin.close()
                with suppress(subprocess.TimeoutExpired):
                    self._guard.wait(LEAVING)
                self._guard = None
            if self._folder is not None:
                shutil.rmtree(self._folder, ignore_errors=True)
                self._folder = None

    def describe(self) -> str:
        """Where the ranks run."""
        nodes = self.states[-1][1].nodes if self.states else ""
        return f"in Slurm job {self.job} on {nodes}" if nodes else "in a job of Slurm"

    def _srun(self) -> list[str]:
        """srun in the job, with all of it: runs come one after the other."""
        options = {"nodes": self._resources.nodes, "cpus-per-task": self._resources.cpus}
        return [
            "srun",
            f"--jobid={self.job}",
            f"--ntasks={self._resources.ranks}",
            "--overlap",
            "--distribution=block",
            *(f"--{name}={value}" for name, value in options.items() if value),
        ]

    def _hosts_of_ranks(self) -> tuple[str, ...]:
        """The node of each rank: only Slurm knows how it distributes them."""
        answer = run_slurm(*self._srun(), "--label", "printenv", "SLURMD_NODENAME")
        found = dict(line.split(": ") for line in answer.splitlines() if ": " in line)
        hosts = {int(rank): host.strip() for rank, host in found.items()}
        return tuple(hosts[rank] for rank in range(self._resources.ranks))

    def _raise_if_over(self) -> None:
        state = self._last_state()
        if not state.running:
            raise LabError(f"{state} Open a new cluster block for more runs.")

    def _last_state(self) -> QueueState:
        """Slurm says why a job ends a moment after its ranks have ended."""
        until = clock.monotonic() + SETTLING
        while (state := state_of(self.job)).state == "COMPLETING" and clock.monotonic() < until:
            clock.sleep(0.1)
        return state

    def _await_nodes(self) -> None:
        began, shown = clock.monotonic(), ""
        while True:
            state, waited = state_of(self.job), clock.monotonic() - began
            if str(state) != shown:
                shown = str(state)
                self.states.append((waited, state))
                print(shown, flush=True)
            if state.running:
                return
            if state.hopeless:
                raise LabError(
                    f"Slurm job {self.job} would wait for ever: {state.hopeless} ({state.reason}). "
                    "It was cancelled."
                )
            if not state.waiting:
                raise LabError(str(state))
            if waited > self._wait:
                raise LabError(
                    f"The job still waited after {seconds_text(self._wait)}, and was cancelled: "
                    f"{state} Give it longer with wait=, or ask for less (nodes=, time=, gpus=)."
                )
            clock.sleep(max(0.0, min(pause_after(waited), self._wait - waited + 0.01)))


class _Run:
    """One srun and its pipes."""

    def __init__(self, command: list[str], ranks: int, folder: Path) -> None:
        home = str(Path(__file__).parents[2])
        paths = [home, *filter(None, [os.environ.get("PYTHONPATH")])]
        self._ranks, self._folder = ranks, folder
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            env={**slurm_environment(), "PYTHONPATH": os.pathsep.join(paths)},
            start_new_session=True,  # Ctrl-C is for the client, which ends the run in order
        )
        out, err = self._process.stdout, self._process.stderr
        assert out is not None
        assert err is not None
        self._streams: dict[int, Literal["out", "err"]] = {out.fileno(): "out", err.fileno(): "err"}
        self._begun = dict.fromkeys(self._streams, b"")  # a line whose end has not come
        self._started: set[int] = set()
        self._ended: set[int] = set()
        self._on_one_stream: set[tuple[int, str]] = set()
        self._srun_said = ""

    def events(self, timeout: float) -> list[Event]:
        """What has come, after waiting at most `timeout` seconds for something."""
        events = self._read(timeout)
        if not self._streams and len(self._ended) < self._ranks:
            code = self._process.wait()
            said = self._srun_said.strip()[-600:]
            missing = sorted({*range(self._ranks)} - self._ended)
            self._ended.update(missing)
            events += [Ended(rank, code or 1, f"srun ended: {said or code}") for rank in missing]
        return events

    def send(self, what: str, ranks: Collection[int] = ()) -> None:
        """A command to the parents of the ranks."""
        assert self._process.stdin is not None
        with suppress(OSError):
            self._process.stdin.write(" ".join([what, *map(str, sorted(ranks))]).encode() + b"\n")

    def stop(self) -> None:
        """End all of it."""
        process = self._process
        for end in (process.stdin.close if process.stdin else None, process.terminate):
            if end is not None:
                with suppress(OSError):
                    end()
            until = clock.monotonic() + STOPPING
            while self._streams and clock.monotonic() < until:
                self._read(0.1)  # a full pipe would keep srun from ending
            if not self._streams:
                break
        else:
            process.kill()
        process.wait()
        for pipe in (process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _read(self, timeout: float) -> list[Event]:
        ready = select.select([*self._streams], (), (), timeout)[0]
        events: list[Event] = []
        for file in ready:
            data = os.read(file, CHUNK)
            *lines, self._begun[file] = (self._begun[file] + data).split(b"\n")
            for line in lines:
                events += self._events_of(self._streams[file], line)
            if not data:
                del self._streams[file]
        return events

    def _events_of(self, stream: Literal["out", "err"], line: bytes) -> list[Event]:
        found = LABELLED.fullmatch(line)
        if found is None:
            self._srun_said += f"{line.decode(errors='replace')} "
            return []
        rank = int(found[1])
        text, mark, report = found[2].partition(MARK.encode())
        if not mark:
            return [Wrote(rank, stream, text + b"\n")]
        events = [Wrote(rank, stream, text)] if text else []
        return [*events, *self._reported(rank, *json.loads(report))]

    def _reported(self, rank: int, what: str, *content: Any) -> list[Event]:
        match what:
            case "started":
                self._started.add(rank)
                if len(self._started) == self._ranks:
                    self.send("go")
                return [Started(rank, *content)]
            case "stack":
                return [Stack(rank, *content)]
        # An end counts when it has come on stdout and stderr: then all before it has come.
        if (rank, what) not in self._on_one_stream:
            self._on_one_stream.add((rank, what))
            return []
        if what == "ended":
            self._ended.add(rank)
            return [Ended(rank, *content)]
        payload = (self._folder / f"result{rank}").read_bytes()
        return [Returned(rank, payload) if what == "returned" else Raised(rank, payload)]


def _cancel(job: str) -> None:
    """Cancel the job, and wait until it is gone."""
    cancel(job)
    began = clock.monotonic()
    while (waited := clock.monotonic() - began) < LEAVING:
        state = state_of(job)
        if not (state.running or state.waiting or state.state == "COMPLETING"):
            return
        clock.sleep(pause_after(waited))


def _new_folder(within: Path) -> Path:
    """A folder of this block, where the nodes can read it too."""
    try:
        within.mkdir(mode=0o700, parents=True, exist_ok=True)
        return Path(tempfile.mkdtemp(prefix="slurm-", dir=within.resolve()))
    except OSError as fault:
        raise LabError(
            f"The folder {within} cannot be written: {fault}. Name one with folder= that you and "
            "all nodes can read and write."
        ) from fault
