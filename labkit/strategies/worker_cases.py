"""MultiWorkerMirrored in two, three and four processes: the one step, and Keras' own."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

from labkit.strategies.cases import STEPS, Case, practice_job
from labkit.strategies.keras_fit import fitted, fitted_by_legacy, stepped
from labkit.strategies.many_workers import workers

__all__ = ["cases"]

# Seconds for one exchange: longer than any takes, shorter than the deadline of a row.
_PATIENCE = 30.0


def cases() -> list[Case]:
    """The one step on 2 to 4 workers, Keras on 2; Keras 2's fit where it is installed."""
    steps = [_case(count, "one step", _step) for count in (2, 3, 4)]
    fits = [_case(2, "model.train_step", _train_step), _case(2, "model.fit", _fit)]
    if find_spec("tf_keras") is not None:
        fits.append(_case(2, "model.fit", _legacy_fit, " with Keras 2 (tf_keras)"))
    return [*steps, *fits]


def _case(count: int, what: Any, program: Any, more: str = "") -> Case:
    return Case("MultiWorkerMirrored", f"{count} workers{more}", what, program, processes=count)


def _step(rank: int) -> list[Any]:
    job = practice_job(workers(_PATIENCE))
    job.steps(STEPS)
    weights: list[Any] = job.weights()
    return weights


def _train_step(rank: int) -> list[Any]:
    return stepped(workers(_PATIENCE).strategy())


def _fit(rank: int) -> list[Any]:
    return fitted(workers(_PATIENCE).strategy())


def _legacy_fit(rank: int) -> list[Any]:
    return fitted_by_legacy(workers(_PATIENCE).strategy())
