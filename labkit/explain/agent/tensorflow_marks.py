"""Marks in TensorFlow and Keras, and what can be changed in their programs while they run."""

from __future__ import annotations

import functools
import sys
import threading
from typing import Any

from labkit_agent import marks
from labkit_agent.marks import ALWAYS, ASKED, VALUES, WATCH, InPart, essential, line, me, note, wrap

inside: list[Any] = []  # the outermost tf.function that runs now
learning: set[int] = set()  # functions in whose trace a gradient was taken


def tensorflow(tf: Any) -> None:
    _functions(tf)
    _gradients(tf)
    _input(tf)
    _settings(tf)
    from tensorflow.python.framework import ops

    for owner, name in (
        (tf.train.Checkpoint, "save"), (tf.train.Checkpoint, "write"),
        (tf.train.CheckpointManager, "save"), (tf.saved_model, "save"),
    ):  # fmt: skip
        wrap(owner, name, "save", marks.nothing)
    for name in ("scalar", "histogram", "image", "text", "flush"):
        wrap(tf.summary, name, "log", marks.nothing, users_own=True)
    for name in ("numpy", "__float__", "__int__", "__bool__"):
        wrap(ops._EagerTensorBase, name, "sync")


# ---- steps ---------------------------------------------------------------------------------------


def _functions(tf: Any) -> None:
    from tensorflow.python.eager.polymorphic_function import polymorphic_function as functions
    from tensorflow.python.eager.polymorphic_function import tracing_compilation as tracing

    owner = functions.Function
    real_init, real_call = owner.__init__, owner.__call__
    by_code: dict[Any, Any] = {}

    def init(self: Any, python_function: Any, *args: Any, **options: Any) -> None:
        if "retrace" in ALWAYS:
            options["reduce_retracing"] = True
        real_init(self, python_function, *args, **options)

    def call(self: Any, *args: Any, **options: Any) -> Any:
        if threading.get_ident() != me.main or inside:
            return real_call(self, *args, **options)
        if "retrace" in ALWAYS:  # one function for a source that makes one again and again
            code = getattr(self.python_function, "__code__", None)
            cells = getattr(self.python_function, "__closure__", None) or ()
            key = (code, tuple(id(c.cell_contents) for c in cells)) if code else id(self)
            self = by_code.setdefault(key, self)
            args = tuple(tf.constant(a) if type(a) in (int, float) else a for a in args)
        if id(self) in learning or not me.marks:
            essential()
        inside.append(self)
        try:
            with InPart("graph" if id(self) in learning or not me.marks else "eval"):
                return real_call(self, *args, **options)
        finally:
            inside.pop()
            if id(self) in learning:
                essential()
                marks.step("tf")

    owner.__init__, owner.__call__ = init, call
    real_create = tracing._create_concrete_function

    def create(*args: Any, **options: Any) -> Any:
        if WATCH and inside:
            code = getattr(inside[0].python_function, "__code__", None)
            if code is not None and marks.of_user(code.co_filename):
                me.sites["trace"] = f"{code.co_filename}:{code.co_firstlineno}"
            if me.marks:
                me.count["traces in training"] += 1
        with InPart("trace"):
            return real_create(*args, **options)

    tracing._create_concrete_function = create


def _gradients(tf: Any) -> None:
    from tensorflow.python.eager import backprop

    real = backprop.GradientTape.gradient
    first: list[Any] = []

    def gradient(self: Any, target: Any, *args: Any, **options: Any) -> Any:
        with InPart("backward"):
            out = real(self, target, *args, **options)
        if inside:
            learning.add(id(inside[0]))
            if WATCH and "loss" not in me.notes and tf.distribute.has_strategy():
                me.notes["loss"] = _scale_of(tf, target)
                me.sites.setdefault("loss", line())
        elif tf.executing_eagerly():
            essential()
            me.sites.setdefault("eager", line())
            me.notes.setdefault("eager function", _holder(sys._getframe(1)))
            frame = sys._getframe(1)
            where = (frame.f_code, frame.f_lasti)
            first.append(where)
            if where == first[0]:  # a step that takes two gradients is one step
                marks.step("tape")
            del first[1:]
        return out

    backprop.GradientTape.gradient = gradient


def _holder(frame: Any) -> str:
    """The user's function that takes the gradient: file:line:name."""
    found = marks.users(frame)
    code = found.f_code if found is not None else None
    name = getattr(code, "co_qualname", None) or (code.co_name if code else "")
    return f"{code.co_filename}:{code.co_firstlineno}:{name}" if code else ""


def _scale_of(tf: Any, loss: Any) -> dict[str, Any]:
    """Whether a replica's loss is the mean of its own examples, and of how many replicas."""
    count = tf.distribute.get_strategy().num_replicas_in_sync
    op = getattr(loss, "op", None)
    for _ in range(4):
        if op is None or op.type not in ("Identity", "Cast", "AddV2"):
            break
        op = op.inputs[0].op
    kind = op.type if op is not None else ""
    mean = kind == "Mean"
    if op is not None and kind in (
        "DivNoNan",
        "RealDiv",
    ):  # Keras' losses divide the sum by the replica's examples
        below = [one.op.type for one in op.inputs]
        mean = "Cast" in below or "Size" in below
    return {"mean": mean, "of": kind, "replicas": count, "global": not tf.executing_eagerly()}


# ---- input ---------------------------------------------------------------------------------------


def prepared(tf: Any, dataset: Any, steps: int | None = None) -> Any:
    """The dataset as it is asked for: the same batches again, or read in parallel."""
    if "input" in ALWAYS:
        count = steps or int(dataset.cardinality())
        dataset = dataset.take(4).cache().repeat()
        count = count if count > 0 else VALUES.get("epoch") or -1
        dataset = dataset.take(count) if count > 0 else dataset
    if "parallel" in ALWAYS:
        dataset = dataset.prefetch(tf.data.AUTOTUNE)
    return dataset


def _input(tf: Any) -> None:
    from tensorflow.python.data.ops import dataset_ops, iterator_ops

    dataset = dataset_ops.DatasetV2
    real_iter, real_map, real_batch = dataset.__iter__, dataset.map, dataset.batch

    def iterate(self: Any) -> Any:
        caller = sys._getframe(1).f_code.co_filename
        if not tf.executing_eagerly() or inside or me.evaluating or not marks.of_user(caller):
            return real_iter(self)
        me.epochs.append(len(me.marks.get(me.leading, ())))
        return real_iter(prepared(tf, self))

    def map(
        self: Any, function: Any, num_parallel_calls: Any = None, *args: Any, **options: Any
    ) -> Any:
        if num_parallel_calls is None and marks.of_user(sys._getframe(1).f_code.co_filename):
            note("serial map", True)
            if "parallel" in ALWAYS:
                num_parallel_calls = tf.data.AUTOTUNE
        return real_map(self, function, num_parallel_calls, *args, **options)

    def batch(self: Any, batch_size: Any, *args: Any, **options: Any) -> Any:
        if isinstance(batch_size, int) and marks.of_user(sys._getframe(1).f_code.co_filename):
            me.notes.setdefault("batch", batch_size)
            me.sites.setdefault("batch", line())
            batch_size *= VALUES["batch"] if "batch" in ALWAYS else 1
        return real_batch(self, batch_size, *args, **options)

    dataset.__iter__, dataset.map, dataset.batch = iterate, map, batch
    real_next = iterator_ops.OwnedIterator.__next__
    kept: list[Any] = []

    def fetch(self: Any) -> Any:
        if not me.evaluating and "input" in me.off and "input" not in ALWAYS and len(kept) >= 4:
            kept.append(kept.pop(0))
            return kept[0]
        essential()
        with InPart("eval" if me.evaluating else "input"):
            found = real_next(self)
        if "input" in ASKED and len(kept) < 4:
            kept.append(found)
        if WATCH and len(me.shapes) < 400:
            me.shapes.append(list(getattr(tf.nest.flatten(found)[0], "shape", None) or []))
        return found

    iterator_ops.OwnedIterator.__next__ = fetch
    for name in ("py_function", "numpy_function"):

        def called(
            *args: Any, original: Any = getattr(tf, name), key: str = name, **options: Any
        ) -> Any:
            note(key, True)
            return original(*args, **options)

        setattr(tf, name, called)
    real_generator = dataset.from_generator

    def generator(*args: Any, **options: Any) -> Any:
        note("from_generator", True)
        return real_generator(*args, **options)

    dataset.from_generator = staticmethod(generator)


# ---- settings ------------------------------------------------------------------------------------


def _settings(tf: Any) -> None:
    for name in ("set_intra_op_parallelism_threads", "set_inter_op_parallelism_threads"):

        def limit(
            count: int, original: Any = getattr(tf.config.threading, name), key: str = name
        ) -> None:
            note(key[4:9] + " threads", count)
            if "threads" not in ALWAYS:
                original(count)

        setattr(tf.config.threading, name, limit)
    real = tf.config.run_functions_eagerly

    def eagerly(flag: bool) -> None:
        note("run eagerly", bool(flag))
        real(flag and "eager" not in ALWAYS)

    tf.config.run_functions_eagerly = eagerly


def compiled(name: str) -> Any:
    """A function of the user's, compiled while `eager` is left out; a decorator in its copy."""

    def decorate(function: Any) -> Any:
        import tensorflow as tf

        graph = tf.function(function, reduce_retracing=True)

        @functools.wraps(function)
        def either(*args: Any, **options: Any) -> Any:
            if name not in me.off:
                return function(*args, **options)
            out = graph(*args, **options)
            marks.step("tape")  # the gradient is taken inside, where no step is counted
            return out

        return either

    return decorate


# ---- Keras ---------------------------------------------------------------------------------------


def keras(keras: Any) -> None:
    if keras.config.backend() != "tensorflow":
        return
    import tensorflow as tf
    from keras.src.backend.tensorflow import trainer
    from keras.src.callbacks import callback_list
    from keras.src.optimizers import base_optimizer

    _apply(tf, base_optimizer.BaseOptimizer)
    _fit(tf, trainer)
    _callbacks(callback_list.CallbackList)
    for name in ("save", "save_weights", "export"):
        wrap(keras.Model, name, "save", marks.nothing)
    real_floatx = keras.config.set_floatx

    def set_floatx(value: str) -> None:
        note("float64", value == "float64")
        real_floatx("float32" if "float32" in ALWAYS and value == "float64" else value)

    keras.config.set_floatx = set_floatx
    backend = getattr(tf.keras, "backend", None)
    if backend is not None and hasattr(backend, "set_floatx"):
        backend.set_floatx = set_floatx
    real_layer = keras.layers.Layer.__call__
    from tensorflow.python.eager import record

    def layer(self: Any, *args: Any, **options: Any) -> Any:
        if not inside and record.could_possibly_record():
            essential()
        return real_layer(self, *args, **options)

    keras.layers.Layer.__call__ = layer


def _apply(tf: Any, owner: Any) -> None:
    real = owner.apply

    def apply(self: Any, *args: Any, **options: Any) -> Any:
        if inside:
            learning.add(id(inside[0]))
            return real(self, *args, **options)
        essential()
        me.evaluating = False
        with InPart("optimizer"):
            out = real(self, *args, **options)
        if tf.executing_eagerly() and not me.marks.get("tape"):
            marks.step("apply")
        return out

    owner.apply = apply


def _fit(tf: Any, trainer: Any) -> None:
    epochs, owner = trainer.TFEpochIterator, trainer.TensorFlowTrainer
    real_init, real_get = epochs.__init__, epochs._get_iterator

    def init(self: Any, *args: Any, **options: Any) -> None:
        real_init(self, *args, **options)
        if not me.evaluating and isinstance(self._distributed_dataset, tf.data.Dataset):
            steps = self.steps_per_epoch or self.data_adapter.num_batches
            self._distributed_dataset = prepared(tf, self._distributed_dataset, steps)

    def get(self: Any) -> Any:
        if not me.evaluating:
            me.epochs.append(len(me.marks.get(me.leading, ())))
        return real_get(self)

    epochs.__init__, epochs._get_iterator = init, get
    answers: dict[str, Any] = {}
    for name in ("evaluate", "predict"):

        def judged(
            self: Any,
            *args: Any,
            original: Any = getattr(owner, name),
            key: str = name,
            **options: Any,
        ) -> Any:
            if "eval" in me.off and key in answers:
                return answers[key]
            me.sites.setdefault("eval", line())
            before, me.evaluating = me.evaluating, True
            try:
                with InPart("eval"):
                    answers[key] = original(self, *args, **options)
            finally:
                me.evaluating = before
            return answers[key]

        setattr(owner, name, functools.wraps(getattr(owner, name))(judged))
    real_fit, real_compile = owner.fit, owner.compile

    @functools.wraps(real_fit)
    def fit(self: Any, *args: Any, **options: Any) -> Any:
        essential(times=10**9)
        source = args[0] if args else options.get("x")
        arrays = hasattr(source, "shape") or isinstance(source, (list, dict))
        note("fit", "arrays" if arrays else type(source).__name__)
        batch = args[2] if len(args) > 2 else options.get("batch_size")
        if arrays:
            me.notes.setdefault("batch", batch or 32)
            me.sites.setdefault("batch", line())
            if "batch" in ALWAYS:
                size = (batch or 32) * VALUES["batch"]
                args = (*args[:2], size, *args[3:]) if len(args) > 2 else args
                options |= {} if len(args) > 2 else {"batch_size": size}
        return real_fit(self, *args, **options)

    @functools.wraps(real_compile)
    def compile(self: Any, *args: Any, **options: Any) -> Any:
        if options.get("run_eagerly"):
            note("run eagerly", True)
            options["run_eagerly"] = "eager" not in ALWAYS
        return real_compile(self, *args, **options)

    owner.fit, owner.compile = fit, compile


def _callbacks(owner: Any) -> None:
    """Each callback is a part of its own, which can be left out."""
    real = owner.__init__

    def init(self: Any, *args: Any, **options: Any) -> None:
        real(self, *args, **options)
        for one in self.callbacks:
            name = type(one).__name__
            if name in ("History", "EarlyStopping", "LearningRateScheduler", "ReduceLROnPlateau"):
                continue
            me.notes.setdefault("callbacks", []).append(name)
            for method in ("on_train_batch_begin", "on_train_batch_end", "on_epoch_end"):
                wrap(one, method, f"callback {name}", marks.nothing)

    owner.__init__ = init
