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

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from labkit.kinds import LabError
from labkit.training.program_rules import PASSES_ON, Program, mismatch

# The worst first: how bad it is, what it does, and how to fix it.
DEFECTS = {
    "loss": (
        "wrong result",
        "The loss and the last layer do not match: one of them works with logits, the other with "
        "probabilities. The loss means nothing, and training goes wrong.",
        "Use a last layer without activation and a loss object with from_logits=True.",
    ),
    "unscaled loss": (
        "wrong result",
        "Each replica takes the mean over its own batch, and the gradients of the replicas are "
        "summed: N replicas make every gradient N times too large.",
        "Divide the sum of the losses by the global batch: "
        "tf.nn.compute_average_loss(losses, global_batch_size=...).",
    ),
    "pipeline": (
        "wrong result",
        "One run shuffles the images and the other does not (fit shuffles arrays by itself): they "
        "train differently and do different work.",
        "Shuffle in both: .shuffle(number of images) before .batch(...).",
    ),
    "scope": (
        "wrong result",
        "A strategy is created, but the model is made without strategy.scope(): its variables live "
        "on one device and the other replicas are not used.",
        "Create and compile the model inside `with strategy.scope():`.",
    ),
    "clock": (
        "wrong time",
        "process_time adds the CPU seconds of all threads: waiting for a GPU counts nothing, and "
        "two busy threads count twice. time.time can be set while it runs.",
        "Use time.perf_counter(), or labkit.measure and labkit.compare.",
    ),
    "first epoch": (
        "wrong time",
        "The first training of this model is timed: building, tracing and start-up are part of it. "
        "They are paid once, not in every epoch.",
        "Train a few steps before the clock starts, or use labkit.compare: it warms up first.",
    ),
    "timed evaluation": (
        "wrong time",
        "The evaluation is timed as if it were training.",
        "Stop the clock first, and evaluate afterwards, without validation data in fit.",
    ),
    "batch": (
        "wrong time",
        "The batch does not follow the number of replicas: each of them gets another share of it, "
        "or shares of different size.",
        "Use the batch per replica times strategy.num_replicas_in_sync everywhere.",
    ),
    "different batch": (
        "wrong time",
        "The runs that are compared use different batches: they do different numbers of steps, so "
        "neither time nor accuracy compares.",
        "Give both the same global batch (strong scaling), or say that it is weak scaling and "
        "compare images per second.",
    ),
    "float64": (
        "wrong time",
        "The images are float64: eight bytes for each number, which are converted to float32 on "
        "the way to the model.",
        'Write x.astype("float32") / 255, or keep bytes and scale inside the model.',
    ),
    "shuffle": (
        "advice",
        "The shuffle mixes less than it seems: a small buffer mixes neighbours only, a shuffle "
        "after .batch mixes whole batches, and a .cache after .shuffle repeats one order.",
        "Write .cache().shuffle(number of images).batch(...).",
    ),
    "one run": (
        "advice",
        "One run of each is compared. The same program run twice differs too, so this difference "
        "may be noise.",
        "Repeat both in turn and look at the spread: labkit.compare({name: function, ...}).",
    ),
}
_LIMITS = f"labkit knows {len(DEFECTS)} defects, and reads a program without running it."


@dataclass(frozen=True)
class Finding:
    """One defect, with the places where it was found and what is written at the first of them."""

    defect: str
    severity: str
    does: str
    fix: str
    where: tuple[str, ...]
    wrote: str

    def __str__(self) -> str:
        return (
            f"{self.defect} ({self.severity}), {', '.join(self.where)}\n"
            f"  you wrote: {self.wrote}\n  it does:   {self.does}\n  to fix it: {self.fix}"
        )


@dataclass(frozen=True)
class Diagnosis:
    """The findings, the worst first. True when there is one; finding none proves nothing."""

    findings: tuple[Finding, ...]
    inspected: tuple[str, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the defects."""
        return tuple(finding.defect for finding in self.findings)

    def __len__(self) -> int:
        return len(self.findings)

    def __iter__(self) -> Iterator[Finding]:
        return iter(self.findings)

    def _summary(self) -> str:
        what = " and ".join(self.inspected)
        if not self.findings:
            return f"No known defect found in {what}. That is not a proof: {_LIMITS}"
        return f"{len(self)} defect{'s' if len(self) > 1 else ''} found in {what}"

    def __repr__(self) -> str:
        return "\n".join([self._summary(), *map(str, self.findings)])

    def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
        from labkit.views.table import table

        head = ("defect", "where", "you wrote", "what it does, and how to fix it")
        rows = [
            (f"{f.defect} ({f.severity})", ", ".join(f.where), f.wrote, f"{f.does} → {f.fix}")
            for f in self.findings
        ]
        footer = f"There may be others: {_LIMITS}"
        html = table(head, rows, self._summary(), footer, prose=True)
        page = html if rows else f"<p>{self._summary()}</p>"
        return {"text/plain": repr(self), "text/html": page}


def diagnose(
    code: Any = None, *, model: Any = None, data: Any = None, replicas: Any = None
) -> Diagnosis:
    """Look for the classic mistakes in a program, or in a model and data that exist.

    >>> diagnose(In[3:6])                                    # doctest: +SKIP
    >>> diagnose(my_benchmark)                               # doctest: +SKIP
    >>> diagnose(model=model, data=dataset, replicas=two)    # doctest: +SKIP

    `code` is Python text, a function, or a sequence of cells. `model` is a compiled Keras model;
    `data` its arrays (x or (x, y)) or a tf.data pipeline; `replicas` the result of
    labkit.replicas, a strategy or their number.
    """
    given = {"the text of the program": code, "the model": model, "the data": data}
    inspected = tuple(name for name, value in given.items() if value is not None)
    if not inspected:
        raise LabError("Nothing to diagnose: give code, model= or data=, such as diagnose(In[3]).")
    found: dict[str, list[tuple[str, str]]] = {}
    if code is not None:
        program = Program(code)
        for name, node in program.defects():
            found.setdefault(name, []).append(program.place(node))
    if model is not None and (wrote := _wrong_loss(model)):
        found.setdefault("loss", []).append(("the model", wrote))
    count = getattr(replicas, "num_replicas_in_sync", getattr(replicas, "count", replicas or 1))
    for name, wrote in () if data is None else _data_defects(data, count):
        found.setdefault(name, []).append(("the data", wrote))
    findings = [
        Finding(name, *texts, tuple(dict.fromkeys(where for where, _ in found[name])),
                found[name][0][1])
        for name, texts in DEFECTS.items() if name in found
    ]  # fmt: skip
    return Diagnosis(tuple(findings), inspected)


def _wrong_loss(model: Any) -> str:
    """What is written, where the last layer and the loss of a compiled model do not match."""
    loss = getattr(model, "loss", None)
    if not hasattr(model, "layers") or not loss:
        raise LabError(f"model must be a compiled Keras model with a loss, got {model!r:.80}.")
    name = loss if isinstance(loss, str) else getattr(loss, "name", getattr(loss, "__name__", ""))
    logits = bool(loss.get_config().get("from_logits")) if hasattr(loss, "get_config") else False
    layer = [one for one in model.layers if type(one).__name__ not in PASSES_ON][-1]
    activation = getattr(getattr(layer, "activation", None), "__name__", "")
    activation = "softmax" if type(layer).__name__ == "Softmax" else activation
    if not mismatch(activation, name, logits):
        return ""
    return f"last layer {layer.name!r} with {activation}, loss {name}, from_logits={logits}"


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
