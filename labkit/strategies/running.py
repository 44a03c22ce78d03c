"""Runs the cases one after another, each in fresh processes, and judges what they end with."""

from __future__ import annotations

import importlib.metadata
import time
from collections.abc import Sequence
from typing import Any

from labkit.hardware import machine_text
from labkit.kinds import Kind, LabError, measured
from labkit.progress import Line
from labkit.strategies.cases import BATCH, STEPS, Case
from labkit.strategies.reasons import plainly, why
from labkit.strategies.works import SAME, Row, Works

__all__ = ["all_cases", "run_case", "run_cases"]

ROW_DEADLINE = 45.0  # seconds: ten times what a row takes on a slow machine
PRELOAD = ("tensorflow", "keras", "labkit.training.job")


def all_cases() -> list[Case]:
    """Every row of the table; the first is the one that all others are compared with."""
    from labkit.strategies import one_machine, parameter_server, worker_cases

    return [
        one_machine.one_device(),
        *one_machine.cases(),
        *worker_cases.cases(),
        parameter_server.case("one step"),
        parameter_server.case("one step", one_at_a_time=False),
        parameter_server.case("model.fit"),
    ]


def run_cases(only: str | None = None, deadline: float = 180.0) -> Works:
    """Run every strategy, or only that of one name, and say what works; see `labkit.strategies`."""
    from labkit.cluster import shutdown
    from labkit.cluster.fork_client import in_a_kernel
    from labkit.cluster.run import checked_seconds

    deadline = checked_seconds("deadline", deadline)
    chosen, rows, end = _chosen(only), [], time.monotonic() + deadline
    reference: list[Any] | None = None
    line = Line()
    try:
        for number, case in enumerate(chosen, 1):
            about = f"{case.strategy}, {case.placed}, {case.what}"
            line.show(f"{number} of {len(chosen)}: {about}")
            row, weights = run_case(case, reference, min(ROW_DEADLINE, end - time.monotonic()))
            if reference is None and weights is None:
                raise LabError(
                    f"One device could not train, and there is nothing to compare with: {row.why}"
                )
            reference = reference or weights
            rows.append(row)
    finally:
        line.erase()
        # A notebook keeps the warm process for its next cell; a script has no next cell.
        if not in_a_kernel():
            shutdown()
    return Works(tuple(rows), STEPS, BATCH, _versions(), _kind())


def run_case(
    case: Case, reference: list[Any] | None, deadline: float
) -> tuple[Row, list[Any] | None]:
    """One row, and the weights that it ended with."""
    from labkit.cluster import Cluster

    if deadline <= 0:
        late = "Not run: the time for the whole table was over. Give it more with deadline=."
        return _row(case, None, 0.0, late), None
    with Cluster(
        case.processes,
        roles=case.roles,
        environment=case.environment,
        preload=PRELOAD,
        keep_warm=True,
    ) as ranks:
        going = ranks.start(plainly, case.program, *case.arguments, until=case.until, show=False)
        outcome = going.finish(deadline=deadline)
    copies = [weights for weights in outcome.results.values() if weights is not None]
    if outcome.errors or not copies:
        fault = why(outcome, deadline) if outcome.errors else "It ended without any weights."
        return _row(case, None, outcome.seconds, fault), None
    difference = None
    if case.serial:
        difference = _difference(copies[0], copies[0] if reference is None else reference)
    return _row(case, difference, outcome.seconds, _doubt(copies, difference)), copies[0]


def _row(case: Case, difference: float | None, seconds: float, why: str) -> Row:
    return Row(
        strategy=case.strategy,
        placed=case.placed,
        processes=case.processes,
        what=case.what,
        works=not why,
        difference=difference,
        seconds=seconds,
        why=why,
    )


def _chosen(only: str | None) -> list[Case]:
    cases = all_cases()
    if only is None:
        return cases
    wanted = [case for case in cases[1:] if case.strategy.lower() == str(only).lower()]
    if not wanted:
        names = ", ".join(repr(name) for name in dict.fromkeys(c.strategy for c in cases[1:]))
        raise LabError(f"There is no strategy {only!r} here. Take one of {names}.")
    return [cases[0], *wanted]


def _doubt(copies: Sequence[list[Any]], difference: float | None) -> str:
    """Why weights cannot be right, though nobody has complained."""
    if any(_difference(copy, copies[0]) != 0 for copy in copies):
        return "It ran, but the workers ended with different weights."
    if difference is not None and not difference <= SAME:
        return f"It ran, but ended {difference:.1e} away from the weights of one device."
    return ""


def _difference(one: list[Any], other: list[Any]) -> float:
    import numpy as np

    return max(float(np.abs(a - b).max()) for a, b in zip(one, other, strict=True))


def _versions() -> str:
    """The installed versions, without loading anything: the ranks have done that."""
    found = []
    for name, packages in (
        ("TensorFlow", ("tensorflow", "tensorflow-cpu")),
        ("Keras", ("keras",)),
        ("tf_keras", ("tf-keras",)),
    ):
        for package in packages:
            try:
                found.append(f"{name} {importlib.metadata.version(package)}")
                break
            except importlib.metadata.PackageNotFoundError:
                continue
    return ", ".join(found)


def _kind() -> Kind:
    return measured(machine_text())
