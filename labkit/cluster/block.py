"""The block in which ranks are at hand: `with labkit.cluster(ranks=4) as c: c.run(program)`."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from labkit.cluster import preloading, roles, surroundings
from labkit.cluster.engine import Engine, Job, Places
from labkit.cluster.going import Going
from labkit.cluster.outcome import explain_deadline
from labkit.kinds import LabError
from labkit.shipping import pack_program

__all__ = ["Cluster"]

ENGINES = {
    "local": ("labkit.cluster.local", "LocalEngine"),
    "mpi": ("labkit.cluster.mpi", "MpiEngine"),
    "slurm": ("labkit.cluster.slurm", "SlurmEngine"),
}
HERE = ("local", "mpi")  # engines whose ranks are all on this machine
OWN_NETWORK = (
    "The ranks have a network of their own, without a way out: get the data before, or write "
    "labkit.cluster(..., network='shared')."
)


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
        environment: Mapping[str, str | None] | None = None,
        network: str = "own",
        keep_warm: bool | None = None,
        preload: Sequence[str] | None = None,
        start: float = 60.0,
        **engine_keywords: Any,
    ) -> None:
        self.roles = _roles(ranks, roles)
        self.ranks = len(self.roles)
        self._environment = surroundings.explain_environment(environment)
        self._preload = preloading.explain_preload(preload)
        self._start = explain_deadline(start)
        self._private = engine in HERE and network == "own"
        if engine == "local":
            engine_keywords |= {
                "network": network,
                "keep_warm": keep_warm,
                "environment": self._environment,
            }
        elif engine == "mpi":
            engine_keywords["network"] = network
        self.engine: Engine = _engine(engine, engine_keywords)
        self._places: Places | None = None
        self._gpus: tuple[str, ...] = ()
        self._cores: int | None = None
        self._going: Going | None = None
        self._is_open = False

    def __enter__(self) -> Self:
        try:
            self.engine.open(self.ranks, self._start)
            self._places = self.engine.places()
            if self.engine.name in HERE:
                self._gpus = surroundings.deal_gpus(self.ranks)
                # Once: reading it can swallow a Ctrl-C (PyErr_Format of an error drops it).
                self._cores = surroundings.share_of_cores(self.ranks)
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
        what = f"{self.ranks} ranks" if len(counts) == 1 else f"{self.ranks} ranks ({who})"
        words = f"{what} {self.engine.describe()}"
        if self._gpus:
            words += f", GPUs: {'; '.join(f'rank {r}: {g}' for r, g in enumerate(self._gpus))}"
        return words if self._is_open else f"{words}; its block has ended"

    @property
    def addresses(self) -> tuple[str, ...]:
        """The address of each rank in the run that goes, or in the next one."""
        return self._where().addresses

    def tf_config(self, rank: int) -> dict[str, Any]:
        """What this rank finds in its TF_CONFIG."""
        self._explain_ranks("rank", [rank])
        return roles.tf_config(self.roles, self.addresses, rank)

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
        deadline = explain_deadline(deadline)
        self._begin(program, args, until, tolerate, show, deadline)
        assert self._going
        try:
            outcome = self._going.finish(deadline)
        finally:
            self._going.stop()
        outcome.raise_errors()
        return [outcome.results.get(rank) for rank in range(self.ranks)]

    def start(
        self,
        program: Callable[..., Any],
        *args: Any,
        until: Collection[int] | None = None,
        tolerate: Collection[int] = (),
        show: bool = True,
    ) -> Going:
        """The same, without waiting: the run can be watched, and its ranks killed or paused."""
        return self._begin(program, args, until, tolerate, show, float("inf"))

    def output(self, rank: int) -> str:
        """All that a rank wrote in the last run."""
        self._explain_ranks("rank", [rank])
        return "" if self._going is None else self._going.output.text(rank)

    def _begin(
        self,
        program: Callable[..., Any],
        args: tuple[Any, ...],
        until: Collection[int] | None,
        tolerate: Collection[int],
        show: bool,
        deadline: float,
    ) -> Going:
        if not self._is_open:
            raise LabError("Ranks exist only in a block: with labkit.cluster(ranks=4) as c: ...")
        if self._going is not None and not self._going.over:
            raise LabError(
                "Another run is still going. Call .finish() or .stop() of what c.start gave you."
            )
        name = _explain_program(program)
        if until is not None:
            self._explain_ranks("until", until)
        self._explain_ranks("tolerate", tolerate)
        packed = pack_program(program, args)
        preload = preloading.needed_by(program, self._preload)
        self._places = places = self.engine.places()
        environments = surroundings.environments(
            self.roles,
            places,
            self.engine.name,
            self._environment,
            self._gpus,
            cores=self._cores,
        )
        job = Job(
            packed, self.ranks, environments, deadline, self._start, preload, places.addresses
        )
        self._going = going = Going(
            self.engine,
            self.ranks,
            name=name,
            start=self._start,
            until=until,
            tolerate=tolerate,
            show=show,
            network=OWN_NETWORK if self._private else "",
            learn=preloading.learn,
        )
        try:
            self.engine.start(job)
        except BaseException:
            going.stop()
            raise
        return going

    def _where(self) -> Places:
        if self._places is None:
            raise LabError(
                "Ranks have addresses in their block: with labkit.cluster(...) as c: ..."
            )
        return self._places

    def _explain_ranks(self, name: str, given: Any) -> None:
        if isinstance(given, str) or not isinstance(given, Collection):
            raise LabError(f"{name}={given!r} must be a set of ranks, such as {name}={{0}}.")
        for rank in given:
            if isinstance(rank, bool) or not isinstance(rank, int) or not 0 <= rank < self.ranks:
                raise LabError(
                    f"{name} names rank {rank!r}, but ranks are numbered 0 to {self.ranks - 1}."
                )
        if name == "until" and not given:
            raise LabError("until names no rank. Leave it out to wait for all of them.")


def _roles(ranks: int | None, given: Mapping[str, int] | None) -> tuple[str, ...]:
    return roles.roles_of(ranks, given)


def _engine(name: str, keywords: dict[str, Any]) -> Engine:
    if name not in ENGINES:
        raise LabError(f"engine={name!r} is unknown. Choose among {', '.join(ENGINES)}.")
    module, kind = ENGINES[name]
    made = getattr(importlib.import_module(module), kind)
    known = inspect.signature(made).parameters
    for keyword in keywords:
        if keyword not in known:
            raise LabError(
                f"labkit.cluster has no keyword {keyword}= with engine={name!r}. "
                f"It has: {', '.join(known)}."
            )
    engine: Engine = made(**keywords)
    return engine


def _explain_program(program: object) -> str:
    if not callable(program):
        raise LabError(
            f"c.run wants a function of (rank), not {program!r}. Write: def program(rank): ..., "
            "and c.run(program)."
        )
    if inspect.iscoroutinefunction(program):
        raise LabError("The program is an async function. Write it as a plain one: def ...(rank).")
    return str(getattr(program, "__name__", type(program).__name__))
