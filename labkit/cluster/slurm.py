"""Ranks on the nodes of a cluster: one job of Slurm for the block, one srun in it for each run.

>>> with labkit.cluster(ranks=4, engine="slurm", partition="alpha") as c:      # doctest: +SKIP
...     c.run(program)

sbatch gets the nodes and srun starts the ranks: both are Slurm's own. submitit, which does the same
by another way, shows no output before the end, and never notices a job that was cancelled where
there is no accounting (sacct).
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time as clock
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path

from labkit.cluster import place
from labkit.cluster.batch import Ask
from labkit.cluster.command_run import CommandRun
from labkit.cluster.engine import Ended, Event, Job, Places, Signal
from labkit.cluster.remote import Task
from labkit.cluster.slurm_queue import (
    QueueState,
    ask_slurm,
    cancel,
    slurm_environment,
    state_of,
    submit,
)
from labkit.cluster.starter import Command, Starter, with_labkit
from labkit.cluster.there import changes_on_nodes
from labkit.kinds import LabError, seconds_text

__all__ = ["SlurmEngine"]

LOOKS = (0.1, 2.0)  # seconds between two questions to the queue: the first, and the longest
SETTLING = 2.0  # seconds in which a job that ends comes to its end
LEAVING = 10.0  # seconds for a cancelled job to be gone


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
        self._wait = wait
        # Said before anything is started if it cannot be asked for.
        self.ask = Ask(
            ranks=nodes or 1,
            nodes=nodes,
            partition=partition,
            time=time,
            account=account,
            memory=memory,
            cpus=cpus,
            gpus=gpus,
            extra=tuple(extra) if not isinstance(extra, str) else extra,
        )
        self._within = Path(folder) if folder is not None else Path.home() / ".labkit" / "runs"
        self.job = ""
        self.script = ""
        self.states: list[tuple[float, QueueState]] = []
        """What the queue said, with the seconds since the job was sent."""
        self._folder: Path | None = None
        self._starter: Starter | None = None
        self._run = CommandRun("srun", lambda _, said: f"srun said: {said}" if said else "")
        self._unused: Places | None = None  # asked for, and not yet used by a run
        self._hosts: tuple[str, ...] = ()

    def open(self, ranks: int, deadline: float) -> None:
        """Show the script, send it, and wait for the nodes."""
        self.ask = replace(self.ask, ranks=ranks)
        ask_slurm("sinfo", "--version")
        try:
            self._folder = _new_folder(self._within)
            self._starter = Starter(self._folder, deadline=deadline)
            self.script = self._script()
            print(self.script, flush=True)
            self.job = submit(self.script)
            self._starter.at_end(["scancel", self.job])
            self._await_nodes()
        except BaseException:
            self.close()
            raise

    def places(self) -> Places:
        """Asked of the ranks' own nodes, anew for each run."""
        self._explain_state()
        if self._unused is not None:
            return self._unused
        command = [*self._step(), sys.executable, "-m", "labkit.cluster.place"]
        said = ask_slurm(*command, environment=with_labkit(slurm_environment()))
        addresses, master = place.read(said, self.ask.ranks)
        self._unused = Places(addresses, master)
        self._hosts = self._unused.hosts
        return self._unused

    def start(self, job: Job) -> None:
        """Write the task down and have srun start the ranks."""
        assert self._folder is not None
        assert self._starter is not None
        self._explain_state()
        self._unused = None
        there = tuple(
            changes_on_nodes(environment, self._hosts, rank)
            for rank, environment in enumerate(job.environment)
        )
        task = Task(job.program, job.ranks, there, job.addresses, job.deadline, share_gpus=True)
        self._run.start(self._starter, self._folder, self._step(), slurm_environment(), task)

    def events(self, timeout: float) -> list[Event]:
        """What the ranks have written; that Slurm has ended them, and why."""
        events = self._run.events(timeout)
        if any(_may_be_slurms(event) for event in events):
            state = self._last_state()
            if not state.running:
                events = [
                    replace(event, reason=str(state)) if isinstance(event, Ended) else event
                    for event in events
                ]
        return events

    def ask_stacks(self, ranks: Collection[int]) -> None:
        """Each rank's watcher asks it, on its node."""
        self._run.request("stacks", ranks)

    def signal(self, rank: int, what: Signal) -> None:
        """By the rank's watcher, its parent."""
        self._run.request(what, [rank])

    def stop(self) -> None:
        """The watchers end their ranks, and with them the step; Slurm ends what is left of it."""
        self._run.stop(3.0, self._end_steps)

    def close(self) -> None:
        """Cancel the job; give the nodes back."""
        try:
            self.stop()
        finally:
            try:
                if self.job:
                    self._cancel()
            finally:
                if self._starter is not None:
                    self._starter.close()
                    self._starter = None
                if self._folder is not None:
                    shutil.rmtree(self._folder, ignore_errors=True)
                    self._folder = None

    def describe(self) -> str:
        """Where the ranks run."""
        nodes = self.states[-1][1].nodes if self.states else ""
        return f"in Slurm job {self.job} on {nodes}" if nodes else "in a job of Slurm"

    def _end_steps(self, srun: Command, steps: set[str]) -> None:
        if not srun.wait(1.0):
            for step in steps:
                cancel(f"{self.job}.{step}")
        srun.end()

    def _explain_state(self) -> None:
        state = self._last_state()
        if not state.running:
            raise LabError(f"{state} Open a new cluster block for more runs.")

    def _last_state(self) -> QueueState:
        """Why a job ends is told a moment after its ranks have."""
        until = clock.monotonic() + SETTLING
        while (state := state_of(self.job)).state == "COMPLETING" and clock.monotonic() < until:
            clock.sleep(LOOKS[0])
        return state

    def _script(self) -> str:
        assert self._folder is not None
        log = self._folder / "job.log"
        hold = f"exec {_quoted(sys.executable)} -m labkit.cluster.hold {_quoted(str(self._folder))}"
        home = _quoted(str(Path(__file__).parents[2]))
        return f"{self.ask.header(str(log))}\n\nexport PYTHONPATH={home}\n{hold}\n"

    def _step(self) -> list[str]:
        """srun in the job that is there, with all of it: runs come one after the other."""
        command = ["srun", f"--jobid={self.job}", f"--ntasks={self.ask.ranks}", "--overlap"]
        command += ["--kill-on-bad-exit=1", "--distribution=block", "--input=none"]
        if self.ask.nodes:
            command.append(f"--nodes={self.ask.nodes}")
        if self.ask.cpus:
            command.append(f"--cpus-per-task={self.ask.cpus}")
        return command

    def _await_nodes(self) -> None:
        began, pause, told = clock.monotonic(), LOOKS[0], ""
        while True:
            state, passed = state_of(self.job), clock.monotonic() - began
            if str(state) != told:
                told = str(state)
                self.states.append((passed, state))
                print(told, flush=True)
            if state.running:
                return
            if state.hopeless:
                raise LabError(
                    f"Slurm job {self.job} would wait for ever: {state.hopeless} ({state.reason}). "
                    "It was cancelled."
                )
            if not state.waiting:
                log = self._log()
                raise LabError(f"{state} {f'It said: {log}' if log else ''}".strip())
            if passed > self._wait:
                raise LabError(
                    f"The job still waited after {seconds_text(self._wait)}, and was cancelled: "
                    f"{state} Give it longer with wait=, or ask for less (nodes=, time=, gpus=)."
                )
            clock.sleep(min(pause, max(0.0, self._wait - passed)) or LOOKS[0])
            pause = min(1.3 * pause, LOOKS[1])

    def _cancel(self) -> None:
        job, self.job = self.job, ""
        cancel(job)
        until = clock.monotonic() + LEAVING
        while clock.monotonic() < until:
            state = state_of(job)
            if not (state.running or state.waiting or state.state == "COMPLETING"):
                return
            clock.sleep(LOOKS[0])

    def _log(self) -> str:
        assert self._folder is not None
        try:
            return (self._folder / "job.log").read_text(errors="replace").strip()[-600:]
        except OSError:
            return ""


def _may_be_slurms(event: Event) -> bool:
    """A rank that ended by a signal, or with srun: perhaps the whole job did."""
    return isinstance(event, Ended) and (event.code < 0 or bool(event.reason))


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


def _quoted(text: str) -> str:
    import shlex

    return shlex.quote(text)
