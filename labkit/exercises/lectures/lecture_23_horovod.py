"""The tasks of lecture 23: Horovod."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from labkit.exercises.judges import frameworks
from labkit.exercises.judges.answers import function_task, judged, number
from labkit.exercises.task import Task, Wrong
from labkit.kinds import LabError
from labkit.shipping import functions_of, names_in

if TYPE_CHECKING:
    from labkit.collectives import Trace

MOST_BYTES = 1000  # for a checksum; the weights of the judge are 8,000 bytes
CHANGES = "the last bit of one value", "the order of two values", "one sign"
PLACES = (0, 503, 999)  # of the 1,000 weights
MIXED = [("a", "float32", 40), ("b", "float32", 40), ("c", "float16", 30), ("d", "float16", 30),
         ("e", "float32", 200), ("f", "float32", 20), ("g", "float32", 80)]  # fmt: skip


def _checksum(answer: Any) -> Trace:
    """Every rank must know whether all weights are equal, without sending the weights."""
    if any("hash" in names_in(each.__code__) for each in functions_of(answer)):
        raise Wrong("hash() of equal bytes is another number in each process: take zlib.crc32.")
    for ranks in (2, 3, 1, 4):
        for change, place in itertools.product(CHANGES * (ranks > 1), PLACES):
            _compare(answer, ranks, change, place)
        trace = _compare(answer, ranks)
    return trace


def _compare(answer: Callable[..., Any], ranks: int, change: str = "", place: int = 0) -> Trace:
    import numpy as np

    from labkit import collectives

    # Multiples of 2**-20: their sum has no rounding, and is the same in any order.
    weights = np.random.default_rng(23).integers(-(2**21), 2**21, 1000) / 2**20
    inputs, verdicts = [weights.copy() for _ in range(ranks)], dict[int, Any]()
    changed = 0 if "sign" in change else ranks - 1
    if "last bit" in change:
        inputs[changed][place] = np.nextafter(inputs[changed][place], 9)
    elif "order" in change:
        inputs[changed][[place, 700]] = weights[[700, place]]
    elif change:
        inputs[changed][place] *= -1

    def program(comm: Any, buffer: Any) -> None:
        verdicts[comm.Get_rank()] = answer(comm, buffer)

    case = f"On {ranks} rank{'s' * (ranks > 1)}, "
    case += (
        f"on rank {changed} {change} (number {place}) differs" if change else "all weights equal"
    )
    try:
        trace = collectives.run(program, inputs, timeout=10)
    except LabError as fault:
        raise Wrong(f"{case}: {fault}") from None
    for rank, verdict in sorted(verdicts.items()):
        if str(verdict) != str(not change):
            raise Wrong(f"{case}: rank {rank} returned {verdict}, not {not change}.", trace)
    if (most := max(trace.bytes_sent)) > MOST_BYTES:
        text = f"a rank sent {most:,} bytes. The weights have 8,000: send less."
        raise Wrong(f"{case}: it is correct, but {text}", trace)
    return trace


def _train(rank: int, my_step: Any, images: Any, labels: Any, start: Any) -> Any:
    """Three steps on a rank's shard, in Horovod's environment; the weights after them."""
    import horovod.tensorflow as hvd  # type: ignore[import-not-found]
    import numpy as np
    import tensorflow as tf

    tf.config.run_functions_eagerly(True)  # to trace Horovod's takes seconds
    hvd.init()
    model = tf.keras.Sequential([tf.keras.layers.Dense(3, use_bias=False, input_shape=(5,))])
    model.set_weights([np.array(start)])
    optimizer = tf.keras.optimizers.SGD(0.5)
    for x, y in zip(images, labels, strict=True):
        mine = slice(rank, None, hvd.size())
        my_step(hvd, tf, model, optimizer, tf.constant(x[mine]), tf.constant(y[mine]))
    return model.get_weights()[0].tolist()  # lists: the versions of NumPy are different


def _step(answer: Any) -> None:
    """Three steps on two ranks must be those of one process with all images."""
    import numpy as np

    random = np.random.default_rng(23)
    images = random.normal(size=(3, frameworks.BATCH, 5)).astype("float32")
    labels = random.integers(0, 3, size=(3, frameworks.BATCH))
    start = random.normal(size=(5, 3)).astype("float32")
    data = images.tolist(), labels.tolist(), start.tolist()
    found = frameworks.run("horovod", _train, answer, *data, ranks=frameworks.RANKS)

    def serial(scale: float = 1.0, loss: str = "", same: bool = False, **_: Any) -> dict[str, Any]:
        weights, share = start.astype("float64"), slice(None, None, 2 if same else 1)
        for x, y in zip(images[:, share], labels[:, share], strict=True):
            weights -= scale * 0.5 * x.T @ frameworks.error(x @ weights, y, loss)
        return {"weights": weights}

    if not np.allclose(found[0], found[1], atol=1e-6):
        raise Wrong("After three steps the two ranks hold different weights.")
    if not np.allclose(found[0], serial()["weights"], atol=1e-5):
        why = frameworks.mistake({"weights": np.array(found[0])}, serial)
        raise Wrong(
            f"The two ranks hold equal weights, but not those of one process with all images.{why}"
        )


def _begin(rank: int, my_start: Any) -> Any:
    """What a rank holds after my_start, in Horovod's environment, and what it held before."""
    import horovod.tensorflow as hvd
    import tensorflow as tf

    hvd.init()
    layers = [tf.keras.layers.Dense(4, input_shape=(3,)), tf.keras.layers.BatchNormalization()]
    model = tf.keras.Sequential(layers)
    model.set_weights([each + rank + 1.0 for each in model.get_weights()])
    before = [each.tolist() for each in model.get_weights()]
    optimizer = tf.keras.optimizers.SGD(0.1, momentum=0.9)
    optimizer.iterations.assign(100 if rank == 0 else 0)
    my_start(hvd, model, optimizer)
    after = [each.tolist() for each in model.get_weights()]
    return before, after, int(optimizer.iterations), len(optimizer.variables)


def _start(answer: Any) -> None:
    """All of rank 0's state on every rank, the optimizer's too."""
    results = frameworks.run("horovod", _begin, answer, ranks=2)
    names = ("kernel", "bias", "gamma", "beta", "moving mean", "moving variance")
    wanted = results[0][0]
    for rank, (_, found, iterations, variables) in enumerate(results):
        for name, one, right in zip(names, found, wanted, strict=True):
            if one != right:
                raise Wrong(f"Rank {rank} does not hold the {name} that rank 0 had before.")
        if variables < 5:  # the count of updates, and a momentum for each of four variables
            raise Wrong(f"On rank {rank} the optimizer has no momentum yet.")
        if iterations != 100:
            raise Wrong(f"On rank {rank} the optimizer counts {iterations} updates, on rank 0 100.")


TASKS = {
    "23.gpu": Task(
        "8 ranks run on 2 machines with 4 GPUs each; ranks 0 to 3 are on the first machine. Which "
        "number has the GPU that rank 6 uses, on its machine?",
        number(2),
        ("gpus[hvd.local_rank()]: local_rank counts on each machine from 0.",),
        "answer = 6 - 4  # its local_rank",
        "The GPUs of a machine are numbered from 0 on every machine, and so is local_rank.",
        slips={6: "That is its rank.", 3: "Count from 0.", 1: "That is the machine."},
    ),
    "23.step": Task(
        "Write my_step(hvd, tf, model, optimizer, images, labels): one training step of a rank on "
        "its own images. The model returns logits; the loss is the mean cross-entropy. The judge "
        "compares three steps on two ranks with one process that has all images.",
        judged(_step),
        (
            "with tf.GradientTape() as tape: compute the loss with "
            "tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True).",
            "tape = hvd.DistributedGradientTape(tape), before tape.gradient.",
            "optimizer.apply_gradients takes pairs of a gradient and a variable.",
        ),
        """
def my_step(hvd, tf, model, optimizer, images, labels):
    loss_of = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    with tf.GradientTape() as tape:
        loss = loss_of(labels, model(images, training=True))
    tape = hvd.DistributedGradientTape(tape)
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables))
    return loss
""",
        "The mean of the ranks' mean gradients is the mean over all images, if shards are equal.",
        difficulty=2,
        environment="horovod",
    ),
    "23.start": Task(
        "Write my_start(hvd, model, optimizer), to be called before the first step. After it every "
        "rank holds the state of rank 0: all variables of the model, and those of the optimizer, "
        "which must exist by then.",
        judged(_start),
        (
            "hvd.broadcast_variables(list, root_rank=0).",
            "optimizer.build(model.trainable_variables) makes the optimizer's variables.",
            "model.variables has more than model.trainable_variables: the moving averages.",
        ),
        """
def my_start(hvd, model, optimizer):
    optimizer.build(model.trainable_variables)
    hvd.broadcast_variables(model.variables, root_rank=0)
    hvd.broadcast_variables(optimizer.variables, root_rank=0)
""",
        "Without the optimizer's state, a training that resumes from rank 0's checkpoint has other "
        "momenta on each rank.",
        difficulty=2,
        environment="horovod",
    ),
    "23.passes": Task(
        "A program runs 6 epochs on 4 ranks, and on every rank its dataset has all 60,000 images. "
        "How many times is each image processed?",
        number(24),
        ("Each rank does 6 epochs with all images.",),
        "answer = 4 * 6",
        "Four times the work of one process, in no less time. With shards it would be 6 times.",
        slips={6: "On each rank.", 1.5: "They share nothing.", 4: "In one epoch."},
    ),
    "23.steps": function_task(
        "Write my_steps(images, batch, ranks): how many steps per epoch can every rank do with its "
        "shard? The last batch is dropped if it is not full, and so are images that are left over.",
        [(60_000, 128, 1), (60_000, 128, 2), (60_000, 128, 7), (1000, 10, 3), (31, 8, 4)],
        ("A rank has images // ranks images, at least.", "Count the full batches of these."),
        """
def my_steps(images, batch, ranks):
    return images // ranks // batch
""",
        "All ranks must do the same number of steps: an all-reduce needs all of them.",
        slips=[
            ("images // ranks // batch", "images / ranks / batch", "Count full batches."),
            ("// ranks", "", "A rank has only its share of the images."),
            ("// ranks // batch", "// ranks", "These are its images: count its batches."),
        ],
    ),
    "23.warm_up": function_task(
        "Write my_rate(step, base, ranks, warm_up): the learning rate of a step. It is base at "
        "step 0, grows by the same amount with each step, and is base × ranks from warm_up on.",
        [
            *((0, 0.1, 4, 10), (5, 0.1, 4, 10), (10, 0.1, 4, 10), (99, 0.1, 4, 10)),
            *((3, 0.02, 1, 7), (250, 0.1, 32, 500), (15, 0.1, 4, 10), (501, 0.1, 8, 500)),
        ],
        (
            "The factor grows from 1 to ranks: by ranks - 1 in warm_up steps.",
            "min(1, step / warm_up) is the share of the warm-up that is done.",
        ),
        """
def my_rate(step, base, ranks, warm_up):
    return base * (1 + (ranks - 1) * min(1, step / warm_up))
""",
        "Horovod's callback is one step ahead: its first step has already done 1 / warm_up.",
        slips=[
            ("(1 + (ranks - 1)", "(ranks", "At step 0 it must be base, not 0."),
            ("(ranks - 1)", "ranks", "Its end must be base × ranks."),
            ("min(1, step / warm_up)", "step / warm_up", "From warm_up on it stays."),
        ],
        difficulty=2,
    ),
    "23.checksum": Task(
        "Write my_equal(comm, weights): on every rank True if all ranks hold the same weights, and "
        "False if not. A rank may send at most 1,000 bytes; the weights have 8,000.",
        judged(_checksum, seconds=20),
        (
            "zlib.crc32(weights.tobytes()) is a number below 2**32 that depends on every bit and "
            "on the order. A sum would not notice two values that are exchanged.",
            "All numbers are equal if the largest is the smallest. programs.ring_all_reduce(comm, "
            'array, op="max") leaves the largest on every rank.',
            "The smallest of a is minus the largest of -a: one all-reduce of two numbers will do.",
        ),
        """
import zlib

def my_equal(comm, weights):
    checksum = float(zlib.crc32(weights.tobytes()))
    both = np.array([checksum, -checksum])
    programs.ring_all_reduce(comm, both, op="max")
    return bool(both[0] == -both[1])
""",
        "A few bytes instead of the weights. Python's hash() will not do: in each process it gives "
        "another number for the same bytes.",
        difficulty=2,
    ),
    "23.fusion": function_task(
        "Write my_buffers(tensors, threshold): lists of names, one list for each fused all-reduce. "
        "tensors is a list of (name, dtype, bytes) in the order in which they are ready; the order "
        "stays. A buffer has one dtype and at most threshold bytes; only a tensor that is larger "
        "has a larger buffer, alone.",
        [
            *((MIXED, 100), (MIXED, 0), (MIXED, 10_000)),
            *(([], 100), (MIXED[:2], 80), (MIXED[:2], 79)),
        ],
        (
            "Go through the tensors, and keep the dtype and the bytes of the newest buffer.",
            "A new buffer begins if there is none, if the dtype is another, or if it would be too "
            "large.",
        ),
        """
def my_buffers(tensors, threshold):
    buffers = []
    for name, dtype, size in tensors:
        if not buffers or dtype != last or used + size > threshold:
            buffers.append([])
            last, used = dtype, 0
        buffers[-1].append(name)
        used += size
    return buffers
""",
        "Horovod also looks a little ahead: it may take a later tensor of the same dtype if the "
        "skipped ones are small (FuseResponses in controller.cc).",
        slips=[
            ("dtype != last or ", "", "A buffer has one dtype."),
            ("> threshold", ">= threshold", "A buffer may hold exactly threshold bytes."),
            ("used + size >", "used >", "Add a tensor only if it fits: this is too large."),
        ],
        difficulty=2,
    ),
}
