"""A model trained by a schedule: one layer for each stage, on any communicator of mpi4py's calls.

`one_step` is the program of a rank. It runs in `collectives.run`, in the processes of
`labkit.cluster` and under MPI.
"""

import time
from dataclasses import dataclass
from functools import cache
from types import SimpleNamespace
from typing import Any, TypeAlias

from labkit.arguments import number, whole
from labkit.kinds import LabError
from labkit.pipelines.rows import StagePath
from labkit.pipelines.timeline import Schedule

WIDTH, EXAMPLES = 16, 4  # of a layer, and in a micro-batch
CPU = "CPU:0"
Array: TypeAlias = Any


@dataclass
class Rank:
    """What a rank has counted: micro-batches held at most, pieces of the last step, losses."""

    held: float
    spans: list[tuple[float, float]]
    losses: list[float]


def one_step(
    comm: Any, schedule: Schedule, layers: list[Any], inputs: Array, targets: Array
) -> Rank:
    """Each piece of this rank's row: receive what it needs, compute, send what it makes."""
    step, spans = Step(comm, schedule, layers, inputs, targets), []
    row: list[Any] = [(*piece, 0)[:3] for piece in schedule.rows[comm.Get_rank()]]
    coming = step.receive(*row[0])
    for at, (kind, m, chunk) in enumerate(row):
        taken, requests = coming
        for request in requests:
            request.Wait()
        if at + 1 < len(row):
            coming = step.receive(*row[at + 1])  # it can arrive while this piece is computed
        began = time.monotonic()
        made = step.compute(kind, m, chunk, taken)
        spans.append((began, time.monotonic()))
        step.send(kind, m, chunk, made)
    for send in step.sends:
        send.Wait()
    return Rank(step.held / schedule.parts, spans, [step.loss])


class Step:
    """One step of one rank: what it keeps, and what it has sent.

    Sends are nonblocking: with blocking ones, two neighbours that send at the same time deadlock.
    """

    def __init__(
        self, comm: Any, schedule: Schedule, layers: list[Any], inputs: Array, targets: Array
    ) -> None:
        self.comm, self.schedule, self.layers = comm, schedule, layers
        self.inputs, self.targets = inputs, targets
        self.rank, self.ranks = comm.Get_rank(), comm.Get_size()
        (self.path,) = schedule.paths
        self.stages = {at: stage for stage, at in enumerate(self.path)}
        self.last = len(self.path) - 1
        self.handed: dict[int, Array] = {}  # by tag: from one chunk of this rank to another
        self.kept: dict[tuple[int, int], Any] = {}  # what a micro-batch needs until its B, or W
        self.sends: list[Any] = []
        self.held, self.loss = 0, 0.0

    def receive(self, kind: str, m: int, chunk: int) -> tuple[Array, list[Any]]:
        """Begin to receive the input of an F, or the gradient for a B: wait for the requests."""
        stage, taken = self.stages[self.rank, chunk], self.inputs[m].copy()
        before = stage + {"F": -1, "B": 1, "W": 0}[kind]
        if kind == "W" or not 0 <= before <= self.last or self._owner(before) == self.rank:
            return taken, []
        source, tag = self._owner(before), self._tag(kind, stage, m)
        return taken, [self.comm.Irecv(taken, source=source, tag=tag)]

    def compute(self, kind: str, m: int, chunk: int, taken: Array) -> Array:
        """F, B or W of a micro-batch: the activations, or the gradient, that it makes."""
        stage = self.stages[self.rank, chunk]
        taken = self.handed.pop(self._tag(kind, stage, m), taken)
        layer, made = self.layers[chunk], taken
        if kind == "F":
            made = layer.forward(taken)
            self.kept[m, chunk] = taken, made
            self.held = max(self.held, len(self.kept))
        elif kind == "B":
            x, y = self.kept[m, chunk]
            if stage == self.last:  # the loss: the mean of squares
                error = y - self.targets[m]
                taken = 2 * error / self.targets.size
                self.loss += float((error**2 / self.targets.size).sum())
            made, deltas = layer.backward(y, taken)
            self.kept[m, chunk] = x, deltas
        if kind == "W" or (kind == "B" and not self.schedule.has_weights):
            layer.weight_gradient(*self.kept.pop((m, chunk)))
        return made

    def send(self, kind: str, m: int, chunk: int, made: Array) -> None:
        """Activations go to the next stage, gradients to the one before."""
        after = self.stages[self.rank, chunk] + {"F": 1, "B": -1, "W": 0}[kind]
        if kind == "W" or not 0 <= after <= self.last:
            return
        dest, tag = self._owner(after), self._tag(kind, after, m)
        if dest == self.rank:
            self.handed[tag] = made
        else:
            self.sends.append(self.comm.Isend(made, dest=dest, tag=tag))

    def _owner(self, stage: int) -> int:
        return self.path[stage][0]

    def _tag(self, kind: str, stage: int, m: int) -> int:
        """Of what this piece takes."""
        return 3 * (stage * self.schedule.micro_batches + m) + "FBW".index(kind)


@cache
def pieces() -> tuple[Any, Any, Any]:
    """F, B and W of a dense layer by hand: a GradientTape would compute B and W in one piece.

    `weights` is a Variable. A plain tensor that a tf.function finds in an object is a constant to
    it, and every step would compute with the weights of the first.
    """
    import tensorflow as tf

    def forward(weights: Any, relu: bool, x: Any) -> Any:
        y = x @ weights[:-1] + weights[-1]  # the last row is the bias
        return tf.nn.relu(y) if relu else y

    def backward(weights: Any, relu: bool, y: Any, dy: Any) -> Any:
        deltas = tf.where(y > 0, dy, 0.0) if relu else dy
        return deltas @ tf.transpose(weights[:-1]), deltas

    def weight_gradient(gradient: Any, x: Any, deltas: Any) -> None:
        bias = tf.reduce_sum(deltas, axis=0, keepdims=True)
        gradient.assign_add(tf.concat([tf.transpose(x) @ deltas, bias], axis=0))

    return tf.function(forward), tf.function(backward), tf.function(weight_gradient)


class Layer:
    """A dense layer of one stage, with or without ReLU: numpy arrays in and out.

    It computes on the CPU: a GPU multiplies in TF32, and the rank beside may have none.
    """

    def __init__(self, weights: Array, *, relu: bool) -> None:
        import tensorflow as tf

        with tf.device(CPU):
            self.weights = w = tf.Variable(weights)
            self.gradient = tf.Variable(tf.zeros_like(w))
        forward, backward, weight_gradient = pieces()

        def on_cpu(piece: Any, *arguments: Any) -> Any:
            with tf.device(CPU):
                return piece(*arguments)

        self.forward = lambda x: on_cpu(forward, w, relu, x).numpy()
        self.backward = lambda y, dy: [one.numpy() for one in on_cpu(backward, w, relu, y, dy)]
        self.weight_gradient = lambda x, deltas: on_cpu(weight_gradient, self.gradient, x, deltas)

    def update(self, rate: float) -> None:
        """One step of gradient descent."""
        self.weights.assign_sub(rate * self.gradient)
        self.gradient.assign(0 * self.gradient)


def train(
    comm: Any, buffer: Array, schedule: Schedule, *, steps: int = 20, rate: float = 0.5
) -> Rank:
    """Train the stages of this rank, whose weights are `buffer`, in place."""
    whole("steps", steps, at_least=1)
    number("rate", rate, above=0)
    last = len(_path(schedule)) - 1
    stages = sorted((chunk, stage) for stage, (rank, chunk) in enumerate(schedule.paths[0])
                    if rank == comm.Get_rank())  # fmt: skip
    layers = [Layer(one, relu=k < last) for one, (_, k) in zip(buffer, stages, strict=True)]
    inputs, targets = _data(schedule)
    done = []
    for _ in range(steps):
        done.append(one_step(comm, schedule, layers, inputs, targets))
        for layer in layers:
            layer.update(rate)
    for one, layer in zip(buffer, layers, strict=True):
        one[:] = layer.weights.numpy()
    return Rank(done[-1].held, done[-1].spans, [one.losses[0] for one in done])


def initial_weights(schedule: Schedule) -> list[Array]:
    """For each rank an array of the weights of its layers, the same every time."""
    import numpy as np

    path = _path(schedule)
    made = np.random.default_rng(1).normal(0, 0.35, (len(path), WIDTH + 1, WIDTH))
    first = {at: one.astype("float32") for at, one in zip(path, made, strict=True)}
    return [np.stack([first[rank, chunk] for chunk in range(schedule.chunks)])
            for rank in range(schedule.stages)]  # fmt: skip


def serial_weights(schedule: Schedule, *, steps: int = 20, rate: float = 0.5) -> list[Array]:
    """What one device makes of `initial_weights`: the whole batch at once, and a GradientTape."""
    import tensorflow as tf

    whole("steps", steps, at_least=1)
    number("rate", rate, above=0)
    with tf.device(CPU):
        parts = [[tf.Variable(one) for one in part] for part in initial_weights(schedule)]
        *hidden, last = [parts[rank][chunk] for rank, chunk in _path(schedule)]
        inputs, targets = (one.reshape(-1, WIDTH) for one in _data(schedule))
        for _ in range(steps):
            with tf.GradientTape() as tape:
                x = inputs
                for one in hidden:
                    x = tf.nn.relu(x @ one[:-1] + one[-1])
                loss = tf.reduce_mean((x @ last[:-1] + last[-1] - targets) ** 2)
            weights = [*hidden, last]
            for one, gradient in zip(weights, tape.gradient(loss, weights), strict=True):
                one.assign_sub(rate * gradient)
        return [tf.stack(part).numpy() for part in parts]


def rehearse(
    comm: Any, schedule: Schedule, forward: float = 0.1, backward: float = 0.2,
    examples: int = EXAMPLES,
) -> Rank:  # fmt: skip
    """One step with the messages of training, and a sleep of so many seconds for its computation.

    `examples` in a micro-batch make a message of 64 bytes each. The `spans` of all ranks make a
    `measured_timeline`.
    """
    _path(schedule)
    halves = [backward / 2] * 2 if schedule.has_weights else [backward, 0.0]
    f, b, w = (one / schedule.parts for one in (forward, *halves))
    sleep: Any = time.sleep  # returns None, so that `or` goes on
    layer = SimpleNamespace(
        forward=lambda x: sleep(f) or x,
        backward=lambda y, dy: sleep(b) or (dy, dy),
        weight_gradient=lambda x, deltas: sleep(w),
    )
    inputs, targets = _data(schedule, examples)
    comm.Barrier()
    return one_step(comm, schedule, [layer] * schedule.chunks, inputs, targets)


def _path(schedule: Schedule) -> StagePath:
    """The (rank, chunk) of each stage."""
    if len(schedule.paths) > 1:
        raise LabError("train(...) needs all micro-batches on one path, got several in paths=.")
    return schedule.paths[0]


def _data(schedule: Schedule, examples: int = EXAMPLES) -> tuple[Array, Array]:
    """Inputs and targets, [micro-batch, example, feature], the same on every rank."""
    import numpy as np

    random = np.random.default_rng(0)
    shape = (schedule.micro_batches, examples, WIDTH)
    inputs = random.normal(size=shape).astype("float32")
    return inputs, np.tanh(inputs[..., ::-1]).astype("float32")
