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
from typing import Any, NamedTuple

from labkit.kinds import LabError
from labkit.training.program_rules import PASSES_ON, Program

__all__ = ["DEFECTS", "Diagnosis", "Finding", "diagnose"]


class Defect(NamedTuple):
    """What labkit says about one kind of mistake."""

    severity: str
    does: str
    fix: str


DEFECTS: dict[str, Defect] = {
    "loss": Defect(
        "wrong result",
        "The loss and the last layer do not match: one of them works with logits, the other with "
        "probabilities. The loss means nothing, and training goes wrong.",
        "Use a last layer without activation and a loss object with from_logits=True.",
    ),
    "unscaled loss": Defect(
        "wrong result",
        "Each replica takes the mean over its own batch, and the gradients of the replicas are "
        "summed: N replicas make every gradient N times too large.",
        "Divide the sum of the losses by the global batch: "
        "tf.nn.compute_average_loss(losses, global_batch_size=...).",
    ),
    "pipeline": Defect(
        "wrong result",
        "One run shuffles the images and the other does not (fit shuffles arrays by itself): they "
        "train differently and do different work.",
        "Shuffle in both: .shuffle(number of images) before .batch(...).",
    ),
    "clock": Defect(
        "wrong time",
        "This clock adds the CPU seconds of all threads. Waiting for a GPU counts nothing, and two "
        "busy threads count twice.",
        "Use time.perf_counter(), or labkit.measure and labkit.compare.",
    ),
    "first epoch": Defect(
        "wrong time",
        "The first training of this model is timed: building, tracing and start-up are part of it. "
        "They are paid once, not in every epoch.",
        "Train a few steps before the clock starts, or use labkit.compare: it warms up first.",
    ),
    "timed evaluation": Defect(
        "wrong time",
        "The evaluation is timed as if it were training.",
        "Stop the clock first, and evaluate afterwards, without validation data in fit.",
    ),
    "batch": Defect(
        "wrong time",
        "The batch does not follow the number of replicas: each of them gets another share of it, "
        "or shares of different size.",
        "Use the batch per replica times strategy.num_replicas_in_sync everywhere.",
    ),
    "different batch": Defect(
        "wrong time",
        "The runs that are compared use different batches: they do different numbers of steps, so "
        "neither time nor accuracy compares.",
        "Give both the same global batch (strong scaling), or say that it is weak scaling and "
        "compare images per second.",
    ),
    "float64": Defect(
        "wrong time",
        "The images are float64: eight bytes for each number, which are converted to float32 on "
        "the way to the model.",
        'Write x.astype("float32") / 255, or keep bytes and scale inside the model.',
    ),
    "scope": Defect(
        "wrong result",
        "A strategy is created, but the model is made without strategy.scope(): its variables live "
        "on one device and the other replicas are not used.",
        "Create and compile the model inside `with strategy.scope():`.",
    ),
    "shuffle": Defect(
        "advice",
        "The shuffle mixes less than it seems: a small buffer mixes neighbours only, a shuffle "
        "after .batch mixes whole batches, and a .cache after .shuffle repeats one order for ever.",
        "Write .cache().shuffle(number of images).batch(...).",
    ),
    "wall clock": Defect(
        "advice",
        "This clock can be set while it runs, for example by the network time service.",
        "Use time.perf_counter(): it never goes back.",
    ),
    "one run": Defect(
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

    def _summary(self) -> str:
        what = " and ".join(self.inspected)
        if not self.findings:
            return f"No known defect found in {what}. That is not a proof: {_LIMITS}"
        return f"{len(self)} defect{'s' if len(self) > 1 else ''} found in {what}"

    def __len__(self) -> int:
        return len(self.findings)

    def __iter__(self) -> Iterator[Finding]:
        return iter(self.findings)

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
    >>> diagnose(model=model, data=dataset, replicas=2)      # doctest: +SKIP

    `code` is Python text, a function, or a sequence of cells. `model` is a compiled Keras model;
    `data` its arrays (x or (x, y)), a tf.data pipeline or one of labkit's data sets; `replicas`
    their number, a strategy, or the result of labkit.replicas.
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
    for name, where, wrote in (*_model_defects(model), *_data_defects(data, replicas)):
        found.setdefault(name, []).append((where, wrote))
    findings = [
        Finding(name, *defect, tuple(dict.fromkeys(where for where, _ in found[name])),
                found[name][0][1])
        for name, defect in DEFECTS.items() if name in found
    ]  # fmt: skip
    order = ("wrong result", "wrong time", "advice")
    findings.sort(key=lambda finding: order.index(finding.severity))
    return Diagnosis(tuple(findings), inspected)


def _model_defects(model: Any) -> Iterator[tuple[str, str, str]]:
    if model is None:
        return
    loss = getattr(model, "loss", None)
    if not hasattr(model, "layers") or not loss:
        raise LabError(f"model must be a compiled Keras model with a loss, got {model!r:.80}.")
    name = loss if isinstance(loss, str) else getattr(loss, "name", getattr(loss, "__name__", ""))
    config = loss.get_config() if hasattr(loss, "get_config") else {}
    logits = bool(config.get("from_logits"))
    layers = [layer for layer in model.layers if type(layer).__name__ not in PASSES_ON]
    if not layers or not name.endswith("crossentropy"):
        return
    activation = getattr(getattr(layers[-1], "activation", None), "__name__", "")
    activation = "softmax" if type(layers[-1]).__name__ == "Softmax" else activation
    if activation in ("softmax", "sigmoid") if logits else activation == "linear":
        wrote = f"last layer {layers[-1].name!r} with {activation}, loss {name}"
        yield "loss", "the model", f"{wrote}, from_logits={logits}"


def _data_defects(data: Any, replicas: Any) -> Iterator[tuple[str, str, str]]:
    if data is None:
        return
    spec = getattr(data, "element_spec", None)
    images = spec if spec is not None else getattr(data, "x_train", data)
    images = images[0] if isinstance(images, (tuple, list)) else images
    if not hasattr(images, "dtype"):
        raise LabError(f"data must be arrays or a tf.data pipeline, got {type(data).__name__}.")
    if getattr(images.dtype, "name", images.dtype) == "float64":
        yield "float64", "the data", "images of type float64"
    count = getattr(replicas, "num_replicas_in_sync", getattr(replicas, "count", replicas)) or 1
    if not isinstance(count, int):
        raise LabError(f"replicas must be a number or a strategy, got {replicas!r:.80}.")
    if spec is None or not images.shape.rank:
        return
    batch = images.shape[0]
    if batch is None:  # the pipeline does not tell: draw one element
        element = next(iter(data.take(1)))
        batch = (element[0] if isinstance(element, (tuple, list)) else element).shape[0]
    if batch % count:
        yield "batch", "the data", f"batches of {batch} for {count} replicas"
