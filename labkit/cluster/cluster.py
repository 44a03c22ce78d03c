"""The cluster that users hold: `with labkit.cluster(ranks=4) as c: c.run(program)`."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Collection, Mapping
from types import TracebackType
from typing import Any, Self

from labkit.arguments import one_of
from labkit.cluster.engine import Addresses, Engine, Job
from labkit.cluster.environment import (
    checked,
    indices,
    local_variables,
    rank_environment,
    roles_of,
    tf_config_of,
)
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
        self._environment = checked(environment)
        self._preload = (preload,) if isinstance(preload, str) else tuple(preload)
        self._start = checked_seconds("start", start)
        self._private = False
        make = ENGINES[one_of("engine", engine, ENGINES)]
        known = [name for name in inspect.signature(make).parameters if name != "environment"]
        for keyword in engine_keywords:
            one_of(f"a keyword of engine={engine!r}", keyword, known)
        if engine == "local":
            network = engine_keywords.get("network") or os.environ.get("LABKIT_NETWORK", "own")
            self._private = one_of("network", network, ("own", "shared")) == "own"
            engine_keywords |= {"network": network, "environment": self._environment}
        self.engine = make(**engine_keywords)
        self._addresses: Addresses | None = None
        self._run: RunHandle | None = None
        self._is_open = False

    def __enter__(self) -> Self:
        try:
            self.engine.open(self.ranks, self._start)
            self._addresses = self.engine.addresses()
        except BaseException:
            self.engine.close()
            raise
        self._is_open = True
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        fault: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._is_open = False
        self.engine.close()

    def __repr__(self) -> str:
        counts = {role: self.roles.count(role) for role in dict.fromkeys(self.roles)}
        who = ", ".join(f"{count} {role}" for role, count in counts.items())
        words = "1 rank" if self.ranks == 1 else f"{self.ranks} ranks"
        words += f" ({who})" if len(counts) > 1 else ""
        words += f" {self.engine.describe()}"
        return words if self._is_open else f"{words}; its block has ended"

    @property
    def addresses(self) -> tuple[str, ...]:
        """The address of each rank in this run, or in the next one."""
        if self._addresses is None:
            raise LabError(
                "Ranks have addresses in their block: with labkit.cluster(...) as c: ..."
            )
        return self._addresses.ranks

    def tf_config(self, rank: int) -> dict[str, Any]:
        """What this rank finds in its TF_CONFIG."""
        return tf_config_of(self.roles, self.addresses, self._checked("rank", [rank])[0])

    def run(
        self,
        program: Callable[..., Any],
        *args: Any,
        deadline: float = 60.0,
        until: Collection[int] | None = None,
        tolerate: Collection[int] = (),
        show: bool = True,
    ) -> list[Any]:
        """Call program(rank, *args) on every rank; what they return, by rank.

        A rank that fails ends the run with a LabError, whose `errors` and `results` are by rank.
        `until={0}`: over when these have returned; the others are then stopped. `tolerate={2}`:
        these may fail. Their place in the list is None.
        """
        deadline = checked_seconds("deadline", deadline)
        run = self.start(program, *args, until=until, tolerate=tolerate, show=show)
        outcome = run.finish(deadline)
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
        if until is not None and not self._checked("until", until):
            raise LabError("until names no rank. Leave it out to wait for all of them.")
        self._checked("tolerate", tolerate)
        packed = pack_program(program, args)
        self._addresses = addresses = self.engine.addresses()
        job = Job(
            packed,
            self.ranks,
            tuple(self._environment_of(rank, addresses) for rank in range(self.ranks)),
            (*self._preload, *modules_of(program)),
            addresses.ranks,
        )
        self._run = run = RunHandle(
            self.engine,
            self.ranks,
            name=getattr(program, "__name__", type(program).__name__),
            start=self._start,
            until=until,
            tolerate=tolerate,
            show=show,
            private=self._private,
        )
        try:
            self.engine.start(job)
        except BaseException:
            run.stop()
            raise
        return run

    def output(self, rank: int) -> str:
        """All that a rank wrote in the last run."""
        self._checked("rank", [rank])
        return "" if self._run is None else self._run.output.text(rank)

    def _environment_of(self, rank: int, addresses: Addresses) -> dict[str, str | None]:
        """Yours, then what a rank needs, then what you asked for."""
        role, index = self.roles[rank], indices(self.roles)[rank]
        me = ThisRank(rank, self.ranks, role, index, addresses.ranks, self.engine.name)
        found = {**rank_environment(self.roles, addresses, rank), **me.variable()}
        if self.engine.name == "local":
            found |= local_variables(self.ranks, rank)
        return found | self._environment

    def _checked(self, name: str, ranks: Collection[int]) -> list[int]:
        if not isinstance(ranks, (set, frozenset, list, tuple, range)):
            raise LabError(f"{name} must be a set of ranks, such as {{0}}, got {ranks!r}.")
        for rank in ranks:
            one_of(f"each rank in {name}", rank, range(self.ranks))
        return list(ranks)
