"""diagnose: each defect in several spellings, and correct programs in which nothing is found."""

from __future__ import annotations

import json
import sys
import textwrap
from pathlib import Path

import pytest

from labkit import plain
from labkit.kinds import LabError
from labkit.training import diagnose
from labkit.training.defects import DEFECTS

CLEAN = """
import time
import keras
import tensorflow as tf

BATCH = 64
strategy = tf.distribute.MirroredStrategy()
(x_train, y_train), (x_test, y_test) = keras.datasets.mnist.load_data()
x_train = x_train.astype("float32") / 255
x_test = x_test.astype("float32") / 255


def build():
    model = keras.Sequential([
        keras.Input((28, 28)),
        keras.layers.Flatten(),
        keras.layers.Dense(128, activation="relu"),
        keras.layers.Dense(10),
    ])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer="adam", loss=loss, metrics=["accuracy"])
    return model


train = (
    tf.data.Dataset.from_tensor_slices((x_train, y_train))
    .cache()
    .shuffle(len(y_train))
    .batch(BATCH)
    .prefetch(tf.data.AUTOTUNE)
)
one = build()
with strategy.scope():
    two = build()
for model in (one, two):
    model.fit(train.take(10), verbose=0)
seconds = {"one": [], "two": []}
for round in range(5):
    for name, model in (("one", one), ("two", two)):
        start = time.perf_counter()
        model.fit(train, verbose=0)
        seconds[name].append(time.perf_counter() - start)
for model in (one, two):
    print(model.evaluate(x_test, y_test, verbose=0))
one.save("one.keras")
"""


def found(code, **rest):
    return set(diagnose(textwrap.dedent(code), **rest).names)


def changed(old, new):
    assert CLEAN.count(old) >= 1, old
    return CLEAN.replace(old, new)


def test_a_well_written_program_is_left_alone():
    diagnosis = diagnose(CLEAN)
    assert diagnosis.names == ()
    assert not diagnosis
    assert "No known defect found" in str(diagnosis)
    assert "not a proof" in str(diagnosis)


# One compiled model whose fit is timed without a defect, to put variants around it.
def timed(clock="time.perf_counter()", head="import time"):
    return f"""
    {head}
    model.fit(x, y)
    start = {clock}
    model.fit(x, y)
    print({clock} - start)
    """


@pytest.mark.parametrize(
    ("head", "clock"),
    [
        ("import time", "time.process_time()"),
        ("import time as t", "t.process_time()"),
        ("from time import process_time", "process_time()"),
        ("from time import process_time as now", "now()"),
        ("import time", "time.process_time_ns()"),
        ("import time", "time.thread_time()"),
        ("from time import *", "process_time()"),
        ("import time\n    clock = time.process_time", "clock()"),
        ("import time\n    def tick():\n        return time.process_time()", "tick()"),
        ("import resource", "resource.getrusage(resource.RUSAGE_SELF).ru_utime"),
        ("", "time.process_time()"),
    ],
)
def test_a_cpu_clock_is_found(head, clock):
    assert found(timed(clock, head)) == {"clock"}


@pytest.mark.parametrize(
    "clock", ["time.perf_counter()", "time.monotonic()", "time.perf_counter_ns()", "t()"]
)
def test_a_steady_clock_is_left_alone(clock):
    head = "import time\n    from timeit import default_timer as t"
    assert found(timed(clock, head)) == set()


@pytest.mark.parametrize(
    ("head", "clock"),
    [
        ("import time", "time.time()"),
        ("from time import time", "time()"),
        ("from datetime import datetime", "datetime.now()"),
        ("import datetime as d", "d.datetime.now()"),
        ("import tensorflow as tf", "tf.timestamp()"),
    ],
)
def test_a_clock_that_may_jump_is_advised_against(head, clock):
    diagnosis = diagnose(textwrap.dedent(timed(clock, head)))
    assert diagnosis.names == ("wall clock",)
    assert diagnosis.findings[0].severity == "advice"


@pytest.mark.parametrize(
    "code",
    [
        "import time\nprint('started at', time.time())\nmodel.fit(x, y)",
        "import time\nt = time.process_time()\nw = time.perf_counter()\nmodel.fit(x, y)\n"
        "print(time.perf_counter() - w, time.process_time() - t)",
        "import time\nrun = f'log-{time.time()}'\nmodel.fit(x, y)",
    ],
)
def test_clocks_that_time_nothing_or_stand_beside_a_right_one_are_left_alone(code):
    assert found(code) == set()


BUILD = "model = keras.Sequential([keras.Input((9,)), keras.layers.Dense(1)])\n"
COMPILE = "model.compile('sgd', 'mse')\n"
START, STOP = "start = time.perf_counter()\n", "print(time.perf_counter() - start)\n"


@pytest.mark.parametrize(
    "code",
    [
        BUILD + COMPILE + START + "model.fit(x, y)\n" + STOP,
        BUILD + COMPILE + "model.evaluate(x, y)\n" + START + "model.fit(x, y)\n" + STOP,
        BUILD + COMPILE + "model.fit(x, y)\n" + COMPILE + START + "model.fit(x, y)\n" + STOP,
        BUILD + START + COMPILE + "model.fit(x, y)\nend = time.perf_counter()\nprint(end - start)",
        "%%time\n" + BUILD + COMPILE + "model.fit(x, y)",
        "def run(model):\n    start = time.perf_counter()\n    model.fit(x, y)\n"
        "    return time.perf_counter() - start\n" + BUILD + COMPILE + "run(model)",
        "for _ in range(3):\n    model = keras.Sequential([keras.layers.Dense(1)])\n"
        "    model.compile('sgd', 'mse')\n    start = time.perf_counter()\n    model.fit(x, y)\n"
        "    print(time.perf_counter() - start)",
        "@tf.function\ndef step(x):\n    return x\nstart = time.perf_counter()\nstep(x)\n" + STOP,
    ],
)
def test_a_first_training_inside_the_timed_part_is_found(code):
    assert found(code) == {"first epoch"}


@pytest.mark.parametrize(
    "code",
    [
        BUILD + COMPILE + "model.fit(x[:64], y[:64])\n" + START + "model.fit(x, y)\n" + STOP,
        BUILD + COMPILE + "model.train_on_batch(x, y)\n" + START + "model.fit(x, y)\n" + STOP,
        START + "model.fit(x, y)\n" + STOP,
        BUILD + COMPILE + "labkit.measure(lambda: model.fit(x, y))",
        BUILD + COMPILE + "times = []\nfor _ in range(9):\n    start = time.perf_counter()\n"
        "    model.fit(x, y)\n    times.append(time.perf_counter() - start)\nprint(times[1:])",
        "@tf.function\ndef step(x):\n    return x\nstep(x)\n" + START + "step(x)\n" + STOP,
        BUILD
        + COMPILE
        + START
        + "model.fit(x, y)\n"
        + STOP
        + START
        + "model.fit(x, y)\n"
        + STOP,
        "def warm_up(m):\n    m.fit(x[:32], y[:32])\n"
        + BUILD + COMPILE + "warm_up(model)\n" + START + "model.fit(x, y)\n" + STOP,
    ],
)  # fmt: skip
def test_a_training_that_was_warmed_up_is_left_alone(code):
    assert found(code) == set()


@pytest.mark.parametrize(
    "inside",
    [
        "model.evaluate(x, y)",
        "scores = model.evaluate(x, y, verbose=2)",
        "print(model.predict(x))",
        "def test(m):\n    return m.evaluate(x, y)\ntest(model)",
        "model.fit(x, y, validation_data=(a, b))",
        "model.fit(x, y, validation_split=0.1)",
    ],
)
def test_an_evaluation_inside_the_timed_part_is_found(inside):
    code = "model.fit(x, y)\n" + START + f"model.fit(x, y)\n{inside}\n" + STOP
    assert found(code) == {"timed evaluation"}


@pytest.mark.parametrize(
    "inside",
    [
        "y = keras.utils.to_categorical(y)",
        "from keras.utils import to_categorical\ny = to_categorical(y)",
        "ds = tf.data.Dataset.from_tensor_slices((x, y)).batch(32)",
        "(x, y), _ = keras.datasets.mnist.load_data()",
    ],
)
def test_preparation_inside_the_timed_part_is_found(inside):
    code = "model.fit(x, y)\n" + START + f"{inside}\nmodel.fit(x, y)\n" + STOP
    assert found(code) == {"timed preparation"}


def test_what_lies_outside_the_timed_part_is_left_alone():
    assert (
        found(
            "y = keras.utils.to_categorical(y)\nmodel.fit(x, y)\n"
            + START
            + "model.fit(x, y)\n"
            + STOP
            + "model.evaluate(x, y)"
        )
        == set()
    )


def test_timing_an_evaluation_alone_is_left_alone():
    assert found(START + "model.evaluate(x, y)\n" + STOP) == set()


def test_a_total_around_a_finer_timing_is_left_alone():
    code = "model.fit(x, y)\ntotal = time.perf_counter()\n" + START + "model.fit(x, y)\n" + STOP
    code += "model.evaluate(x, y)\nprint(time.perf_counter() - total)"
    assert found(code) == set()


LOGITS = "keras.layers.Dense(10)"
FROM_LOGITS = "keras.losses.CategoricalCrossentropy(from_logits=True)"
SOFTMAX = "keras.layers.Dense(10, activation='softmax')"


def classifier(last, loss, head="import keras"):
    model = f"keras.Sequential([keras.Input((9,)), {last}])"
    return f"{head}\nmodel = {model}\nmodel.compile(optimizer='adam', loss={loss})\n"


@pytest.mark.parametrize(
    "code",
    [
        classifier(LOGITS, "'categorical_crossentropy'"),
        classifier(LOGITS, "'sparse_categorical_crossentropy'"),
        classifier(LOGITS, "keras.losses.CategoricalCrossentropy()"),
        classifier(LOGITS, "keras.losses.sparse_categorical_crossentropy"),
        classifier(
            LOGITS, "SCC()", "from keras.losses import SparseCategoricalCrossentropy as SCC"
        ),
        classifier("tf.keras.layers.Dense(10)", "tf.keras.losses.CategoricalCrossentropy()"),
        classifier(LOGITS + ", keras.layers.Dropout(0.2)", "'categorical_crossentropy'"),
        classifier("keras.layers.Dense(10, activation='linear')", "'categorical_crossentropy'"),
        classifier("keras.layers.Dense(1)", "'binary_crossentropy'"),
        "loss = 'categorical_crossentropy'\n" + classifier(LOGITS, "loss"),
        "m = keras.Sequential()\nm.add(keras.layers.Dense(10))\n"
        "m.compile('adam', 'categorical_crossentropy')",
        "x = keras.Input((9,))\nh = keras.layers.Dense(9, 'relu')(x)\n"
        "out = keras.layers.Dense(10)(h)\nm = keras.Model(x, out)\n"
        "m.compile('adam', 'categorical_crossentropy')",
        "layers = [keras.Input((9,))]\nlayers.append(keras.layers.Dense(10))\n"
        "m = keras.models.Sequential(layers)\nm.compile('adam', 'categorical_crossentropy')",
        "def head():\n    return keras.layers.Dense(10)\n"
        "m = keras.Sequential([keras.Input((9,)), head()])\n"
        "m.compile('adam', loss='CategoricalCrossentropy')",
        "def build(n, loss='categorical_crossentropy'):\n"
        "    m = keras.Sequential([keras.layers.Dense(n)])\n    m.compile('adam', loss)\n"
        "    return m",
    ],
)
def test_a_loss_for_probabilities_on_logits_is_found(code):
    diagnosis = diagnose(code)
    assert diagnosis.names == ("loss",)
    assert diagnosis.findings[0].severity == "wrong result"


@pytest.mark.parametrize(
    "code",
    [
        classifier(SOFTMAX, FROM_LOGITS),
        classifier(SOFTMAX, "keras.losses.SparseCategoricalCrossentropy(True)"),
        classifier("keras.layers.Dense(10, 'softmax')", FROM_LOGITS),
        classifier(LOGITS + ", keras.layers.Softmax()", FROM_LOGITS),
        classifier(LOGITS + ", keras.layers.Activation('softmax')", FROM_LOGITS),
        "x = keras.Input((9,))\nm = keras.Model(x, tf.nn.softmax(keras.layers.Dense(10)(x)))\n"
        "m.compile('adam', keras.losses.CategoricalCrossentropy(from_logits=True))",
        classifier("keras.layers.Dense(10, activation=tf.nn.softmax)", FROM_LOGITS),
    ],
)  # fmt: skip
def test_a_loss_for_logits_on_probabilities_is_found(code):
    assert found(code) == {"loss"}


@pytest.mark.parametrize(
    "code",
    [
        classifier(LOGITS, FROM_LOGITS),
        classifier(SOFTMAX, "'categorical_crossentropy'"),
        classifier(SOFTMAX, "keras.losses.SparseCategoricalCrossentropy()"),
        classifier(LOGITS + ", keras.layers.Softmax()", "'categorical_crossentropy'"),
        classifier("keras.layers.Dense(1)", "'mse'"),
        classifier("keras.layers.Dense(1, activation='sigmoid')", "'binary_crossentropy'"),
        classifier("head", "'categorical_crossentropy'"),
        classifier("keras.layers.Dense(10, activation=chosen)", "'categorical_crossentropy'"),
        classifier(LOGITS, "keras.losses.CategoricalCrossentropy(from_logits=flag)"),
        classifier(LOGITS, "lambda y, p: keras.losses.mine(y, p, from_logits=True)"),
        "class Net(keras.Model):\n    def call(self, x):\n        return Dense(10)(x)\n"
        "net = Net()\nnet.compile('adam', 'categorical_crossentropy')",
        "if ready:\n    last = keras.layers.Softmax()\nelse:\n    last = keras.layers.Dense(10)\n"
        + classifier("last", "'categorical_crossentropy'"),
        "def build(last):\n    m = keras.Sequential([last])\n"
        "    m.compile('adam', 'categorical_crossentropy')\n    return m\n"
        "build(keras.layers.Dense(10, 'softmax'))",
        "model = keras.applications.ResNet50()\nmodel.compile('adam', 'categorical_crossentropy')",
    ],
)  # fmt: skip
def test_a_loss_that_fits_or_cannot_be_seen_is_left_alone(code):
    assert found(code) == set()


PARTS = "(x, y), test = keras.datasets.mnist.load_data()\n"


@pytest.mark.parametrize(
    ("labels", "loss"),
    [
        ("y = keras.utils.to_categorical(y, 10)", "sparse_categorical_crossentropy"),
        ("y = tf.one_hot(y, 10)", "sparse_categorical_crossentropy"),
        ("y = np.eye(10)[y]", "sparse_categorical_crossentropy"),
        ("y = tf.keras.utils.to_categorical(y)[:100]", "sparse_categorical_crossentropy"),
        ("pass", "categorical_crossentropy"),
        ("y = y.astype('int32')", "categorical_crossentropy"),
        ("y = y[:1000]", "CategoricalCrossentropy"),
    ],
)
def test_a_loss_for_the_other_kind_of_labels_is_found(labels, loss):
    code = PARTS + f"{labels}\n" + classifier(SOFTMAX, f"'{loss}'")
    assert found(code + "model.fit(x, y)") == {"labels"}
    piped = "model.fit(tf.data.Dataset.from_tensor_slices((x, y)).batch(32))"
    assert found(code + piped) == {"labels"}


@pytest.mark.parametrize(
    ("labels", "loss"),
    [
        ("y = keras.utils.to_categorical(y)", "categorical_crossentropy"),
        ("pass", "sparse_categorical_crossentropy"),
        ("y = mine(y)", "categorical_crossentropy"),
        ("if wide:\n    y = keras.utils.to_categorical(y)", "categorical_crossentropy"),
    ],
)
def test_labels_that_fit_are_left_alone(labels, loss):
    code = PARTS + f"{labels}\n" + classifier(SOFTMAX, f"'{loss}'") + "model.fit(x, y)"
    assert found(code) == set()


def test_labels_that_a_map_may_change_are_left_alone():
    code = PARTS + classifier(SOFTMAX, "'categorical_crossentropy'")
    code += "ds = tf.data.Dataset.from_tensor_slices((x, y)).map(wide).batch(32)\nmodel.fit(ds)"
    assert found(code) == set()


MIRROR = """
strategy = tf.distribute.MirroredStrategy()
BATCH = 32
{computed}
ds = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(9){batch}
with strategy.scope():
    model = keras.Sequential([keras.Input((9,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
model.fit(ds)
"""
GLOBAL = "GLOBAL = BATCH * strategy.num_replicas_in_sync"


@pytest.mark.parametrize(
    ("computed", "batch"),
    [
        (GLOBAL, ".batch(64)"),
        (GLOBAL, ".batch(BATCH)"),
        ("n = strategy.num_replicas_in_sync\nglobal_batch = n * BATCH", ".batch(64).prefetch(2)"),
        ("GLOBAL = BATCH * len(tf.config.list_physical_devices('GPU'))", ".batch(128)"),
        ("GLOBAL = 32 * strategy.num_replicas_in_sync", ".batch(batch_size=64)"),
        ("PER_REPLICA_BATCH = 32", ".batch(PER_REPLICA_BATCH)"),
    ],
)
def test_a_batch_that_does_not_follow_the_replicas_is_found(computed, batch):
    assert found(MIRROR.format(computed=computed, batch=batch)) == {"batch"}


@pytest.mark.parametrize(
    ("computed", "batch"),
    [
        (GLOBAL, ".batch(GLOBAL)"),
        ("n = strategy.num_replicas_in_sync", ".batch(BATCH * n)"),
        ("GLOBAL = 64\nper_replica = GLOBAL // strategy.num_replicas_in_sync", ".batch(GLOBAL)"),
        ("rate = 0.001 * strategy.num_replicas_in_sync", ".batch(64)"),
        ("rate = 1 * strategy.num_replicas_in_sync", ".batch(64)"),
        ("", ".batch(64)"),
        (GLOBAL, ".batch(unknown())"),
        (GLOBAL + "\nsame = GLOBAL", ".batch(same, drop_remainder=True)"),
    ],
)
def test_a_batch_that_is_right_is_left_alone(computed, batch):
    assert found(MIRROR.format(computed=computed, batch=batch)) == set()


COMPARED = """
strategy = tf.distribute.MirroredStrategy()
BATCH = 32
ds = tf.data.Dataset.from_tensor_slices((x, y)){ops}
def build():
    m = keras.Sequential([keras.Input((9,)), keras.layers.Dense(1)])
    m.compile("sgd", "mse")
    return m
one = build()
with strategy.scope():
    two = build()
labkit.compare({{"one": lambda: one.fit({first}), "two": lambda: two.fit({second})}})
"""


@pytest.mark.parametrize(
    ("ops", "first", "second"),
    [
        (".shuffle(9).batch(64)", "x, y, batch_size=32", "ds"),
        (".shuffle(9).batch(64)", "x, y", "ds"),
        (".shuffle(9).batch(BATCH * 2)", "x, y, BATCH", "ds"),
        ("", "x, y, batch_size=BATCH", "x, y, batch_size=2 * BATCH"),
        ("", "x, y, batch_size=BATCH", "x, y, batch_size=BATCH * strategy.num_replicas_in_sync"),
    ],
)
def test_runs_that_differ_in_their_batch_are_found(ops, first, second):
    assert found(COMPARED.format(ops=ops, first=first, second=second)) == {"different batch"}


@pytest.mark.parametrize(
    ("ops", "first", "second"),
    [
        (".shuffle(9).batch(32)", "x, y, batch_size=32", "ds"),
        (".shuffle(9).batch(BATCH)", "x, y", "ds"),
        ("", "x, y, batch_size=64", "x, y, batch_size=2 * BATCH"),
        ("", "mine", "yours"),
        ("", "x, y, batch_size=n", "x, y, batch_size=n"),
        (" # weak scaling", "x, y, batch_size=BATCH",
         "x, y, batch_size=BATCH * strategy.num_replicas_in_sync"),
    ],
)  # fmt: skip
def test_runs_with_the_same_batch_or_named_weak_scaling_are_left_alone(ops, first, second):
    assert found(COMPARED.format(ops=ops, first=first, second=second)) == set()


def test_a_study_of_batches_is_left_alone():
    code = (
        BUILD + COMPILE + "model.fit(x, y)\nfor b in (32, 64):\n    start = time.perf_counter()\n"
    )
    code += "    model.fit(x, y, batch_size=b)\n    print(time.perf_counter() - start)"
    assert found(code) == set()


@pytest.mark.parametrize(
    ("ops", "first", "second"),
    [
        (".batch(32)", "x, y, batch_size=32", "ds"),
        (".batch(32).prefetch(tf.data.AUTOTUNE)", "x, y", "ds"),
        (".cache().batch(32)", "x=x, y=y", "ds"),
        (".shuffle(9).batch(32)", "ds", "x, y, shuffle=False"),
    ],
)
def test_runs_of_which_one_does_not_shuffle_are_found(ops, first, second):
    assert found(COMPARED.format(ops=ops, first=first, second=second)) == {"pipeline"}


@pytest.mark.parametrize(
    ("ops", "first", "second"),
    [
        (".batch(32)", "x, y, shuffle=False", "ds"),
        (".batch(32)", "ds", "ds"),
        (".batch(32)", "x, y", "prepare(ds)"),
    ],
)
def test_runs_that_agree_in_shuffling_are_left_alone(ops, first, second):
    assert found(COMPARED.format(ops=ops, first=first, second=second)) == set()


@pytest.mark.parametrize(
    "ops",
    [
        ".batch(32).shuffle(9)",
        ".cache().batch(32).shuffle(9).prefetch(2)",
        ".shuffle(9).cache().batch(32)",
        ".shuffle(9).batch(32).cache()",
    ],
)
def test_a_shuffle_that_mixes_less_is_advised_against(ops):
    code = f"ds = tf.data.Dataset.from_tensor_slices((x, y)){ops}\nmodel.fit(ds)"
    assert found(code) == {"shuffle"}
    steps = "\n".join(
        f"ds = ds.{op}" for op in ops[1:].split(").") for op in [op.rstrip(")") + ")"]
    )
    assert found(f"ds = tf.data.Dataset.from_tensor_slices((x, y))\n{steps}\nmodel.fit(ds)") == {
        "shuffle"
    }


@pytest.mark.parametrize(
    "ops",
    [
        ".shuffle(9).batch(32)",
        ".cache().shuffle(9).batch(32).prefetch(2)",
        ".shuffle(9).batch(32).shuffle(4)",
        ".batch(32)",
        ".batch(1000).map(f).unbatch().shuffle(9).batch(32)",
    ],
)
def test_a_shuffle_that_mixes_well_is_left_alone(ops):
    assert found(f"ds = tf.data.Dataset.from_tensor_slices((x, y)){ops}\nmodel.fit(ds)") == set()


@pytest.mark.parametrize(
    "code",
    [
        PARTS + "x = x / 255.0\nmodel.fit(x, y)",
        PARTS + "x = x / 255\nmodel.fit(x, y)",
        PARTS + "x /= 255.\nmodel.fit(x, y)",
        PARTS + "x = x * (1 / 255)\nmodel.fit(x, y)",
        PARTS + "x = x.astype('float64')\nmodel.fit(x, y)",
        PARTS + "x = np.divide(x, 255.0)\nmodel.fit(x, y)",
        PARTS + "x = x.reshape(-1, 784) / 255.0\nds = tf.data.Dataset.from_tensor_slices(x)",
        "(x_train, a), (x_test, b) = load_data()\nx_train, x_test = x_train / 255, x_test / 255",
        "x_train = x_train / 255.0",
        "data = labkit.datasets.mnist()\nx = data.x_train[:9] / 255.0\nmodel.fit(x, data.y_train)",
        "(a, b), (c, d) = labkit.datasets.mnist()\na = a / 255.0\nmodel.fit(a, b)",
        "def scale(images):\n    return images / 255.0\n" + PARTS + "model.fit(scale(x), y)",
    ],
)
def test_double_precision_input_is_found(code):
    assert found(code) == {"float64"}


@pytest.mark.parametrize(
    "code",
    [
        PARTS + "x = x.astype('float32') / 255.0\nmodel.fit(x, y)",
        PARTS + "x = x.astype(np.float32)\nx /= 255\nmodel.fit(x, y)",
        PARTS + "x = (x / 255.0).astype('float32')\nmodel.fit(x, y)",
        PARTS + "x = x / np.float32(255)\nmodel.fit(x, y)",
        PARTS + "x = tf.cast(x, tf.float32) / 255.0\nmodel.fit(x, y)",
        PARTS + "x = np.asarray(x, dtype='float32') / 255\nmodel.fit(x, y)",
        PARTS + "model.fit(x, y)",
        "def scale(image, label):\n    return image / 255.0, label\nds = ds.map(scale)",
        "share = done / 255.0",
        "x_train = x_train.astype('float32') / 255",
    ],
)
def test_single_precision_and_bytes_are_left_alone(code):
    assert found(code) == set()


MAKE = "keras.Sequential([keras.Input((9,)), keras.layers.Dense(1)])"


@pytest.mark.parametrize(
    "code",
    [
        f"s = tf.distribute.MirroredStrategy()\nm = {MAKE}\nm.compile('sgd', 'mse')\nm.fit(x, y)",
        f"s = tf.distribute.MirroredStrategy()\nm = {MAKE}\nwith s.scope():\n"
        "    m.compile('sgd', 'mse')\nm.fit(x, y)",
        f"s = tf.distribute.MirroredStrategy()\nwith s.scope():\n    m = {MAKE}\n"
        "m.compile('sgd', 'mse')\nm.fit(x, y)",
        f"s = labkit.replicas(2).strategy()\nm = {MAKE}\nm.compile('sgd', 'mse')",
        "from tensorflow.distribute import MirroredStrategy as M\ns = M(['gpu:0', 'gpu:1'])\n"
        f"def build():\n    return {MAKE}\nm = build()\nm.compile('sgd', 'mse')",
        f"s = tf.distribute.experimental.CentralStorageStrategy()\nm = {MAKE}\nm.compile('sgd')",
    ],
)
def test_a_model_outside_the_scope_is_found(code):
    assert found(code) == {"scope"}


@pytest.mark.parametrize(
    "code",
    [
        f"s = tf.distribute.MirroredStrategy()\nwith s.scope():\n    m = {MAKE}\n"
        "    m.compile('sgd', 'mse')\nm.fit(x, y)",
        f"s = tf.distribute.OneDeviceStrategy('/cpu:0')\nm = {MAKE}\nm.compile('sgd', 'mse')",
        f"m = {MAKE}\nm.compile('sgd', 'mse')",
        f"def build():\n    m = {MAKE}\n    m.compile('sgd', 'mse')\n    return m\n"
        "s = tf.distribute.MirroredStrategy()\nwith s.scope():\n    m = build()",
        f"def build(strategy):\n    with strategy.scope():\n        m = {MAKE}\n"
        "        m.compile('sgd', 'mse')\n    return m\nbuild(tf.distribute.MirroredStrategy())",
        f"def train(strategy=None):\n    if strategy is None:\n        m = {MAKE}\n    else:\n"
        f"        with strategy.scope():\n            m = {MAKE}\n            m.compile('sgd')\n"
        "train()\ntrain(tf.distribute.MirroredStrategy())",
        "s = tf.distribute.MirroredStrategy()\nprint(s.num_replicas_in_sync)",
        f"with tf.distribute.MirroredStrategy().scope():\n    m = {MAKE}\n    m.compile('sgd')",
    ],
)
def test_a_model_in_its_scope_is_left_alone(code):
    assert found(code) == set()


TWO = (
    f"s = tf.distribute.MirroredStrategy()\none = {MAKE}\none.compile('sgd', 'mse')\n"
    f"with s.scope():\n    two = {MAKE}\n    two.compile('sgd', 'mse')\n"
    "one.fit(x, y)\ntwo.fit(x, y)\n"
)


BOTH_TIMED = START + "one.fit(x, y)\n" + STOP + START + "two.fit(x, y)\n" + STOP


@pytest.mark.parametrize(
    "timing",
    [
        START + "one.fit(x, y)\n" + STOP + START + "two.fit(x, y)\n" + STOP,
        "def t(m):\n    start = time.perf_counter()\n    m.fit(x, y)\n"
        "    return time.perf_counter() - start\nprint(t(one) / t(two))",
        "for m in (one, two):\n    start = time.perf_counter()\n    m.fit(x, y)\n"
        "    print(time.perf_counter() - start)",
        "class Timer:\n    def __enter__(self):\n        self.start = time.perf_counter()\n"
        "    def __exit__(self, *_):\n        print(time.perf_counter() - self.start)\n"
        "with Timer():\n    one.fit(x, y)\nwith Timer():\n    two.fit(x, y)",
        "from contextlib import contextmanager\n@contextmanager\ndef timer():\n"
        "    start = time.perf_counter()\n    yield\n    print(time.perf_counter() - start)\n"
        "with timer():\n    one.fit(x, y)\nwith timer():\n    two.fit(x, y)",
        "def timed(f):\n    def inner(*a):\n        start = time.perf_counter()\n        f(*a)\n"
        "        print(time.perf_counter() - start)\n    return inner\n"
        "@timed\ndef first():\n    one.fit(x, y)\n@timed\ndef second():\n    two.fit(x, y)\n"
        "first()\nsecond()",
    ],
)
def test_one_run_of_each_is_advised_against(timing):
    assert found(TWO + timing) == {"one run"}


@pytest.mark.parametrize(
    "timing",
    [
        "labkit.compare({'one': lambda: one.fit(x, y), 'two': lambda: two.fit(x, y)})",
        "from labkit import compare\ndef a():\n    one.fit(x, y)\ndef b():\n    two.fit(x, y)\n"
        "compare({'one': a, 'two': b})",
        "for _ in range(9):\n" + textwrap.indent(BOTH_TIMED, "    "),
        "timeit.repeat(lambda: one.fit(x, y))\ntimeit.repeat(lambda: two.fit(x, y))",
        START + "one.fit(x, y)\n" + STOP,
        "one.fit(x, y)\ntwo.fit(x, y)",
    ],
)  # fmt: skip
def test_repeated_runs_and_runs_that_nothing_compares_are_left_alone(timing):
    assert found(TWO + timing) == set()


@pytest.mark.parametrize(
    "code",
    [
        "keras.utils.to_categorical(y, 10, dtype='float32')",
        "from tensorflow.keras.utils import to_categorical\nto_categorical(y, dtype='int8')",
        "m = tf.saved_model.load('folder')\nm(x)",
        f"m = {MAKE}\nm.save('folder')",
        f"m = {MAKE}\nm.save(filepath='folder/model.pb')",
        f"m = {MAKE}\ntf.saved_model.save(m, 'folder')",
        "m = keras.Sequential([keras.layers.Flatten(input_shape=(28, 28))])",
        "from keras.layers import Dense\nlayer = Dense(10, input_shape=(9,))",
    ],
)
def test_what_breaks_on_keras_3_is_found(code):
    assert found(code) == {"Keras 3"}


@pytest.mark.parametrize(
    "code",
    [
        "keras.utils.to_categorical(y, 10)",
        f"m = {MAKE}\nm.save('m.keras')\nm.export('folder')",
        f"m = {MAKE}\nm.save(path)",
        "m = tf.saved_model.load('folder')\nm.serve(x)",
        "m = keras.applications.ResNet50(input_shape=(224, 224, 3))",
        "import os\nos.environ['TF_USE_LEGACY_KERAS'] = '1'\n"
        "keras.utils.to_categorical(y, dtype='float32')",
        "np.save('x', x)",
    ],
)
def test_what_keras_3_can_do_is_left_alone(code):
    assert found(code) == set()


def test_every_defect_has_a_name_and_a_reason_and_a_way_out():
    code = MIRROR.format(computed=GLOBAL, batch=".batch(64).shuffle(9)")
    for finding in diagnose(code):
        assert finding.defect in DEFECTS
        assert finding.wrote
        assert finding.does.endswith(".")
        assert finding.mend.endswith(".")


def test_a_place_is_a_line_or_a_cell_and_a_line():
    code = PARTS + "\n\nx = x / 255.0\nmodel.fit(x, y)"
    assert diagnose(code).findings[0].where == ("line 4",)
    assert diagnose([PARTS, "\nx = x / 255.0", "model.fit(x, y)"]).findings[0].where == (
        "cell 2, line 2",
    )


def my_benchmark():
    import time

    start = time.process_time()
    model.fit(x, y)  # noqa: F821
    return time.process_time() - start


def test_a_function_is_read_and_not_run():
    finding = diagnose(my_benchmark).findings[0]
    assert finding.defect == "clock"
    assert finding.wrote == "start = time.process_time()"
    line = int(finding.where[0].removeprefix("line "))
    assert "process_time" in Path(__file__).read_text().splitlines()[line - 1]


def test_magics_and_shell_lines_are_skipped_and_lines_keep_their_numbers():
    cells = [
        "%matplotlib inline\n!pip install keras \\\n    tensorflow\nimport time",
        "%%bash\necho 'start = time.process_time('",
        "files = !ls\nkeras?\nfor f in files:\n    !rm $f\nprint('%s of %s'\n      % (a, b))\n"
        "t = %timeit -o f()\nstart = time.process_time()\nmodel.fit(x, y)\n"
        "print(time.process_time() - start)",
    ]
    diagnosis = diagnose(cells)
    assert diagnosis.names == ("clock",)
    assert diagnosis.findings[0].where == ("cell 3, line 8",)


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("x = 1\ny = (", "line 2"),
        (["x = 1", "pass\nif x\n  y"], "cell 2, line 2"),
        ("my_benchmark.py", "read_text"),
        (17, "17 is no program"),
        ([1, 2], "must be text"),
        (len, "source of 'len'"),
    ],
)
def test_what_cannot_be_read_is_said_with_the_way_out(code, said):
    with pytest.raises(LabError, match=said.replace("(", r"\(")):
        diagnose(code)


def test_nothing_to_look_at_is_an_error():
    with pytest.raises(LabError, match="nothing to look at"):
        diagnose()


@pytest.mark.parametrize(
    "code",
    [
        "",
        "# only a comment",
        "def f(): return f()\nf()",
        "def a(): b()\ndef b(): a()\na()",
        "x = 10 ** 10 ** 10",
        "match x:\n    case [1, *r]: model.fit(r)\n    case {'a': b}: pass",
        "async def f():\n    async with a as b:\n        async for c in d: await c",
        "(lambda *a, **k: a)(1, *b, **c)",
        "x: int = 3\ndel x\nassert x, y\nraise E from e",
        "class A(B, metaclass=C):\n    x: int\n    @property\n    def y(self): return self.y",
        "try:\n    f()\nexcept* E as e:\n    pass\nfinally:\n    g()",
        "f'{x!r:>{width}}' if (n := 3) else [*y, *(z for z in w if z)]",
        "a[b].c[d:e, ...] = f = g, *h = i",
        "for (a, b), *c in d:\n    while c: break\n    else: continue",
        "global g\nx = yield\n",
        "model.fit()\nmodel.compile()\nds.batch()\nmodel.save()\nkeras.Sequential()()",
        "strategy.run()\nstrategy.scope()\nlabkit.compare({})\ntf.function()\nfunctools.partial()",
    ],
)
def test_strange_programs_do_not_trip_it(code):
    assert not diagnose(code)


@pytest.mark.parametrize("name", ["asyncio/base_events.py", "dataclasses.py", "typing.py",
                                  "argparse.py", "test/test_grammar.py"])  # fmt: skip
def test_programs_that_train_nothing_are_left_alone(name):
    path = Path(textwrap.__file__).parent / name
    if not path.exists():
        pytest.skip(f"This Python comes without {name}")
    diagnosis = diagnose(path.read_text(encoding="utf-8"))
    assert diagnosis.names == ()


def test_reading_loads_neither_tensorflow_nor_numpy():
    import subprocess

    code = (
        "import sys; from labkit.training import diagnose; d = diagnose('import time'); str(d);"
        "print([m for m in ('tensorflow', 'keras', 'numpy') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True,
                          cwd=Path(__file__).parents[2])  # fmt: skip
    assert done.stdout.strip() == "[]"


def test_a_diagnosis_is_plain_data_and_reads_as_text_and_as_a_table():
    diagnosis = diagnose(PARTS + "x = x / 255.0\nmodel.fit('<b>', x)")
    assert plain.load(plain.dump(diagnosis)) == diagnosis
    assert json.loads(plain.dump(diagnosis))["type"] == "training.Diagnosis"
    assert repr(diagnosis) == repr(diagnose(PARTS + "x = x / 255.0\nmodel.fit('<b>', x)"))
    shown = diagnosis._repr_mimebundle_()
    assert shown["text/plain"] == str(diagnosis)
    assert "<table" in shown["text/html"]
    assert "x = x / 255.0" in shown["text/html"]
    assert diagnosis
    assert len(diagnosis) == 1


def test_the_same_defect_in_two_places_is_one_finding():
    code = PARTS + "(a, b), c = x, y\nx = x / 255.0\nmodel.fit(x, y)\n" + PARTS + "x = x / 255\n"
    finding = diagnose(code).findings
    assert len(finding) == 1
    assert finding[0].place == "lines 3 and 6"
