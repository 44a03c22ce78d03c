"""An account of a step on one device: each part is measured alone, and so is the step.

    input             fresh images in every step: gathered and scaled
    products          forward and backward without dropout, with the loss
    random numbers    the same with dropout, less the same without
    optimizer         the update alone
    dispatch          the whole step on images of a few pixels, with a batch of one: it starts as
                      many operations, which have next to nothing to compute

What a part takes on such small images is subtracted from it, so that no start counts twice. No part
is computed from the step. What they miss of it, or count twice, is the row *rest*. All are CPU
seconds on a CPU, the best of many calls, so that other programs disturb little.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from labkit.hardware import replicas
from labkit.hardware.devices import import_tensorflow
from labkit.kinds import Kind, LabError, seconds_text
from labkit.shown import ShownAsTable
from labkit.training.inputs import scale_images
from labkit.training.job import Job
from labkit.training.step import loss_per_image

if TYPE_CHECKING:
    from labkit.views.figure import Picture
    from labkit.views.table import Table

PIXELS = {"dense": 1, "convolutional": 10, "transformer": 1}  # of a side: the fewest it takes
CALL_SECONDS = 0.01  # of one timed call: the shorter, the likelier is one that nothing disturbs


@dataclass(frozen=True, repr=False)
class Account(ShownAsTable):
    """The seconds of each part of a step, measured alone, and of the step."""

    title: str
    parts: Mapping[str, float]
    step: float
    kind: Kind

    @property
    def rest(self) -> float:
        """What the parts do not explain of the step; negative if they count something twice."""
        return self.step - sum(self.parts.values())

    def picture(self) -> Picture:
        """Returns the parts one after the other as a bar, above a bar of the step."""
        from labkit.views.bars import stacked

        names = (*self.parts, "step")
        alone = {name: max(0.0, self.parts.get(name, 0.0)) for name in names}
        whole = {name: self.step if name == "step" else 0.0 for name in names}
        rows = {"each part alone": alone, "the step": whole}
        said = ", ".join(f"{name} {seconds_text(alone[name])}" for name in self.parts)
        board = stacked("An account of a step", self.title, rows, seconds_text, self.kind)
        return board.picture(f"{self.title}. {said}; the step {seconds_text(self.step)}.")

    def table(self) -> Table:
        """Returns the parts with their shares, and the rest."""
        from labkit.views.table import Table

        def row(name: str, seconds: float) -> tuple[str, str, str]:
            text = seconds_text(abs(seconds))
            return name, text if seconds >= 0 else f"−{text}", f"{100 * seconds / self.step:.0f} %"

        rows = [row(*part) for part in (*self.parts.items(), ("rest", self.rest))]
        rows.append(row("the step", self.step))
        return Table(("part", "time", "of the step"), rows, self.title, f"{self.kind}.")


def step_parts(whole: Mapping[str, float], tiny: Mapping[str, float]) -> dict[str, float]:
    """Returns the parts, from the seconds of loops over them and of the same on tiny images.

    >>> names = "input", "products", "random numbers", "optimizer", "step"
    >>> parts = step_parts(dict(zip(names, (2, 7, 8, 3, 12))), dict(zip(names, (1, 2, 2, 1, 3))))
    >>> parts["products"], parts["dispatch"], 12 - sum(parts.values())
    (4, 3, 1)
    """
    work = {name: seconds - tiny[name] for name, seconds in whole.items()}
    return {
        "input": work["input"],
        "products": work["products"] - work["input"],  # that loop has the input as well
        "random numbers": work["random numbers"] - work["products"],  # and this one both
        "optimizer": work["optimizer"],
        "dispatch": tiny["step"],
    }


def account(job: Job, *, rounds: int = 40) -> Account:
    """Measure the parts of a step alone, on the job's first device, and the step.

    >>> account(Job("dense", data, replicas=labkit.replicas(1))).picture()  # doctest: +SKIP

    It trains copies of the job: the job itself stays as it is.
    """
    if not hasattr(job.replicas, "devices"):
        raise LabError("An account needs replicas of this process: take labkit.replicas(1).")
    one = replicas(devices=[job.replicas.devices[0]])
    alone, tiny = job.on(one), job.on(one, data=_tiny(job), batch=1)
    on_gpu = "gpu" in alone.strategy.extended.worker_devices[0].lower()
    clock = time.perf_counter if on_gpu else time.process_time
    timed = [(each, *loop) for each in (alone, tiny) for loop in _loops(each).items()]
    whole: dict[str, float] = {}
    small: dict[str, float] = {}
    counts = [0] * len(timed)
    for number in range(rounds + 1):
        for place, (each, name, loop) in enumerate(timed):
            if not number:
                probe = min(8, each.steps_per_epoch)
                _seconds(each, loop, probe, clock)  # makes kernels
                enough = int(CALL_SECONDS / _seconds(each, loop, probe, clock))
                counts[place] = max(1, min(enough, each.steps_per_epoch))
            best = whole if each is alone else small
            best[name] = min(best.get(name, math.inf), _seconds(each, loop, counts[place], clock))
    title = f"{job.model.name} model on {job.data.label}, batch {alone.global_batch}"
    return Account(title, step_parts(whole, small), whole["step"], alone.kind)


def _tiny(job: Job) -> Any:
    """Returns the job's data with only a corner of each image."""
    side = PIXELS[job.model.name]
    names = "y_train", "y_test", "classes", "label"
    same = {name: getattr(job.data, name) for name in names}
    corners = {name: getattr(job.data, name)[:, :side, :side] for name in ("x_train", "x_test")}
    return SimpleNamespace(**same, **corners)


def _seconds(job: Job, loop: Any, steps: int, clock: Callable[[], float]) -> float:
    tf = import_tensorflow()
    order = job.order(0)
    began = clock()
    loop(order, tf.constant(0), tf.constant(steps))
    job.synchronize()
    return (clock() - began) / steps


def _loops(job: Job) -> dict[str, Any]:
    """Returns loops over parts of the step, and over the step, as `Job.build_loop` does."""
    tf = import_tensorflow()
    quiet = job.on(job.replicas, dropout=0.0)

    def fed(images: Any, labels: Any) -> Any:
        return tf.reshape(images, [-1])[0] + tf.cast(labels[0], tf.float32)

    def trained(model: Any, images: Any, labels: Any) -> Any:
        with tf.GradientTape() as tape:
            logits = model(images, training=True)
            loss = tf.reduce_sum(loss_per_image(labels, logits)) / job.global_batch
        gradients = tape.gradient(loss, model.trainable_variables)
        return loss + tf.add_n([tf.reshape(one, [-1])[0] for one in gradients])

    def looped(part: Callable[..., Any]) -> Any:
        def one(*arguments: Any) -> Any:
            images, labels = job.inputs.batch_at(*arguments)
            return part(scale_images(images), labels)

        return _loop(job, one)

    weights = [tf.zeros_like(one) for one in job.weights()]

    def updated(*arguments: Any) -> Any:
        job.optimizer.apply(weights, job.model.trainable_variables)
        return tf.constant(0.0)

    return {
        "input": looped(fed),
        "products": looped(lambda *batch: trained(quiet.model, *batch)),
        "random numbers": looped(lambda *batch: trained(job.model, *batch)),
        "optimizer": _loop(job, updated),
        "step": job.run_steps,
    }


def _loop(job: Job, part: Callable[..., Any]) -> Any:
    """Returns a loop over a part; it adds up what the part returns, or TensorFlow would drop it."""
    tf = import_tensorflow()

    @tf.function(autograph=False)  # type: ignore[untyped-decorator]
    def run_steps(order: Any, first: Any, steps: Any) -> Any:
        def body(number: Any, total: Any) -> tuple[Any, Any]:
            found = job.strategy.run(part, args=job.inputs.arguments(order, number))
            return number + 1, total + found

        return tf.while_loop(
            lambda number, _: number < first + steps, body, (first, tf.constant(0.0)),
            parallel_iterations=1,
        )  # fmt: skip

    number = tf.TensorSpec((), tf.int32)
    return run_steps.get_concrete_function(tf.TensorSpec((None,), tf.int32), number, number)
