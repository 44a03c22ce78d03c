"""The cluster that users hold: `with labkit.cluster(ranks=4) as c: c.run(program)`."""

import inspect
import os
import threading
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from types import FunctionType
from typing import Any, Self

from labkit.arguments import number, one_of
from labkit.cluster.here.local import LocalEngine
from labkit.cluster.links.namespaces import private_network_refused
from labkit.cluster.links.network import Network
from labkit.cluster.links.traffic import LinksPanel, Traffic
from labkit.cluster.ranks.environment import rank_environment, roles_of
from labkit.cluster.ranks.handle import RunHandle
from labkit.cluster.ranks.in_rank import Script, modules_of
from labkit.cluster.ranks.output import Log, Output
from labkit.cluster.ranks.protocol import Engine, RunSpec
from labkit.cluster.ranks.recorded import RecordedRuns, hash_of, record
from labkit.cluster.slurm.allocation import SlurmEngine
from labkit.environments import Environment, built, find
from labkit.kinds import LabError
from labkit.shipping import FunctionSource, pack_program

CLOSED = "Ranks exist only in a block: with labkit.cluster(ranks=4) as c: ..."
NO_LINKS = "Links with a rate cannot be had here, so that no time below is a time over links"
_said: set[str] = set()  # where recordings come from, once
ENGINES: dict[str, Callable[..., Engine]] = {"local": LocalEngine, "slurm": SlurmEngine}


class Cluster:
    """N ranks as processes. Everything that it starts ends with its block.

    >>> def program(rank):
    ...     return rank * rank
    >>> with labkit.cluster(ranks=4) as c:     # doctest: +SKIP
    ...     c.run(program)
    [0, 1, 4, 9]
    """

    def __init__(
        self,
        ranks: int | None = None,
        engine: str = "local",
        *,
        roles: Mapping[str, int] | None = None,
        environment: str | None = None,
        variables: Mapping[str, Any] | None = None,
        start: float = 60.0,
        link: str | None = None,
        hosts: int | None = None,
        links: Mapping[str, str] | None = None,
        racks: int = 1,
        uplink: str | None = None,
        network: str | None = None,
        keep_warm: bool | None = None,
        nodes: int | None = None,
        partition: str | None = None,
        time: str | int | None = None,
        account: str | None = None,
        reservation: str | None = None,
        memory: str | None = None,
        cpus: int | None = None,
        gpus: int | None = None,
        extra: tuple[str, ...] | None = None,
        name: str | None = None,
        wait: float | None = None,
        folder: str | Path | None = None,
    ) -> None:
        """`environment` is "torch", "horovod" or "flower", built with `labkit env build torch`. If
        it is not built, the block opens all the same, and `run_script` shows what was recorded.
        `variables` are set in the ranks' environment, and None removes a variable. `start` is the
        number of seconds in which the ranks must start.

        `link="200 Mbit/s"` puts each rank on a host of its own, joined by links of this rate.
        `hosts=2` puts the ranks on two hosts, `links={"host 1": "50 Mbit/s"}` gives some hosts
        other rates, and `racks=2, uplink="50 Mbit/s"` joins two switches. After a run, `traffic()`
        has the bytes.

        engine="local" takes `network` ("own", the default, or "shared") and `keep_warm`.
        engine="slurm" takes the keywords from `nodes` on, which its job asks for: `cpus` for each
        rank, `gpus` and `memory` for each node. `wait` is how many seconds the job may wait for its
        nodes, 600 by default; `folder` is a folder that all nodes can read.
        """
        self.roles = roles_of(ranks, roles)
        self.ranks = len(self.roles)
        self._variables = {k: None if v is None else str(v) for k, v in (variables or {}).items()}
        self._start = number("start", start, above=0)
        make = ENGINES[one_of("engine", engine, ENGINES)]
        takes: dict[str, dict[str, Any]] = {
            "local": {"network": network, "keep_warm": keep_warm},
            "slurm": {
                "nodes": nodes, "partition": partition, "time": time, "account": account,
                "reservation": reservation, "memory": memory, "cpus": cpus, "gpus": gpus,
                "extra": extra, "name": name, "wait": wait, "folder": folder,
            },
        }  # fmt: skip
        given = {of: {k: v for k, v in takes[of].items() if v is not None} for of in takes}
        mine = given.pop(engine)
        for other, found in given.items():
            if found:
                raise LabError(f'{min(found)} is for engine="{other}", got engine="{engine}".')
        self.environment = None if environment is None else find(environment)
        if self.environment is not None:
            mine["python"] = str(self.environment.python)
        self.engine = make(**mine)
        self.links = Network.of(self.ranks, link, hosts, links, racks, uplink)
        self.has_links = False
        """Whether the hosts and links exist, while the block is open."""
        self._panel: LinksPanel | None = None
        self._run: RunHandle | None = None
        self._output = Output(self.ranks, show=False)
        self._is_open = False
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        self._process = os.getpid()
        if self.environment is not None and not self.environment.stamp:
            self._is_open = True
            return self
        if self.environment is not None and self.environment.state == "outdated":
            print(self.environment.how_to_build())
        try:
            # Some libraries read theirs when they are imported, which is before the ranks exist.
            fixed = {} if self.environment is None else self.environment.variables
            self.engine.open(self.ranks, self._start, {**fixed, **self._variables})
            if self.links is not None:
                why = "under Slurm the links are those of the cluster's nodes"
                if isinstance(self.engine, LocalEngine):
                    why = self.engine.make_links(self.links)
                self.has_links = not why
                if why:
                    print(f"{NO_LINKS}: {why}.")
        except BaseException:
            self.engine.close()
            raise
        self._is_open = True
        return self

    def __exit__(self, *_: object) -> None:
        self._is_open = False
        if self._process == os.getpid():  # a fork that leaves the block has started nothing
            self.engine.close()
        if self._panel is not None:
            self._panel.close()
            self._panel = None

    def __repr__(self) -> str:
        words = f"{self.ranks} rank{'s' * (self.ranks > 1)} {self.engine.describe()}"
        return words if self._is_open else f"{words}; its block has ended"

    def run(
        self,
        program: Callable[..., Any],
        *args: Any,
        timeout: float = 60.0,
        until: Collection[int] | None = None,
        tolerate: Collection[int] = (),
        show: bool = True,
    ) -> list[Any]:
        """Call program(rank, *args) on every rank. Returns the results by rank.

        A rank that fails ends the run with a LabError, whose `errors` and `results` are by rank.
        With `until={0}` the run is over when rank 0 has returned, and the others are stopped. With
        `tolerate={2}` rank 2 may fail. A rank without a result has None in the list.
        """
        timeout = number("timeout", timeout, above=0)
        run = self.start(program, *args, until=until, tolerate=tolerate, show=show)
        outcome = run.finish(timeout)
        outcome.raise_errors()
        return [outcome.results.get(rank) for rank in range(self.ranks)]

    def run_script(
        self,
        file: str | Path,
        *arguments: object,
        timeout: float = 60.0,
        tolerate: Collection[int] = (),
        show: bool = True,
    ) -> list[str]:
        """Run `python FILE ARGUMENTS` on every rank. Returns what the ranks wrote, by rank.

        `c.start(labkit.cluster.Script(file, arguments))` does the same without waiting. With a
        single rank FILE may be a launcher of the environment, such as "torchrun".

        If the environment is not built, this shows and returns what was recorded in `recordings/`
        beside the file. With LABKIT_RECORD=1 in the environment a run is recorded.
        """
        path, given, beside = Path(file).resolve(), tuple(map(str, arguments)), self.environment
        program = path
        if beside is not None and not path.is_file() and path.name == str(file):
            program = beside.venv / "bin" / path.name  # its launcher
        if beside is not None and not beside.stamp and (path.is_file() or not path.suffix):
            self._show_recorded(beside, path, given, show)
        elif not program.is_file():
            raise LabError(f"There is no file {path}: give the path of a Python program.")
        else:
            self.run(Script(str(program), given), timeout=timeout, tolerate=tolerate, show=show)
            if beside is not None and os.environ.get("LABKIT_RECORD") == "1":
                record(beside, self.ranks, path, given, self._output.lines())
        return [self.output(rank) for rank in range(self.ranks)]

    def start(
        self,
        program: Callable[..., Any],
        *args: Any,
        until: Collection[int] | None = None,
        tolerate: Collection[int] = (),
        show: bool = True,
    ) -> RunHandle:
        """Start a run and return its handle, with which its ranks can be killed or paused."""
        if not self._is_open:
            raise LabError(CLOSED)
        if not callable(program) or inspect.iscoroutinefunction(program):
            raise LabError(f"The program must be a function of (rank), got {program!r}.")
        beside = None if self.environment is None else built(self.environment.name)
        for name, chosen in (("until", until or ()), ("tolerate", tolerate)):
            for rank in chosen:
                one_of(f"each rank in {name}", rank, range(self.ranks))
        modules = modules_of(program)
        if not (beside is None or beside.takes_byte_code or isinstance(program, Script)):
            program = FunctionSource.of(program)
            args = tuple(FunctionSource.of(x) if isinstance(x, FunctionType) else x for x in args)
        packed = pack_program(program, args, own_packages=beside is not None)
        name = getattr(program, "__name__", type(program).__name__)
        run = RunHandle(
            self.engine, self.ranks, name=name, start=self._start, until=until, tolerate=tolerate,
            show=show,
        )  # fmt: skip
        with self._lock:  # of two threads
            if self._run is not None and not self._run.over:
                raise LabError(
                    "Another run has not ended. Call .finish() or .stop() of what c.start returned."
                )
            self._run = run
        self._output = run.output
        try:
            addresses = self.engine.addresses()
            environments: list[Mapping[str, str | None]] = []
            for rank in range(self.ranks):
                found = rank_environment(self.roles, addresses, rank)
                if beside is not None:
                    found |= beside.variables_of(rank, addresses.ranks, addresses.master)
                environments.append({**found, **self._variables})
            self.engine.start(RunSpec(packed, tuple(environments), modules, addresses.ranks))
        except BaseException:
            run.stop()
            raise
        return run

    def traffic(self) -> Traffic:
        """Returns what each link carried in the last run, measured by the kernel's counters.

        If links cannot be had, it is empty and says so.
        """
        if self.links is None:
            raise LabError(
                "Traffic is counted in a run on hosts with links: with labkit.cluster(ranks=2, "
                'link="200 Mbit/s") as c: c.run(program).'
            )
        samples = self._local.samples if self.has_links else []
        if self.has_links and not samples:
            raise LabError("Nothing is counted yet: traffic() is that of the last run.")
        return Traffic.of(self.links, samples)

    def panel(self) -> LinksPanel:
        """Show hosts and links here, live while ranks run and as a player afterwards."""
        if self.links is None or not self._is_open:
            raise LabError(
                "A panel shows links while their block is open: with labkit.cluster(ranks=2, "
                'link="200 Mbit/s") as c: c.panel().'
            )
        self._panel = LinksPanel(self.links)
        if self.has_links:  # else a line says already that there are none
            self._local.take = self._panel.add
            self._panel.show()
        return self._panel

    @property
    def _local(self) -> LocalEngine:
        assert isinstance(self.engine, LocalEngine)  # where there are links
        return self.engine

    def output(self, rank: int) -> str:
        """Returns all that a rank wrote in the last run."""
        return self._output.text(rank)

    def log(self) -> Log:
        """Returns what the ranks wrote in the last run, with a lane for each rank."""
        return Log(self._output.lines())

    def _show_recorded(
        self, beside: Environment, script: Path, arguments: tuple[str, ...], show: bool
    ) -> None:
        """Show recorded lines as those of a run, after a line that says so."""
        if not self._is_open:
            raise LabError(CLOSED)
        recording = RecordedRuns.of(script)
        found = recording.find(beside.name, self.ranks, arguments)
        if found is None or found.program != hash_of(script, arguments):
            run = " ".join([script.name, *arguments])
            why = "" if found is None else ", as it has been edited"
            raise LabError(
                f"{beside.how_to_build()} Nothing is recorded of {run!r} with ranks={self.ranks}"
                f"{why}."
            )
        words = (
            f"The environment {beside.name} is {beside.state} (labkit env build {beside.name}). "
            f"The output is {found.kind}:"
        )
        print("The output is recorded, as above:" if words in _said else words)
        _said.add(words)
        self._output = Output(self.ranks, show)
        for line in found.lines:
            text = f"{line.text}\n".encode()
            self._output.take(line.rank, line.stream, text, line.seconds)


def check_environment(chosen: Environment) -> None:
    """Run the check of an environment, a program of two ranks. Raises LabError if it fails."""
    if refused := private_network_refused():
        print(f"Not checked with two ranks, which can have no private network here: {refused}.")
        return
    with Cluster(2, environment=chosen.name, network="own", keep_warm=False, start=180.0) as c:
        c.run_script(chosen.folder / "check.py", timeout=120.0)
