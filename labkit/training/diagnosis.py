"""Finds the classic mistakes of a training benchmark in a student's program, model and data.

>>> code = '''
... start = time.process_time()
... model.fit(x, y)
... print(time.process_time() - start)
... '''
>>> diagnose(code).names
('clock',)

`program_rules` reads the text of a program, which is never run. A model and data are inspected as
objects; nothing is trained.
"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from labkit.kinds import LabError
from labkit.training.program_rules import Program, mismatch

RESULT, TIME, ADVICE = "wrong result", "wrong time", "advice"
# The worst first: how bad it is, what it does, and how to fix it.
DEFECTS = {
    "loss": (
        RESULT,
        "The last layer gives logits and the loss expects probabilities, or the reverse: the loss "
        "means nothing.",
        "Use a last layer without activation and a loss object with from_logits=True.",
    ),
    "unscaled loss": (
        RESULT,
        "Gradients are summed over the replicas, so the mean over a replica's own batch makes "
        "every gradient N times too large.",
        "Divide by the global batch: tf.nn.compute_average_loss(losses, global_batch_size=...).",
    ),
    "pipeline": (
        RESULT,
        "One run shuffles the images and the other does not (fit shuffles arrays by itself).",
        "Shuffle in both: .shuffle(number of images) before .batch(...).",
    ),
    "clock": (
        TIME,
        "process_time adds the CPU seconds of all threads: waiting for a GPU counts nothing, and "
        "two busy threads count twice. time.time can be set while it runs.",
        "Use time.perf_counter(), or labkit.measure and labkit.compare.",
    ),
    "first epoch": (
        TIME,
        "The first training of this model is timed, with building, tracing and start-up.",
        "Train a few steps before the clock starts, or use labkit.compare: it warms up first.",
    ),
    "timed evaluation": (
        TIME,
        "The evaluation is timed as if it were training.",
        "Stop the clock first, and evaluate afterwards, without validation data in fit.",
    ),
    "batch": (
        TIME,
        "The batch does not follow the number of replicas, so each gets another share of it.",
        "Use the batch per replica times strategy.num_replicas_in_sync everywhere.",
    ),
    "different batch": (
        TIME,
        "The runs use different batches, so they make different numbers of steps.",
        "Give both the same global batch, or compare images per second (weak scaling).",
    ),
    "float64": (
        TIME,
        "The images are float64, 8 bytes a number, and are converted to float32 for the model.",
        'Write x.astype("float32") / 255, or keep bytes and scale inside the model.',
    ),
    "shuffle": (
        ADVICE,
        "A small buffer mixes neighbours only, and a shuffle after .batch mixes whole batches.",
        "Write .shuffle(number of images).batch(...).",
    ),
    "one run": (
        ADVICE,
        "One run of each is compared, but the same program run twice differs, too.",
        "Repeat both in turn and look at the spread: labkit.compare({name: function, ...}).",
    ),
}


@dataclass(frozen=True)
class Finding:
    """One defect: the places where it was found, and what is written at the first of them."""

    defect: str
    severity: str
    does: str
    fix: str
    where: str
    wrote: str

    def __str__(self) -> str:
        found = f"{self.defect} ({self.severity}), {self.where}: {self.wrote}"
        return f"{found}\n  {self.does}\n  {self.fix}"


@dataclass(frozen=True)
class Diagnosis:
    """The findings, the worst first; finding none proves nothing."""

    findings: tuple[Finding, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the defects."""
        return tuple(finding.defect for finding in self.findings)

    def __iter__(self) -> Iterator[Finding]:
        return iter(self.findings)

    def _footer(self) -> str:
        if self.findings:
            return f"Found {len(self.findings)} of the {len(DEFECTS)} defects that labkit knows."
        return f"No defect found. That is no proof: labkit knows {len(DEFECTS)} defects."

    def __repr__(self) -> str:
        return "\n".join([*map(str, self.findings), self._footer()])

    def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
        from labkit.views.table import table

        head = ("defect", "where", "you wrote", "what it does, and how to fix it")
        rows = [
            (f"{f.defect} ({f.severity})", f.where, f.wrote, f"{f.does} → {f.fix}")
            for f in self.findings
        ]
        html = table(head, rows, footer=self._footer(), prose=True)
        return {"text/plain": repr(self), "text/html": html if rows else f"<p>{self._footer()}</p>"}


def diagnose(
    code: Any = None, *, model: Any = None, data: Any = None, replicas: Any = 1
) -> Diagnosis:
    """Look for the classic mistakes in a program, or in a model and data that exist.

    >>> diagnose(In[3:6])                                    # doctest: +SKIP
    >>> diagnose(my_benchmark)                               # doctest: +SKIP
    >>> diagnose(model=model, data=dataset, replicas=two)    # doctest: +SKIP

    `code` is Python text, a function, or a list of cells. `model` is a compiled Keras model; `data`
    its arrays (x or (x, y)) or a tf.data pipeline; `replicas` are those of labkit.replicas.
    """
    if code is None and model is None and data is None:
        raise LabError("Nothing to diagnose: give code, model= or data=, such as diagnose(In[3]).")
    found: list[tuple[str, str, str]] = []  # the defect, where it is, and what is written there
    if code is not None:
        program = Program(_cells(code))
        found += [(name, *program.place(node)) for name, node in program.defects()]
    if model is not None:
        found += [("loss", "the model", wrote) for wrote in _wrong_loss(model)]
    if data is not None:
        count = getattr(replicas, "count", replicas)
        found += [(name, "the data", wrote) for name, wrote in _data_defects(data, count)]
    findings = []
    for name, texts in DEFECTS.items():
        if here := [(where, wrote) for defect, where, wrote in found if defect == name]:
            places = ", ".join(dict.fromkeys(where for where, _ in here))
            findings.append(Finding(name, *texts, places, here[0][1]))
    return Diagnosis(tuple(findings))


def _cells(code: Any) -> list[str]:
    if isinstance(code, str):
        return [code]
    if isinstance(code, list) and all(isinstance(cell, str) for cell in code):
        return code
    try:
        return [textwrap.dedent(inspect.getsource(inspect.unwrap(code)))]
    except (TypeError, OSError):
        raise LabError(
            f"code must be Python text, a function of yours or a list of cells, got {code!r:.80}."
        ) from None


def _wrong_loss(model: Any) -> Iterator[str]:
    """Where the last layer and the loss of a compiled model do not match."""
    loss = getattr(model, "loss", None)
    if not hasattr(model, "layers") or not loss:
        raise LabError(f"model must be a compiled Keras model with a loss, got {model!r:.80}.")
    name = loss if isinstance(loss, str) else getattr(loss, "name", getattr(loss, "__name__", ""))
    logits = bool(loss.get_config().get("from_logits")) if hasattr(loss, "get_config") else False
    layer = model.layers[-1]
    activation = getattr(getattr(layer, "activation", None), "__name__", type(layer).__name__)
    if mismatch(activation, name, logits):
        yield f"last layer {layer.name!r} with {activation}, loss {name}, from_logits={logits}"


def _data_defects(data: Any, replicas: int) -> Iterator[tuple[str, str]]:
    pipeline = hasattr(data, "element_spec")
    element = next(iter(data)) if pipeline else data
    images = element[0] if isinstance(element, (tuple, list)) else element
    if not hasattr(images, "dtype"):
        raise LabError(f"data must be arrays or a tf.data pipeline, got {type(data).__name__}.")
    if images.dtype == "float64":
        yield "float64", "images of type float64"
    if pipeline and len(images) % replicas:
        yield "batch", f"batches of {len(images)} for {replicas} replicas"
