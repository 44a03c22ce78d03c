"""The serial program in numpy, which every judge of a training loop compares weights with.

Where `labkit grade` watches a training loop, in the process of the answer, it is blind: the truth
is not there. Then nothing is compared but what the judge noted, by the grader.

The network is small, its gradients are written out, and a rule says what a step does with the
gradients of its parts. So the program of a known mistake is the serial program with another rule.

>>> weights, losses = train()
>>> losses.shape == (STEPS, BATCH)
True
"""

import reprlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from itertools import count
from typing import Any

import numpy as np

from labkit.exercises.judges.answers import note
from labkit.exercises.task import Wrong

try:
    from labkit.exercises.truth import forward, gradients
except ImportError:
    BLIND = True
else:
    BLIND = False

REPLICAS, BATCH, STEPS, RATE, ADAM_RATE = 2, 16, 6, 0.1, 0.01
SIZE, CLASSES, HIDDEN = (8, 8), 5, 16
CLOSE = 1e-5

Gradients = list[Any]
# From the gradients of the parts of a step, each of the loss summed over the part and divided by
# BATCH, it makes what is subtracted from the weights.
Rule = Callable[[list[Gradients]], Gradients]
Mistakes = Iterable[tuple[str, Sequence[Any]]]  # a sentence, and the weights that it leads to


@cache
def make_data() -> tuple[Any, Any]:
    """Images that can be learnt; the number of an image is in its first pixel, as its share."""
    random = np.random.default_rng(3)
    labels = random.integers(0, CLASSES, BATCH * STEPS).astype("int32")
    patterns = random.random((CLASSES, *SIZE))
    images = 0.5 * patterns[labels] + 0.5 * random.random((len(labels), *SIZE))
    images[:, 0, 0] = np.arange(len(labels)) / len(labels)
    return images.astype("float32"), labels


@cache
def first_weights() -> tuple[Any, ...]:
    """Kernel and bias of the hidden layer, then of the last one."""
    random, weights = np.random.default_rng(1), list[Any]()
    for inputs, outputs in ((SIZE[0] * SIZE[1], HIDDEN), (HIDDEN, CLASSES)):
        limit = (6 / (inputs + outputs)) ** 0.5
        kernel = random.uniform(-limit, limit, (inputs, outputs))
        weights += [kernel.astype("float32"), np.zeros(outputs, "float32")]
    return tuple(weights)


def right_answers() -> Any:
    """For each image, whether the first weights give its label the largest logit."""
    images, labels = make_data()
    if BLIND:
        return labels >= 0
    return forward(first_weights(), images)[2].argmax(axis=1) == labels


def whole_batches() -> list[list[range]]:
    """Returns for each step its only part: the images of the global batch."""
    return batches(BATCH, BATCH * STEPS)


def batches(batch: int, images: int) -> list[list[range]]:
    """Returns whole batches of this size over so many images; the last may be smaller."""
    return [[range(first, min(first + batch, images))] for first in range(0, images, batch)]


def total(parts: list[Gradients]) -> Gradients:
    """The right rule: the sum."""
    return [sum(each[1:], each[0]) for each in zip(*parts, strict=True)]


def scaled(factor: float) -> Rule:
    """The sum, multiplied."""
    return lambda parts: [factor * gradient for gradient in total(parts)]


def norm(gradients: Gradients) -> float:
    """The global norm."""
    return float(sum((gradient**2).sum() for gradient in gradients) ** 0.5)


def clip(gradients: Gradients, limit: float, factor: float = 1.0) -> Gradients:
    """The gradients, multiplied by a factor, then clipped by their global norm."""
    scale = factor * min(1.0, limit / (factor * norm(gradients)))
    return [scale * gradient for gradient in gradients]


def train(
    rule: Rule = total, steps: Sequence[Sequence[Any]] | None = None, batch: int = BATCH
) -> tuple[list[Any], Any]:
    """The weights after SGD with rate RATE; and, with whole batches, the loss of every image.

    Losses are divided by `batch`, or by the images of their step if that is 0. A smaller batch is
    filled up with losses of 0.
    """
    images, labels = make_data()
    weights, losses = [one.astype(float) for one in first_weights()], []
    if BLIND:
        return weights, np.zeros((len(steps or whole_batches()), batch or BATCH))
    for parts in steps or whole_batches():
        by = batch or sum(map(len, parts))
        found = [gradients(weights, images[list(part)], labels[list(part)], by) for part in parts]
        losses.append(np.pad(found[0][1], (0, max(0, (batch or BATCH) - len(found[0][1])))))
        changes = rule([each for each, _ in found])
        weights = [one - RATE * change for one, change in zip(weights, changes, strict=True)]
    return weights, np.array(losses)


def momentum(kept: float, forgets: int = -1) -> Rule:
    """What SGD with momentum subtracts; before one step the momentum is forgotten."""
    step, state = count(), [np.zeros_like(one) for one in first_weights()]

    def rule(parts: list[Gradients]) -> Gradients:
        keep = kept * (next(step) != forgets)
        state[:] = [keep * old + new for old, new in zip(state, total(parts), strict=True)]
        return list(state)

    return rule


def adam(forgets: Sequence[int] = ()) -> Rule:
    """What Adam subtracts, divided by RATE; before some steps its state is forgotten."""
    steps, done, first, second = count(), 0, [], []

    def rule(parts: list[Gradients]) -> Gradients:
        nonlocal done, first, second
        gradients = total(parts)
        if next(steps) in (0, *forgets):
            done, first, second = 0, [0.0] * len(gradients), [0.0] * len(gradients)
        done += 1
        first = [0.9 * old + 0.1 * new for old, new in zip(first, gradients, strict=True)]
        second = [0.999 * old + 0.001 * new**2 for old, new in zip(second, gradients, strict=True)]
        rate = ADAM_RATE * (1 - 0.999**done) ** 0.5 / (1 - 0.9**done) / RATE
        return [rate * m / (v**0.5 + 1e-7) for m, v in zip(first, second, strict=True)]

    return rule


PROGRAM = (
    f"keras.optimizers.SGD({RATE}) and the mean cross-entropy of logits (from_logits=True in Keras)"
)


DIVIDED = (
    f"{PROGRAM}; each step's summed loss is divided by global_batch, also the last, smaller one"
)


def near(weights: Sequence[Any], others: Sequence[Any], close: float = CLOSE) -> bool:
    """Whether two lists of weights are equal but for rounding."""
    apart = max(float(abs(a - b).max()) for a, b in zip(weights, others, strict=True))
    return apart <= close * max(1.0, *(float(abs(one).max()) for one in others))


def compare(
    weights: Sequence[Any],
    right: Sequence[Any],
    mistakes: Mistakes,
    program: str = PROGRAM,
    close: float = CLOSE,
) -> None:
    """Refuse other weights than the right ones; if they are those of a known mistake, say which."""
    apart = max(float(abs(a - b).max()) for a, b in zip(weights, right, strict=True))
    if BLIND or apart <= close:
        return
    for says, wrong in mistakes:
        if near(weights, wrong, close):
            raise Wrong(says)
    if any(np.array_equal(*pair) for pair in zip(weights, first_weights(), strict=True)):
        raise Wrong("Some variables have not changed. Update all model.trainable_variables.")
    raise Wrong(
        f"The weights differ from those of the serial program by up to {apart:.1g}. It uses "
        f"{program}."
    )


def equal_copies(copies: Sequence[Sequence[Any]]) -> list[Any]:
    """The copies of each variable must be equal."""
    if any(abs(each[0] - other).max() > CLOSE for each in copies for other in each[1:]):
        raise Wrong(
            "The copies of the weights differ between the replicas. Each used its own gradients. "
            "Sum the gradients over the replicas before the update; optimizer.apply_gradients "
            "inside strategy.run does."
        )
    return [each[0] for each in copies]


FACTORS = {
    REPLICAS: f"The gradients are {REPLICAS} times too large. Each replica takes the mean loss of "
    "its own share, and the gradients of the replicas are summed. Divide the summed loss by "
    "global_batch, as tf.nn.compute_average_loss does. (If it is divided already, the optimizer "
    "sums over the replicas, so leave out all_reduce, and apply it once in each step.) Or is the "
    "learning rate too large?",
    1 / REPLICAS: f"The gradients are {REPLICAS} times too small, because they are summed over the "
    "replicas, and were divided by their number once more. (A Keras loss that takes the mean "
    "divides by it already.)",
    BATCH: "The loss is a sum, not a mean. Divide it by global_batch.",
}


def times(by: float) -> str:
    """Returns a factor in words, such as "2 times too large"."""
    return f"{by:g} times too large" if by > 1 else f"{1 / by:g} times too small"


def factors(
    optimizers: Sequence[Any], known: Mapping[Any, str], rule: Rule, *data: Any
) -> Mistakes:
    """The right rule with the rate of an optimizer, or with gradients of another size."""

    def off(rate: float, by: float) -> Any:
        return train(
            lambda each: [rate * g for g in rule([[by * g for g in p] for p in each])], *data
        )[0]

    for rate in {round(float(one.learning_rate.numpy()), 6) for one in optimizers} - {RATE}:
        yield f"The optimizer's learning rate is {rate:g}; the task is {RATE}.", off(rate / RATE, 1)
    for by in (*known, 2, 4, 8, 16, 32, 1 / 2, 1 / 4, 1 / 8, 1 / 16, 1 / 32):
        once = f"The gradients are {times(by)}. Divide the summed loss by the global batch, once."
        yield known.get(by, once), off(1, by)


def check_weights(
    copies: Sequence[Sequence[Any]],
    optimizers: Sequence[Any] = (),
    steps: Sequence[Sequence[Any]] | None = None,
    batch: int = BATCH,
) -> None:
    """The copies of each variable must be equal, and those of the serial program."""
    mistakes = factors(optimizers, FACTORS, total, steps, batch)
    program = DIVIDED if batch else PROGRAM
    compare(equal_copies(copies), train(total, steps, batch)[0], mistakes, program)


def each_loss(losses: Any) -> list[Any]:
    """The losses that were returned."""
    try:
        return list(losses)
    except TypeError:
        text = reprlib.repr(losses)
        raise Wrong(f"Return the list of the loss of each step, and not {text}.") from None


def _loss(loss: Any) -> float:
    from labkit.hardware.devices import import_tensorflow

    try:
        return float(loss)
    except (TypeError, ValueError):
        pass
    if loss is None or "PerReplica" in type(loss).__name__:
        raise Wrong(
            "The loss of a step must be one number: strategy.run returns one for each replica. "
            "Reduce them with strategy.reduce(tf.distribute.ReduceOp.SUM, losses, axis=None)."
        )
    if import_tensorflow().is_symbolic_tensor(loss):
        raise Wrong(
            "A loss is a symbolic tensor: Python code in a tf.function, such as append, runs when "
            "it is traced and not in each step. Return the loss, and append it outside."
        )
    raise Wrong(f"The loss of a step must be a number, got {reprlib.repr(loss)}.")


def check_losses(losses: Any, shares: Sequence[dict[int, Any]], each: Any = None) -> None:
    """The loss of each step must be the mean over the global batch."""
    each = train()[1] if each is None else each
    found, right = np.array([_loss(loss) for loss in each_loss(losses)]), each.mean(axis=1)
    note(found.tolist())
    if BLIND:
        return
    if len(found) != len(right):
        raise Wrong(f"You returned {len(found)} of {len(right)} losses. Return one for each step.")

    def is_(expected: Any) -> Any:
        return np.isclose(found, expected, rtol=1e-3, atol=1e-4)

    if is_(right).all():
        return
    for replica in shares[0]:
        part = [each.ravel()[list(share[replica])].sum() / each.shape[1] for share in shares]
        if is_(part).all():
            raise Wrong(
                "These are the losses of one replica's share. Reduce them over the replicas: "
                "strategy.reduce(tf.distribute.ReduceOp.SUM, losses, axis=None)."
            )
    step = int(is_(right).argmin())
    raise Wrong(
        f"The loss of step {step + 1} is {found[step]:.5g}; in the serial program it is "
        f"{right[step]:.5g}. Return the mean loss over the global batch, before the update of the "
        "step: the sum over the replicas of what each has divided by global_batch."
    )
