"""The model that judges hand out: it notes which images reach which replica.

Its first layer does that; its weights are always those that the serial program begins with.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import wraps
from typing import Any
from unittest import mock

from labkit.exercises.judges import serial
from labkit.exercises.judges.answers import examined, function, note
from labkit.exercises.judges.serial import BATCH, REPLICAS, STEPS
from labkit.exercises.task import NotJudged, Wrong
from labkit.hardware import replicas
from labkit.hardware.devices import import_tensorflow
from labkit.kinds import LabError, counted

MOST = 4 * BATCH * STEPS  # images that the model gets: more are an endless loop
Seen = Sequence[tuple[int, tuple[int, ...], bool]]  # replica, images, training


ENDLESS = f"The model got {MOST} images, and one pass has {BATCH * STEPS}, so the loop has no end."
# What a student should know beside a sentence with these words.
TENSORFLOW_SAYS = {
    "PerReplica": "A PerReplica holds a value for each replica. Only a function that strategy.run "
    "calls can compute with them, and strategy.reduce makes one value of them.",
    "Mixing different tf.distribute.Strategy": "Something with variables was made outside "
    "strategy.scope(): make the model, the optimizer and metrics, and call compile, inside it.",
    "No gradients provided": "The tape recorded nothing. Call the model inside "
    "`with tf.GradientTape() as tape:`.",
    "outside the replica context": "The step ran once, beside the replicas: the scope is for "
    "making variables. Call the step with strategy.run(step, args=(images, labels)).",
    "make() got": "make_model is a function; make_model() makes the model.",
    "'function' object has no attribute": "make_model is a function; make_model() makes the model.",
    "merge_call": "Keras applies gradients either in a step that strategy.run calls, or outside "
    "both the step and `with strategy.scope():`. Move optimizer.apply out of the scope's block.",
}


def judge(examine: Callable[..., Any]) -> Callable[..., Callable[[Any], Any]]:
    """Makes the judge of a function that trains: examine(answer, told).

    TensorFlow is there before its seconds are counted.
    """

    def make(told: Callable[..., None] = lambda *_, **__: None) -> Callable[[Any], Any]:
        timed = function(lambda answer: examine(answer, told), seconds=30.0)

        @wraps(timed)
        def judged(answer: Any) -> Any:
            if there := getattr(answer, "_beside", None):  # `labkit grade` has it elsewhere
                return there(examined, *judged.watched)  # type: ignore[attr-defined]
            import_tensorflow()
            return timed(answer)

        judged.__dict__.update(vars(make), watched=(examine.__module__, examine.__name__))
        return judged

    return make


class Models:
    """Makes the model, always with the same weights, and follows the images that it is given."""

    def __init__(self, strategy: Any) -> None:
        self.strategy = strategy
        self._in_scope: list[bool] = []
        self.models: list[Any] = []
        self.optimizers: list[Any] = []
        self.seen: list[tuple[int, tuple[int, ...], bool]] = []
        self.taken = 0  # images
        self.held = self.most_held = 0  # forward passes in training without their backward pass

    def make(self) -> Any:
        """What a student calls."""
        tf = import_tensorflow()
        self._in_scope.append(tf.distribute.get_strategy() is self.strategy)
        self.models.append(make_layers(watch_layer(self._note), watch_gradient(self._released)))
        return self.models[-1]

    @contextmanager
    def following(self) -> Iterator[None]:
        """Note optimizers that are applied."""
        import keras

        apply = keras.optimizers.Optimizer.apply

        def noting(optimizer: Any, *arguments: Any, **keywords: Any) -> Any:
            if not any(optimizer is one for one in self.optimizers):
                self.optimizers.append(optimizer)
            return apply(optimizer, *arguments, **keywords)

        no_graph = import_tensorflow().autograph.experimental.do_not_convert
        with mock.patch.object(keras.optimizers.Optimizer, "apply", no_graph(noting)):
            yield

    def check_scope(self) -> None:
        """Every model and every optimizer must have been made inside the scope."""
        if not all(self._in_scope):
            raise Wrong(
                "make_model() was called outside strategy.scope(), so its variables lie on one "
                "device, and the replicas have no copies. Write `with strategy.scope():` around it."
            )
        if self.strategy is import_tensorflow().distribute.get_strategy():
            return  # on one device there is no scope
        in_scope = self.strategy.extended.variable_created_in_scope
        if not all(in_scope(optimizer.iterations.value) for optimizer in self.optimizers):
            raise Wrong(
                "The optimizer was made outside strategy.scope(). Its variables, such as the step "
                "counter, have no copies on the replicas. Make it (or call model.compile) inside "
                "`with strategy.scope():`."
            )

    def _note(self, images: Any, training: bool) -> Any:
        tf = import_tensorflow()
        context = tf.distribute.get_replica_context()
        replica = -1 if context is None else context.replica_id_in_sync_group
        with tf.device("/cpu:0"):
            seen = [replica, images[:, 0, 0], bool(training)]
            return tf.py_function(self._noted, seen, tf.int32)

    def _noted(self, replica: Any, numbers: Any, training: Any) -> Any:
        import numpy as np

        if self.taken >= MOST:
            raise RuntimeError(ENDLESS)
        numbers = np.rint(numbers.numpy() * BATCH * STEPS).astype(int)
        self.seen.append((int(replica), tuple(numbers.tolist()), bool(training)))
        self.taken += len(numbers)
        self.held += bool(training)
        self.most_held = max(self.most_held, self.held)
        return np.int32(0)

    def _released(self) -> Any:
        self.held -= 1
        return 0


def make_layers(first: Any = None, hidden: Any = None) -> Any:
    """The network of the serial program, with a layer before it and one in its middle."""
    import keras

    constant = keras.initializers.Constant
    kernel, bias, last_kernel, last_bias = serial.first_weights()
    return keras.Sequential([
        keras.Input(serial.SIZE), *filter(None, [first]), keras.layers.Flatten(),
        keras.layers.Dense(len(bias), "relu", kernel_initializer=constant(kernel)),
        *filter(None, [hidden]),
        keras.layers.Dense(len(last_bias), kernel_initializer=constant(last_kernel)),
    ])  # fmt: skip


def watch_layer(act: Callable[..., Any]) -> Any:
    """A layer that changes nothing, and runs act(images, training) each time it is called."""
    tf = import_tensorflow()

    def call(images: Any, training: bool) -> Any:
        if (done := act(images, training)) is None:  # an operation that has run already
            return images
        with tf.control_dependencies([done]):
            return tf.identity(images)

    return _layer("Watch", call)


def watch_gradient(act: Callable[[], Any]) -> Any:
    """A layer that changes nothing, and runs act() each time a gradient has passed it."""
    tf = import_tensorflow()

    def backward(gradient: Any) -> Any:
        with tf.control_dependencies([tf.py_function(act, [], tf.int32)]):
            return tf.identity(gradient)

    identity = tf.custom_gradient(lambda values: (tf.identity(values), backward))
    return _layer("WatchGradient", lambda values, training: identity(values))


def _layer(name: str, function: Callable[..., Any]) -> Any:
    """A layer that calls function(values, training); a saved model finds it by its name."""
    import keras

    @keras.saving.register_keras_serializable("labkit", name)
    class Watch(keras.layers.Layer):  # type: ignore[misc]
        def __init__(self, **settings: Any) -> None:
            super().__init__(**settings)
            self.supports_jit = False

        def call(self, values: Any, training: bool = False) -> Any:
            return values if isinstance(values, keras.KerasTensor) else function(values, training)

    return Watch()


def make_dataset() -> Any:
    """The images and labels of the serial program, as single examples.

    Not tuned: TensorFlow 2.21 may wait for up to a minute when it deletes an iterator whose tuning
    thread sleeps, and Python may do that at any time later.
    """
    tf = import_tensorflow()
    options = tf.data.Options()
    options.autotune.enabled = False
    return tf.data.Dataset.from_tensor_slices(serial.make_data()).with_options(options)


def on_one_device() -> Models:
    """Models for a program without a strategy."""
    with suppress(LabError):  # split the devices before TensorFlow runs: other tasks need them
        replicas(REPLICAS)
    return Models(import_tensorflow().distribute.get_strategy())


def on_replicas() -> Models:
    """Models for a program under a strategy."""
    try:
        return Models(replicas(REPLICAS).strategy())
    except LabError:
        text = (
            f"It needs {REPLICAS} replicas, and TensorFlow, which runs already, cannot be split. "
        )
        text += f"Choose Kernel → Restart, and call labkit.replicas({REPLICAS}) before anything "
        raise NotJudged(f"{text}else uses TensorFlow.") from None


@contextmanager
def exact(made: Models) -> Iterator[None]:
    """A GPU rounds as float32 does; a model outside the scope is named before what it led to."""
    tf32 = import_tensorflow().config.experimental
    before = tf32.tensor_float_32_execution_enabled()
    tf32.enable_tensor_float_32_execution(False)
    quiet = mock.patch.object(import_tensorflow().get_logger(), "disabled", True)
    try:
        with made.following(), quiet:  # it would say that my_train is traced in each check
            yield
    except Wrong as fault:
        made.check_scope()  # TensorFlow's own sentence on this says little
        if made.taken >= MOST:
            raise Wrong(ENDLESS) from None
        for words, says in TENSORFLOW_SAYS.items():
            if words in str(fault):
                raise Wrong(f"{says} {fault}") from None
        raise
    finally:
        tf32.enable_tensor_float_32_execution(before)
    made.check_scope()


def returned(
    result: Any, models: list[Any], second: str = "the list of the loss of each step"
) -> tuple[Any, Any]:
    """The model, and what belongs to it."""
    if not models:
        raise Wrong("It never called make_model(). Call it inside `with strategy.scope():`.")
    if not isinstance(result, (tuple, list)) or len(result) != 2:
        raise Wrong(f"Return two things: the model, and {second}.")
    return model_of(result[0], models), result[1]


def model_of(result: Any, models: list[Any]) -> Any:
    """The result, which must be one of these models, or one that was saved and loaded again."""
    watched = any(type(layer).__name__ == "Watch" for layer in getattr(result, "layers", ()))
    if not (watched or any(result is one for one in models)):
        raise Wrong("Return the model that make_model() made.")
    note(result)
    return result


def weight_copies(strategy: Any, model: Any) -> list[list[Any]]:
    """Returns for each variable the copies of all replicas."""
    return [
        [copy.numpy() for copy in strategy.experimental_local_results(variable.value)]
        for variable in model.trainable_variables
    ]


def check_images(seen: Seen, size: int = BATCH * STEPS, batch: int = BATCH) -> list[dict[int, Any]]:
    """Every image once, in the order of the dataset, a global batch a step; the shares by step."""
    count = -(-size // batch)
    if not seen:
        raise Wrong("The model never saw an image.")
    trained = [(replica, images) for replica, images, training in seen if training]
    if not trained:
        raise Wrong("Call the model with training=True, or else Dropout and its like do nothing.")
    rows: dict[int, list[tuple[int, ...]]] = {}
    for replica, images in sorted(trained, key=lambda one: one[0]):
        rows.setdefault(replica, []).append(images)
    if len(rows) < REPLICAS:
        raise Wrong(
            "One replica alone did all the work. Run the step on all of them: "
            "strategy.run(step, args=(images, labels))."
        )
    steps = max(map(len, rows.values()))
    shares = [{r: row[s] for r, row in rows.items() if s < len(row)} for s in range(steps)]
    first = shares[0]
    if len(set(first.values())) == 1:
        raise Wrong(
            f"Both replicas got the same {len(first[0])} images. Distribute the dataset: "
            "strategy.experimental_distribute_dataset(dataset.batch(global_batch))."
        )
    taken = sum(map(len, first.values()))
    if taken != batch:
        less = "A local batch stands where the global one belongs. " if taken < batch else ""
        raise Wrong(
            f"The replicas together took {taken} images in the first step, and the global batch is "
            f"{batch}. {less}experimental_distribute_dataset expects batches of global_batch and "
            "divides them; distribute_datasets_from_function expects those of one replica."
        )
    for number, share in enumerate(shares[:count]):
        found = sorted(image for images in share.values() for image in images)
        expected = list(range(number * batch, min((number + 1) * batch, size)))
        if found != expected:
            some = f"{', '.join(map(str, found[:3]))}, …, {found[-1]}"
            raise Wrong(
                f"Step {number + 1} used the images {some}, and the serial program uses "
                f"{expected[0]} to {expected[-1]}. Use each image once, in the order of the "
                "dataset. Do not shuffle or skip."
            )
    if steps != count:
        smaller = f" Here the last batch has {size % batch} images." if size % batch else ""
        raise Wrong(
            f"It took {counted(steps, 'step')}; one pass over the dataset has {count}.{smaller}"
        )
    return shares
