"""Marks in TensorFlow and Keras, and what can be changed in their programs while they run."""

from __future__ import annotations

import functools
import sys
import threading
from collections import Counter
from typing import Any

from labkit_agent import arithmetic, marks
from labkit_agent.marks import ALWAYS, ASKED, VALUES, WATCH, InPart, essential, line, me, note, wrap

inside: list[Any] = []  # the outermost tf.function that runs now


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


def learns(function: Any) -> bool:
    """Was a gradient taken, or an optimizer applied, in its trace?"""
    return hasattr(function, "_labkit_learns")


def _step(kind: str) -> None:
    """A step has ended: what it was fed with is training data."""
    _fed()
    marks.step(kind)


leading: list[Any] = [None, 0, 0]  # the code of steps, an instruction in it, and others since


def _leads(code: Any, at: int = 0) -> bool:
    """Does this gradient end a step? Where two are taken in turns, as in a GAN, the first does."""
    if leading[0] is None or leading[2] > 20:
        leading[:] = code, at, 0
    same = leading[0] is code and at in (0, leading[1])
    leading[2] = 0 if same else leading[2] + 1
    return same


def replica(tf: Any) -> int:
    """Outside of a trace: which replica this thread computes."""
    context = tf.distribute.get_replica_context()
    found = context.replica_id_in_sync_group if context is not None else 0
    return found if isinstance(found, int) else int(tf.get_static_value(found) or 0)


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
            self = by_code.setdefault(_made_of(self.python_function), self)
            args = _tensors(tf, args)
        if learns(self) or not me.marks:
            essential()
        inside.append(self)
        try:
            with InPart("graph" if learns(self) or not me.marks else "eval"):
                out = real_call(self, *args, **options)
        finally:
            inside.pop()
        if learns(self):  # and its data has not ended
            essential()
            if marks.CONFIG.get("count"):
                arithmetic.count_graph(tf, self, args, options)
            if _leads(getattr(self.python_function, "__code__", None)):
                _step("tape" if {"eager", "compile"} & ASKED else "tf")
        return out

    owner.__init__, owner.__call__ = init, call
    real_create = tracing._create_concrete_function
    traced: Counter[Any] = Counter()  # after the first step, by what is traced

    def create(*args: Any, **options: Any) -> Any:
        if WATCH and inside:
            code = getattr(inside[0].python_function, "__code__", None)
            traced[code] += bool(me.marks)
            if traced[code] > me.count["traces of one"]:
                me.count["traces of one"] = traced[code]
                if code is not None and marks.of_user(code.co_filename):
                    me.sites["trace"] = f"{code.co_filename}:{code.co_firstlineno}"
        with InPart("trace"):
            return real_create(*args, **options)

    tracing._create_concrete_function = create


def _gradients(tf: Any) -> None:
    from tensorflow.python.eager import backprop

    real = backprop.GradientTape.gradient

    @functools.wraps(real)
    def gradient(self: Any, target: Any, *args: Any, **options: Any) -> Any:
        with InPart("backward"):
            out = real(self, target, *args, **options)
        replicas = tf.distribute.get_strategy().num_replicas_in_sync
        if replicas > 1:
            me.notes["replicas"] = replicas
        if inside:
            inside[0]._labkit_learns = True
            if WATCH and replicas > 1 and _mean_of_own(tf, target):
                own_means[:] = [target, *tf.nest.flatten(out)]
        elif tf.executing_eagerly() and not replica(tf):
            essential()
            frame = marks.users(sys._getframe(1)) or sys._getframe(1)
            code, at = frame.f_code, f"{frame.f_code.co_filename}:{frame.f_lineno}"
            if WATCH and at not in me.notes.setdefault("eager", []):
                me.sites.setdefault("eager", at)
                me.notes["eager"].append(at)
            if _leads(code, frame.f_lasti):
                _step("tape")
        return out

    backprop.GradientTape.gradient = gradient
    real_run = tf.distribute.Strategy.run

    @functools.wraps(real_run)
    def run(self: Any, *args: Any, **options: Any) -> Any:
        before = len(me.marks.get(me.leading, ()))
        with marks.Unseen():
            out = real_run(self, *args, **options)
        if len(me.marks.get(me.leading, ())) > before:  # by a thread of a replica
            essential()
        return out

    tf.distribute.Strategy.run = run


own_means: list[Any] = []  # a loss that is the mean of a replica's examples, and its gradients


def _mean_of_own(tf: Any, loss: Any) -> bool:
    """Is this the mean of one replica's examples, not divided by the number of replicas?"""
    op, factor = getattr(loss, "op", None), 1.0
    while op is not None:
        known = [tf.get_static_value(one) for one in op.inputs]
        if op.type in ("Identity", "Cast", "Squeeze", "Reshape", "AddV2"):
            op = op.inputs[0].op
        elif op.type == "Mul" and any(one is not None for one in known):
            at = 0 if known[0] is not None else 1
            factor, op = factor * float(known[at]), op.inputs[1 - at].op
        elif op.type in ("RealDiv", "DivNoNan") and known[1] is not None:
            factor, op = factor / float(known[1]), op.inputs[0].op
        elif op.type in ("RealDiv", "DivNoNan"):  # by the number of examples, counted here
            below = _below(op.inputs[1].op, 6)
            return abs(factor - 1) < 1e-6 and bool(below & {"Shape", "Size"}) and "Mul" not in below
        elif op.type == "Sum":
            return abs(factor * (op.inputs[0].shape.num_elements() or 0) - 1) < 1e-6
        else:
            return op.type == "Mean" and abs(factor - 1) < 1e-6
    return False


def _below(op: Any, depth: int) -> set[str]:
    more = (_below(one.op, depth - 1) for one in op.inputs) if depth else ()
    return {op.type}.union(*more)


def made(tensor: Any) -> str:
    """The user's line that made this tensor of a graph, also within converted functions."""
    stack = getattr(getattr(tensor, "op", None), "traceback", None) or ()
    users = (one for one in reversed(stack) if marks.of_user(one.filename))
    return next((f"{one.filename}:{one.lineno}" for one in users), "")


# ---- input ---------------------------------------------------------------------------------------

training: set[Any] = set()  # places in the user's code that fetch one batch for each step
made_for_training: set[Any] = set()  # places that make the iterators of these
fetched: dict[Any, list[Any]] = {}  # since the last step: how often, a new iterator?, the lines
IN_TURNS = "input" in ASKED - ALWAYS
executions = [1]  # steps of Keras in one call of its function


def _fed() -> None:
    """A step has ended: what was fetched once for it is training data, the rest is not."""
    for place, (times, begins, lines) in fetched.items():
        if times == 1:
            training.add(place)
            me.essential.update(lines)
            if begins:
                me.epochs.append(len(me.marks.get(me.leading, ())))
    fetched.clear()


def free(dataset: Any) -> Any:
    """The first batches again and again: handed over as before, but not read.

    In turns, whole epochs are: a pipeline in the middle of one would go on filling its buffers.
    """
    if not hasattr(dataset, "_labkit_free"):
        dataset._labkit_free = dataset.take(4).cache().repeat()
    return dataset._labkit_free


def free_epoch(dataset: Any) -> Any:
    return free(dataset).take(VALUES["epoch"] * executions[0])


def prepared(tf: Any, dataset: Any) -> Any:
    """The dataset as it is asked for: the same batches again, or read in parallel."""
    if "input" in me.off:
        count = int(dataset.cardinality())
        dataset = free(dataset)
        if count == tf.data.UNKNOWN_CARDINALITY:
            count = VALUES.get("epoch", 0) * executions[0]
        dataset = dataset.take(count) if count > 0 else dataset
    if "parallel" in ALWAYS:
        dataset = dataset.prefetch(tf.data.AUTOTUNE)
    return dataset


def _read_alone(dataset: Any) -> None:
    """Seconds of a batch where nothing else is done, with those until the first."""
    begin, count = marks.now(), 0
    for _ in dataset:
        count += 1
        if count >= 500 or marks.now() - begin > 3:
            break
    me.notes["read"] = (marks.now() - begin) / max(1, count)


def _place() -> Any:
    frame = marks.users(sys._getframe(2))
    return (frame.f_code, frame.f_lineno) if frame is not None else None


def _in_loop(frame: Any) -> bool:
    """Does a program iterate here, rather than a framework?"""
    while "/tensorflow/python/data/" in frame.f_code.co_filename:
        frame = frame.f_back
    return not any(one in frame.f_code.co_filename for one in ("/tensorflow/", "/keras/"))


def _input(tf: Any) -> None:
    from tensorflow.python.data.ops import dataset_ops, iterator_ops
    from tensorflow.python.distribute import input_lib

    dataset = dataset_ops.DatasetV2
    real_iter, real_map, real_batch = dataset.__iter__, dataset.map, dataset.batch

    @functools.wraps(real_iter)
    def iterate(self: Any) -> Any:
        if not tf.executing_eagerly() or inside or not _in_loop(sys._getframe(1)):
            return real_iter(self)
        place = _place()
        mine = place in made_for_training or "input" not in me.off - ALWAYS
        found = real_iter(prepared(tf, self) if mine else self)
        found._labkit_made = place
        return found

    dataset.__iter__ = iterate
    distributed = input_lib.DistributedDataset
    real_parts = distributed.__iter__

    @functools.wraps(real_parts)
    def parts(self: Any) -> Any:
        place = _place()
        turn = "input" in me.off - ALWAYS and place in made_for_training
        found = real_parts(getattr(self, "_labkit_parts", self) if turn else self)
        found._labkit_made = place
        return found

    distributed.__iter__ = parts
    real_distribute = tf.distribute.Strategy.experimental_distribute_dataset

    @functools.wraps(real_distribute)
    def distribute(self: Any, data: Any, *args: Any, **options: Any) -> Any:
        if me.evaluating:
            return real_distribute(self, data, *args, **options)
        found = real_distribute(self, prepared(tf, data), *args, **options)
        if IN_TURNS and found is not data:
            found._labkit_parts = real_distribute(self, free_epoch(data), *args, **options)
        return found

    tf.distribute.Strategy.experimental_distribute_dataset = distribute

    @functools.wraps(real_map)
    def map(
        self: Any, function: Any, num_parallel_calls: Any = None, *args: Any, **options: Any
    ) -> Any:
        if num_parallel_calls is None and marks.of_user(sys._getframe(1).f_code.co_filename):
            note("serial map", True)
            if "parallel" in ALWAYS:
                num_parallel_calls = tf.data.AUTOTUNE
        with marks.Unseen():
            return real_map(self, function, num_parallel_calls, *args, **options)

    @functools.wraps(real_batch)
    def batch(self: Any, batch_size: Any, *args: Any, **options: Any) -> Any:
        if isinstance(batch_size, int) and marks.of_user(sys._getframe(1).f_code.co_filename):
            me.notes.setdefault("batch", batch_size)
            me.sites.setdefault("batch", line())
            batch_size *= VALUES["batch"] if "batch" in ALWAYS else 1
        return real_batch(self, batch_size, *args, **options)

    dataset.map, dataset.batch = map, batch
    _fetching(iterator_ops.OwnedIterator)
    _fetching(input_lib.DistributedIteratorBase)
    for name in ("py_function", "numpy_function"):

        def called(
            *args: Any, original: Any = getattr(tf, name), key: str = name, **options: Any
        ) -> Any:
            out = original(*args, **options)
            me.notes[key] = True
            me.sites.setdefault(key, made(tf.nest.flatten(out)[0]) or line())
            return out

        setattr(tf, name, called)
    real_generator = dataset.from_generator

    def generator(*args: Any, **options: Any) -> Any:  # also by Keras, for objects of the user's
        note("from_generator", True)
        return real_generator(*args, **options)

    dataset.from_generator = staticmethod(generator)


def _fetching(owner: Any) -> None:
    """Time `owner.__next__` as input; while that is left out, take what is free."""
    real_next = owner.__next__

    def fetch(self: Any) -> Any:
        frame = marks.users(sys._getframe(1))
        place = (frame.f_code, frame.f_lasti) if frame is not None else None
        mine = place in training and not me.evaluating
        if mine and IN_TURNS:
            made_for_training.add(getattr(self, "_labkit_made", None))
        self._labkit_fetched = count = getattr(self, "_labkit_fetched", 0) + 1
        if mine and "input" in ASKED and count > (VALUES.get("epoch") or count):
            raise StopIteration
        with InPart("input" if mine or not training else "eval"):
            found = real_next(self)
        if not me.evaluating:
            early = WATCH and len(me.marks.get(me.leading, ())) <= 6
            seen = fetched.setdefault(place, [0, False, marks.stack(frame) if early else ()])
            seen[:2] = seen[0] + 1, seen[1] or count == 1
        return found

    owner.__next__ = fetch


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


graphs: dict[Any, Any] = {}


def compiled(name: str) -> Any:
    """A function of the user's, compiled while `name` is left out; a decorator in its copy."""

    def decorate(function: Any) -> Any:
        import tensorflow as tf

        @functools.wraps(function)
        def either(*args: Any, **options: Any) -> Any:
            if name not in me.off:
                return function(*args, **options)
            key = _made_of(function)
            if key not in graphs:
                graphs[key] = tf.function(function, reduce_retracing=True)
            return graphs[key](*_tensors(tf, args), **options)

        return either

    return decorate


def _made_of(function: Any) -> Any:
    """What tells two functions apart when a loop makes one again and again."""
    code = getattr(function, "__code__", None)
    cells = getattr(function, "__closure__", None) or ()
    return (code, tuple(id(c.cell_contents) for c in cells)) if code else id(function)


def _tensors(tf: Any, args: Any) -> Any:
    return tuple(tf.constant(one) if type(one) in (int, float) else one for one in args)


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
    _callbacks(keras.callbacks.Callback, callback_list.CallbackList)
    for name in ("save", "save_weights", "export"):
        wrap(keras.Model, name, "save", marks.nothing)
    for module in (keras.config, keras.backend, tf.keras.backend):
        wrap(module, "set_floatx", "float64")  # for its line
    policy = keras.dtype_policies.DTypePolicy
    real_policy = policy.__init__

    @functools.wraps(real_policy)
    def named(self: Any, name: Any = None) -> None:
        if (name or keras.config.dtype_policy().name) == "float64":
            note("float64", True)
            name = "float32" if "float32" in ALWAYS else name
        real_policy(self, name)

    policy.__init__ = named
    real_layer = keras.layers.Layer.__call__
    from tensorflow.python.eager import record

    @functools.wraps(real_layer)
    def layer(self: Any, *args: Any, **options: Any) -> Any:
        if not inside and record.could_possibly_record():
            essential()
        with marks.Unseen():
            return real_layer(self, *args, **options)

    keras.layers.Layer.__call__ = layer


def _apply(tf: Any, owner: Any) -> None:
    real = owner.apply

    def apply(self: Any, *args: Any, **options: Any) -> Any:
        if inside:
            inside[0]._labkit_learns = True
            grads = args[0] if args else options.get("grads", ())
            same = len(own_means) == len(grads) + 1
            if same and all(a is b for a, b in zip(own_means[1:], grads, strict=True)):
                me.notes["loss"] = {"mean": True, "replicas": me.notes["replicas"]}
                me.sites["loss"] = made(own_means[0])
            return real(self, *args, **options)
        essential()
        with InPart("optimizer"):
            out = real(self, *args, **options)
        if tf.executing_eagerly() and not me.marks.get("tape") and not replica(tf):
            _step("apply")
        return out

    owner.apply = functools.wraps(real)(apply)


FEW = 32  # examples: one batch of predict


def _fit(tf: Any, trainer: Any) -> None:
    epochs, owner = trainer.TFEpochIterator, trainer.TensorFlowTrainer
    real_init, real_get = epochs.__init__, epochs._get_iterator
    fits: list[bool] = []  # of each fit that runs: has it made the iterator of its training data?

    def init(self: Any, *args: Any, **options: Any) -> None:
        before = me.evaluating
        me.evaluating = before or not fits or fits[-1]
        self._labkit_training = not me.evaluating
        if fits:
            fits[-1] = True
        try:
            real_init(self, *args, **options)
            if IN_TURNS and self._labkit_training:
                data = self._distributed_dataset
                self._labkit_parts = getattr(data, "_labkit_parts", None) or free_epoch(data)
            if marks.CONFIG.get("read") and self._labkit_training:
                me.evaluating = True  # what is read here is no step's
                _read_alone(self._distributed_dataset)
        finally:
            me.evaluating = before

    def get(self: Any) -> Any:
        if self._labkit_training:
            me.epochs.append(len(me.marks.get(me.leading, ())))
            if "input" in me.off - ALWAYS:
                return self._labkit_parts
        return real_get(self)

    epochs.__init__, epochs._get_iterator = functools.wraps(real_init)(init), get
    answers: dict[str, Any] = {}
    for name in ("evaluate", "predict"):

        def judged(
            self: Any,
            *args: Any,
            original: Any = getattr(owner, name),
            key: str = name,
            **options: Any,
        ) -> Any:
            x: Any = args[0] if args else options.get("x")
            if key == "predict" and hasattr(x, "shape") and len(x) <= FEW:
                me.count["small predict"] += 1
                me.sites.setdefault("small predict", line())
                if "predict" in me.off:
                    return self.predict_on_batch(x)
            key = f"{key} {options.get('return_dict')}"
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
        executions[0] = self.steps_per_execution
        fits.append(False)
        try:
            with marks.Unseen():
                return real_fit(self, *args, **options)
        finally:
            fits.pop()

    @functools.wraps(real_compile)
    def compile(self: Any, *args: Any, **options: Any) -> Any:
        if options.get("run_eagerly"):
            note("run eagerly", True)
            options["run_eagerly"] = "eager" not in ALWAYS
        return real_compile(self, *args, **options)

    owner.fit, owner.compile = fit, compile


def _callbacks(base: Any, owner: Any) -> None:
    """Each callback is a part of its own, which can be left out."""
    real_made, real = base.__init__, owner.__init__

    @functools.wraps(real_made)
    def created(self: Any) -> None:
        real_made(self)
        me.sites.setdefault(f"callback {type(self).__name__}", line())

    @functools.wraps(real)
    def init(self: Any, *args: Any, **options: Any) -> None:
        real(self, *args, **options)
        names = me.notes.setdefault("callbacks", [])
        for one in self.callbacks:
            name = type(one).__name__
            if name in ("History", "EarlyStopping", "LearningRateScheduler", "ReduceLROnPlateau"):
                continue
            if name not in names:
                names.append(name)
            for method in (
                "on_train_batch_begin", "on_train_batch_end", "on_epoch_begin", "on_epoch_end",
            ):  # fmt: skip
                wrap(one, method, f"callback {name}", marks.nothing)

    base.__init__, owner.__init__ = created, init
