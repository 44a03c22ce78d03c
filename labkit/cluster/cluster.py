"""The cluster that users hold: `with labkit.cluster(ranks=4) as c: c.run(program)`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
from typing import Any, Self

from labkit.arguments import number, one_of
from labkit.cluster.engine import Engine, Job
from labkit.cluster.environment import rank_environment, roles_of
from labkit.cluster.in_rank import modules_of
from labkit.cluster.local import LocalEngine
from labkit.cluster.run import RunHandle
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
        start: float = 60.0,
        **engine_keywords: Any,
    ) -> None:
        """`environment`: variables of the ranks; None removes one. `start`: seconds to start them.

        engine="local" has `network` ("own", the default, or "shared") and `keep_warm`;
        engine="slurm" has what a job can ask for: `nodes`, `partition`, `time` and so on.
        """
        self.roles = roles_of(ranks, roles)
        self.ranks = len(self.roles)
        given = (environment or {}).items()
        self._environment = {name: None if value is None else str(value) for name, value in given}
        self._start = number("start", start, above=0)
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
        timeout = number("timeout", timeout, above=0)
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
        addresses = self.engine.addresses()
        environments = (
            {**rank_environment(self.roles, addresses, rank), **self._environment}
            for rank in range(self.ranks)
        )
        job = Job(packed, tuple(environments), modules_of(program), addresses.ranks)
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
