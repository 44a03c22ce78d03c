"""The cluster that users hold: `with labkit.cluster(ranks=4) as c: c.run(program)`."""

import inspect
import os
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from types import FunctionType
from typing import TYPE_CHECKING, Any, Self

from labkit.arguments import number, one_of
from labkit.cluster.engine import Engine, Job
from labkit.cluster.environment import rank_environment, roles_of
from labkit.cluster.in_rank import Script, modules_of
from labkit.cluster.links import LinksPanel, Network, Traffic
from labkit.cluster.local import LocalEngine
from labkit.cluster.network import private_network_refused
from labkit.cluster.output import Output, Recording, hash_of, record
from labkit.cluster.run import RunHandle
from labkit.cluster.slurm.engine import SlurmEngine
from labkit.environments import Environment, built, find
from labkit.kinds import LabError
from labkit.shipping import FunctionSource, pack_program

if TYPE_CHECKING:
    from labkit.views.table import Log

CLOSED = "Ranks exist only in a block: with labkit.cluster(ranks=4) as c: ..."
NO_LINKS = "Links with a rate cannot be had here, and no time below is one over links"
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
        **engine_keywords: Any,
    ) -> None:
        """`environment`: "torch", "horovod" or "flower", as `labkit env build torch` has built it;
        where it is not built, the block opens, and `run_script` shows what was recorded.
        `variables`: of the ranks' environment; None removes one. `start`: seconds to start them.

        `link`="200 Mbit/s" puts each rank on a host of its own, joined by links of this rate;
        `hosts=2` on so many hosts, `links={"host 1": "50 Mbit/s"}` gives hosts other rates, and
        `racks=2, uplink="50 Mbit/s"` joins two switches. Bytes are in `traffic()` after a run.

        engine="local" has `network` ("own", the default, or "shared") and `keep_warm`;
        engine="slurm" has what a job can ask for: `nodes`, `partition`, `time` and so on.
        """
        self.roles = roles_of(ranks, roles)
        self.ranks = len(self.roles)
        given = (variables or {}).items()
        self._variables = {name: None if value is None else str(value) for name, value in given}
        self._start = number("start", start, above=0)
        make = ENGINES[one_of("engine", engine, ENGINES)]
        self.environment = None if environment is None else find(environment)
        if self.environment is not None:
            engine_keywords["python"] = str(self.environment.python)
        self.engine = make(**engine_keywords)
        self.links = Network.of(self.ranks, link, hosts, links, racks, uplink)
        self.has_links = False
        """Whether the hosts and links exist, while the block is open."""
        self._panel: LinksPanel | None = None
        self._run: RunHandle | None = None
        self._output = Output(self.ranks, show=False)
        self._is_open = False

    def __enter__(self) -> Self:
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
        """Call program(rank, *args) on every rank; what they return, by rank.

        A rank that fails ends the run with a LabError, whose `errors` and `results` are by rank.
        `until={0}`: over when these have returned; the others are then stopped. `tolerate={2}`:
        these may fail. Their place in the list is None.
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
        """Run `python FILE ARGUMENTS` on every rank; what they wrote, by rank.

        `c.start(labkit.cluster.Script(file, arguments))` is the same without waiting. With one rank
        FILE may be a launcher of the environment: "torchrun".

        Where the environment is not built, this shows and returns what was recorded in
        `recordings/` beside the file. LABKIT_RECORD=1 in the environment records a run.
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
        """The same, without waiting: the run can be watched, and its ranks killed or paused."""
        if not self._is_open:
            raise LabError(CLOSED)
        if self._run is not None and not self._run.over:
            raise LabError(
                "Another run has not ended. Call .finish() or .stop() of what c.start returned."
            )
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
        addresses = self.engine.addresses()
        environments = (
            {
                **rank_environment(self.roles, addresses, rank),
                **(beside.variables_of(rank, addresses.ranks, addresses.master) if beside else {}),
                **self._variables,
            }
            for rank in range(self.ranks)
        )
        job = Job(packed, tuple(environments), modules, addresses.ranks)
        self._run = run = RunHandle(
            self.engine,
            self.ranks,
            name=getattr(program, "__name__", type(program).__name__),
            start=self._start,
            until=until,
            tolerate=tolerate,
            show=show,
        )
        self._output = run.output
        try:
            self.engine.start(job)
        except BaseException:
            run.stop()
            raise
        return run

    def traffic(self) -> Traffic:
        """What each link carried in the last run, measured by the kernel's counters.

        Where links cannot be had, it is empty, and says so.
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
        """Show hosts and links here, live while ranks run; they stay to be played."""
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
        """All that a rank wrote in the last run."""
        return self._output.text(rank)

    def log(self) -> "Log":
        """What the ranks wrote in the last run, a lane for each rank."""
        from labkit.views.table import Log

        return Log(self._output.lines())

    def _show_recorded(
        self, beside: Environment, script: Path, arguments: tuple[str, ...], show: bool
    ) -> None:
        """Take the recorded lines for those of a run, with one line that says so."""
        if not self._is_open:
            raise LabError(CLOSED)
        recording = Recording.of(script)
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
    """Run the check of an environment, a program of two ranks; a LabError if it fails."""
    if refused := private_network_refused():
        print(f"Not checked with two ranks, which can have no private network here: {refused}.")
        return
    with Cluster(2, environment=chosen.name, network="own", keep_warm=False, start=180.0) as c:
        c.run_script(chosen.folder / "check.py", timeout=120.0)
