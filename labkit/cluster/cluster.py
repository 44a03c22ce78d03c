"""The cluster that users hold: `with labkit.cluster(ranks=4) as c: c.run(program)`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
from typing import Any, Self

from labkit.arguments import one_of
from labkit.cluster.engine import Engine, Job
from labkit.cluster.environment import index_of, rank_environment, roles_of, texts_of
from labkit.cluster.in_rank import ThisRank, modules_of
from labkit.cluster.local import LocalEngine
from labkit.cluster.run import RunHandle, checked_seconds
from labkit.cluster.slurm import SlurmEngine
from labkit.kinds import LabError
from labkit.shipping import pack_program

__all__ = ["Cluster"]

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
        environment: Mapping[str, Any] | None = None,
        preload: Collection[str] = (),
        start: float = 60.0,
        **engine_keywords: Any,
    ) -> None:
        """`preload`: modules to import before the ranks start. `start`: seconds for that.

        engine="local" has `network` ("own", the default, or "shared") and `keep_warm`;
        engine="slurm" has what a job can ask for: `nodes`, `partition`, `time` and so on.
        """
        self.roles = roles_of(ranks, roles)
        self.ranks = len(self.roles)
        self._environment = texts_of(environment)
        self._preload = tuple(preload)
        self._start = checked_seconds("start", start)
        make = ENGINES[one_of("engine", engine, ENGINES)]
        self.engine = make(**engine_keywords)
        self._run: RunHandle | None = None
        self._is_open = False

    def __enter__(self) -> Self:
        try:
            self.engine.open(self.ranks, self._start, self._environment)
        except BaseException:
            self.engine.close()
            raise
        self._is_open = True
        return self

    def __exit__(self, *_: object) -> None:
        self._is_open = False
        self.engine.close()

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
        timeout = checked_seconds("timeout", timeout)
        run = self.start(program, *args, until=until, tolerate=tolerate, show=show)
        outcome = run.finish(timeout)
        outcome.raise_errors()
        return [outcome.results.get(rank) for rank in range(self.ranks)]

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
            raise LabError("Ranks exist only in a block: with labkit.cluster(ranks=4) as c: ...")
        if self._run is not None and not self._run.over:
            raise LabError(
                "Another run has not ended. Call .finish() or .stop() of what c.start returned."
            )
        if not callable(program) or inspect.iscoroutinefunction(program):
            raise LabError(f"The program must be a function of (rank), got {program!r}.")
        for name, chosen in (("until", until or ()), ("tolerate", tolerate)):
            for rank in chosen:
                one_of(f"each rank in {name}", rank, range(self.ranks))
        packed = pack_program(program, args)
        addresses, roles, engine = self.engine.addresses(), self.roles, self.engine.name
        environments = []
        for rank, role in enumerate(roles):
            index = index_of(roles, rank)
            me = ThisRank(rank, self.ranks, role, index, addresses.ranks, engine)
            found = rank_environment(roles, addresses, rank) | me.variable()
            environments.append(found | self._environment)
        modules = (*self._preload, *modules_of(program))
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
        try:
            self.engine.start(job)
        except BaseException:
            run.stop()
            raise
        return run

    def output(self, rank: int) -> str:
        """All that a rank wrote in the last run."""
        return "" if self._run is None else self._run.output.text(rank)
