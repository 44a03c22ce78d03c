"""Ranks on the nodes of a cluster: `sbatch` holds nodes for the block, and each run is an `srun`.

>>> with labkit.cluster(ranks=4, engine="slurm", partition="alpha") as c:      # doctest: +SKIP
...     c.run(program)

srun's pipes are the connection to the ranks: see `srun_task`. A shared folder only holds the
program and one result file a rank; nothing polls it. TensorFlow's servers check no password:
under Slurm their ports are open to the other users of the nodes.
"""

import json
import os
import pickle
import re
import select
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from labkit.centre import centre
from labkit.cluster.ranks import tf_config
from labkit.cluster.ranks.protocol import Addresses, Event, RunSpec, Signal, Stream
from labkit.cluster.slurm.batch import Resources
from labkit.cluster.slurm.queue import (
    QueueState,
    cancel,
    pause_after,
    run_slurm,
    slurm_environment,
    state_of,
    submit,
)
from labkit.cluster.slurm.srun_task import MARK
from labkit.kinds import LabError, seconds_text

LABELLED = re.compile(rb"\s*(\d+): (.*)", re.DOTALL)
CHUNK = 1 << 16
SETTLING = 2.0  # seconds in which a job that ends comes to its end
STOPPING = 5.0  # seconds for ranks to end when srun's stdin ends
LEAVING = 10.0  # seconds for a cancelled job to be gone
# A shell outlives a killed notebook, and cancels the job when the pipe from it ends.
GUARD = 'read -r line; scancel "$1"; rm -rf -- "$2"'
RANK = "import sys; from labkit.cluster.slurm.srun_task import main; main(sys.argv[1])"


class SlurmEngine:
    """The engine: prints and submits the batch script, and ends the job with the block."""

    name = "slurm"
    private_network = False

    def __init__(
        self,
        *,
        wait: float = 600.0,
        folder: str | Path | None = None,
        python: str = sys.executable,
        **resources: Any,
    ) -> None:
        """`wait` is how many seconds the job may wait for its nodes, `folder` a folder that all
        nodes can read, `python` the interpreter of the ranks.

        The other keywords are those of `Resources`: nodes, partition, time and so on.
        """
        self._wait, self._python = wait, python
        self._resources = Resources.here(1, **resources)
        home = centre().scratch or Path.home()
        self._within = Path(home, ".labkit", "runs") if folder is None else Path(folder)
        self.job = ""
        self.script = ""
        self.states: list[tuple[float, QueueState]] = []
        """The states of the job until it ran, with the seconds since it was sent."""
        self._folder: Path | None = None
        self._guard: subprocess.Popen[bytes] | None = None
        self._hosts: tuple[str, ...] = ()
        self._runs = 0
        self._run: _Step | None = None

    def open(self, ranks: int, start: float, environment: Mapping[str, str | None]) -> None:
        """Show the script, submit it, and wait for the nodes."""
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
            # Only Slurm knows on which node it puts each rank.
            answer = run_slurm(*self._srun(), "--label", "printenv", "SLURMD_NODENAME")
            found = dict(line.split(": ") for line in answer.splitlines() if ": " in line)
            hosts = {int(rank): host.strip() for rank, host in found.items()}
            self._hosts = tuple(hosts[rank] for rank in range(ranks))
        except BaseException:
            self.close()
            raise

    def addresses(self) -> Addresses:
        """Returns addresses. Each run is a step of the job, with ports of its own."""
        state = self._last_state()
        if not state.running:
            raise LabError(f"{state} Open a new cluster block for more runs.")
        ports = tf_config.step_ports(int(self.job), self._runs)
        ranks = tuple(f"{host}:{port}" for host, port in zip(self._hosts, ports, strict=False))
        return Addresses(ranks, f"{self._hosts[0]}:{ports[-1]}")

    def start(self, spec: RunSpec) -> None:
        """Write the specification to a file, and let srun start the ranks."""
        assert self._folder is not None
        folder = self._folder / f"run{self._runs}"
        self._runs += 1
        folder.mkdir()
        (folder / "spec").write_bytes(pickle.dumps(spec))
        command = [*self._srun(), "--label", "--wait=0", "--kill-on-bad-exit=0"]
        asks = centre()
        rank = asks.in_shell(asks.command(self._python, "-c", RANK, str(folder)))
        self._run = _Step([*command, *rank], spec, folder)

    def events(self, timeout: float) -> list[Event]:
        """Returns what the ranks have reported, and why if Slurm has ended them."""
        events = [] if self._run is None else self._run.events(timeout)
        ended = [e for e in events if e.what == "ended" and (e.value < 0 or e.reason)]
        if ended and not (state := self._last_state()).running:
            return [replace(e, reason=str(state)) if e in ended else e for e in events]
        return events

    def ask_stacks(self, ranks: Collection[int]) -> None:
        """Let the parent of each rank ask it, on its node."""
        if self._run is not None:
            self._run.send("stacks", ranks)

    def signal(self, rank: int, what: Signal) -> None:
        """Let the rank's parent kill or pause it."""
        if self._run is not None:
            self._run.send(what, [rank])

    def stop(self) -> None:
        """Close srun's stdin, which ends the ranks. Slurm ends what they have started."""
        if self._run is not None:
            self._run.stop()
            self._run = None

    def close(self) -> None:
        """Cancel the job, and wait until it is gone."""
        try:
            self.stop()
            job, self.job = self.job, ""
            if job:
                cancel(job)
                began = time.monotonic()
                while (waited := time.monotonic() - began) < LEAVING:
                    state = state_of(job)
                    if not (state.running or state.waiting or state.state == "COMPLETING"):
                        break
                    time.sleep(pause_after(waited))
        finally:
            if self._guard is not None:
                with suppress(subprocess.TimeoutExpired):
                    self._guard.communicate(timeout=LEAVING)
                self._guard = None
            if self._folder is not None:
                shutil.rmtree(self._folder, ignore_errors=True)
                self._folder = None

    def describe(self) -> str:
        """Where the ranks run."""
        return f"in Slurm job {self.job}" if self.job else "in a job of Slurm"

    def _srun(self) -> list[str]:
        """Returns the command for a run, which has the whole job: runs follow one another."""
        options = {"nodes": self._resources.nodes, "cpus-per-task": self._resources.cpus}
        return [
            "srun",
            f"--jobid={self.job}",
            f"--ntasks={self._resources.ranks}",
            "--overlap",
            "--distribution=block",
            *(f"--{name}={value}" for name, value in options.items() if value),
        ]

    def _last_state(self) -> QueueState:
        """Returns the state of the job. Slurm says why it ended a moment after its ranks ended."""
        until = time.monotonic() + SETTLING
        while (state := state_of(self.job)).state == "COMPLETING" and time.monotonic() < until:
            time.sleep(0.1)
        return state

    def _await_nodes(self) -> None:
        began, shown = time.monotonic(), ""
        while True:
            state, waited = state_of(self.job), time.monotonic() - began
            if str(state) != shown:
                shown = str(state)
                self.states.append((waited, state))
                print(shown, flush=True)
            if state.running:
                return
            if state.hopeless:
                raise LabError(
                    f"Slurm job {self.job} never starts: {state.hopeless} ({state.reason}). "
                    "It was cancelled."
                )
            if not state.waiting:
                raise LabError(str(state))
            if waited > self._wait:
                raise LabError(
                    f"The job still waited after {seconds_text(self._wait)}, and was cancelled: "
                    f"{state} Give it longer with wait=, or ask for less (nodes=, time=, gpus=)."
                )
            time.sleep(max(0.0, min(pause_after(waited), self._wait - waited + 0.01)))


class _Step:
    """A step of the job: an srun and its pipes."""

    def __init__(self, command: list[str], spec: RunSpec, folder: Path) -> None:
        home = str(Path(__file__).parents[3])
        paths = [home, *filter(None, [os.environ.get("PYTHONPATH")])]
        self._folder = folder
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            env={**slurm_environment(), "PYTHONPATH": os.pathsep.join(paths)},
            start_new_session=True,  # Ctrl-C is for the client, which ends the run in order
        )
        self._pipes: dict[Any, Stream] = {self._process.stdout: "out", self._process.stderr: "err"}
        self._partial = dict.fromkeys(self._pipes, b"")  # a line whose end has not come
        self._starting = self._alive = frozenset(range(len(spec.environment)))
        self._on_one_stream: set[tuple[int, str]] = set()
        self._srun_messages = ""

    def events(self, timeout: float) -> list[Event]:
        """Returns what has come, after waiting at most `timeout` seconds for something."""
        events = self._read(timeout)
        if not self._pipes and self._alive:
            code = self._process.wait()
            reason = f"srun ended: {self._srun_messages.strip()[-600:] or code}"
            events += [Event(rank, "ended", code or 1, reason) for rank in sorted(self._alive)]
            self._alive = frozenset()
        return events

    def send(self, what: str, ranks: Collection[int] = ()) -> None:
        """Send a command to the parents of the ranks."""
        assert self._process.stdin is not None
        with suppress(OSError):
            self._process.stdin.write(" ".join([what, *map(str, sorted(ranks))]).encode() + b"\n")

    def stop(self) -> None:
        """End the step."""
        process = self._process
        assert process.stdin is not None
        for end in (process.stdin.close, process.terminate, process.kill):
            with suppress(OSError):
                end()
            until = time.monotonic() + STOPPING
            while self._pipes and time.monotonic() < until:
                self._read(0.1)  # a full pipe would keep srun from ending
            if not self._pipes:
                break
        process.wait()
        for pipe in self._partial:
            pipe.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _read(self, timeout: float) -> list[Event]:
        events: list[Event] = []
        for pipe in select.select([*self._pipes], (), (), timeout)[0]:
            data = os.read(pipe.fileno(), CHUNK)
            *lines, self._partial[pipe] = (self._partial[pipe] + data).split(b"\n")
            for line in lines:
                events += self._events_of(self._pipes[pipe], line)
            if not data:
                del self._pipes[pipe]
        return events

    def _events_of(self, stream: Stream, line: bytes) -> list[Event]:
        found = LABELLED.fullmatch(line)
        if found is None:
            self._srun_messages += f"{line.decode(errors='replace')} "
            return []
        rank = int(found[1])
        text, mark, report = found[2].partition(MARK.encode())
        if not mark:
            return [Event(rank, stream, text + b"\n")]
        events = [Event(rank, stream, text)] if text else []
        return [*events, *self._reported(Event(rank, *json.loads(report)))]

    def _reported(self, event: Event) -> list[Event]:
        if event.what == "started":
            self._starting -= {event.rank}
            if not self._starting:
                self.send("go")
        elif event.what not in ("stack", "paused"):
            # An end counts once it has come on stdout and on stderr: then all before it has come.
            key = (event.rank, event.what)
            if key not in self._on_one_stream:
                self._on_one_stream.add(key)
                return []
            if event.what == "ended":
                self._alive -= {event.rank}
            else:
                payload = (self._folder / f"result{event.rank}").read_bytes()
                return [replace(event, value=payload)]
        return [event]


def _new_folder(within: Path) -> Path:
    """Returns a new folder for this block, which the nodes can read."""
    try:
        within.mkdir(mode=0o700, parents=True, exist_ok=True)
        return Path(tempfile.mkdtemp(prefix="slurm-", dir=within.resolve()))
    except OSError as fault:
        raise LabError(
            f"The folder {within} cannot be written: {fault}. Name one with folder= that you and "
            "all nodes can read and write."
        ) from fault
