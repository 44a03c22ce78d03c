"""What is seen of TensorFlow and Keras programs, and that what is left out is left out."""

import sys
from types import SimpleNamespace

import pytest

from labkit.explain import findings, runs, statements
from labkit.explain.candidates import candidates
from labkit.explain.seen import seen

HEAD = """
import numpy as np, tensorflow as tf, keras
keras.utils.set_random_seed(1)
x, y = np.random.rand(64, 4).astype("float32"), np.random.randint(0, 3, 64)
loss_fn = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
"""


@pytest.fixture
def program(tmp_path, monkeypatch):
    """A program in a folder of its own, watched or run again in a copy."""
    monkeypatch.chdir(tmp_path)
    opened = []

    def start(text):
        file = tmp_path / "train.py"
        file.write_text(HEAD + text, "utf-8")
        found = runs.Runs([sys.executable, "train.py"])
        opened.append(found)

        def watched():
            outcome = found.watched()
            assert outcome.code == 0
            return seen(outcome.reports, str(tmp_path))

        def again(kind, stop, edits=None, **config):
            """Its report, and the folder in which it ran."""
            config = {"kind": kind, "stop": stop, "warm": 3, "values": {}, **config}
            outcome = found.shorter(config, edits or {}, {}, 300)
            assert not outcome.failed
            return outcome.reports[0], found.moved(tmp_path)

        def line(part):
            """Where this text stands."""
            lines = file.read_text("utf-8").splitlines()
            (number,) = [n for n, one in enumerate(lines, 1) if part in one]
            return f"train.py:{number}"

        return SimpleNamespace(file=file, watched=watched, again=again, line=line)

    yield start
    for one in opened:
        one.close()


FIT = """
class Judge(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        self.model.evaluate(x, y, verbose=0)

def twice(a, b):
    return a * 2, b
data = tf.data.Dataset.from_tensor_slices((x, y)).map(twice).batch(8)
model = keras.Sequential([keras.layers.Dense(3)])
model.compile("sgd", loss_fn)
save = keras.callbacks.ModelCheckpoint("last.weights.h5", save_weights_only=True, save_freq=1)
model.fit(data, epochs=3, verbose=0, callbacks=[save, Judge()], validation_data=(x, y))
"""


def test_a_fit_is_seen_with_its_epochs_and_what_its_callbacks_do(program):
    fit = program(FIT)
    found = fit.watched()
    assert (found.kind, found.steps, found.epoch) == ("tf", 24, 8)
    chosen = {one.key: one for one in candidates(found)}
    assert chosen["serial_map"].line == fit.line(".map(twice)")
    assert {"ModelCheckpoint", "Judge"} <= {*found.note("callbacks")}
    assert found.count("save") == 24
    assert found.count("eval") >= 24  # of the callback; those of fit are at the ends of epochs
    assert not findings.wrong(found)


LOOP = """
model = keras.Sequential([keras.layers.Dense(3)])
rate, total = keras.optimizers.SGD(0.1), 0.0
def train(epochs):
  global total
  for epoch in range(epochs):
    for a, b in tf.data.Dataset.from_tensor_slices((x, y)).batch(8):
        with tf.GradientTape() as tape:
            loss = loss_fn(b, model(a, training=True))
        gradients = tape.gradient(loss, model.trainable_variables)
        rate.apply_gradients(zip(gradients, model.trainable_variables))
        total += float(loss)
train(1)
train(2)
open("total.txt", "w").write(str(total))
"""


def test_the_steps_of_an_eager_loop_can_be_compiled_and_compute_the_same(program):
    loop = program(LOOP)
    found = loop.watched()
    assert (found.kind, found.steps, found.epoch) == ("tape", 24, 8)
    needed = {found.short(f"{file}:{number}") for file, number in found.essential}
    assert {loop.line("train(1)"), loop.line("train(2)")} <= needed
    (one,) = [one for one in candidates(found) if one.key == "eager"]
    assert one.line == loop.line("tape.gradient")
    text = statements.ask(loop.file.read_text("utf-8"), [], one.compiled)
    report, folder = loop.again("tape", 100, {loop.file: text}, always=["compile"])
    assert len(report["marks"]["tape"]) == 24
    assert report["count"]["backward"] <= 2  # in traces only
    total = float(loop.file.with_name("total.txt").read_text("ascii"))
    assert float((folder / "total.txt").read_text("ascii")) == pytest.approx(total, rel=1e-4)


def test_a_fit_that_runs_eagerly_can_be_compiled(program):
    fit = program("""
model = keras.Sequential([keras.layers.Dense(3)])
model.compile("sgd", loss_fn, run_eagerly=True)
model.fit(x, y, batch_size=8, epochs=2, verbose=0)
""")
    found = fit.watched()
    assert (found.kind, found.steps) == ("tape", 16)
    assert [one.key for one in candidates(found)] == ["eager"]
    report, _ = fit.again("tape", 100, always=["eager"])
    assert len(report["marks"]["tape"]) == 16
    assert report["count"]["backward"] <= 2


TRACED = """
x[:, 0] = np.arange(64)
model = keras.Sequential([keras.layers.Dense(3)])
rate = keras.optimizers.SGD(0.1)
@tf.function
def step(a, b, weight):
    with tf.GradientTape() as tape:
        loss = weight * loss_fn(b, model(a, training=True))
    gradients = tape.gradient(loss, model.trainable_variables)
    rate.apply_gradients(zip(gradients, model.trainable_variables))
    return loss
data, tests = (tf.data.Dataset.from_tensor_slices((x, y)).batch(size) for size in (8, 16))
for epoch in range(3):
    for number, (a, b) in enumerate(data):
        open(f"a{epoch}", "a").write(str(int(a[0, 0]) // 8))
        loss = step(a, b, 1.0 / (1 + number))
        right = 0
        for c, d in tests:
            open(f"b{epoch}", "a").write(str(int(c[0, 0]) // 16))
            right += int(tf.reduce_sum(tf.cast(tf.argmax(model(c), 1) == d, tf.int32)))
"""


def test_a_function_that_is_traced_for_each_number_and_the_input_of_training_alone(program):
    loop = program(TRACED)
    found = loop.watched()
    assert (found.kind, found.steps, found.epoch) == ("tf", 24, 8)
    chosen = {one.key: one for one in candidates(found)}
    assert chosen["retracing"].line == loop.line("@tf.function")
    needed = {found.short(f"{file}:{number}") for file, number in found.essential}
    assert loop.line("in enumerate(data)") in needed
    assert loop.line("for c, d") not in needed  # can be left out
    phases = [[8, ["input"]]]
    options = {"always": ["retrace"], "phases": phases, "values": {"epoch": 8}, "warm": 8}
    report, folder = loop.again("tf", 24, **options)
    assert len(report["marks"]["tf"]) == 24  # the evaluation ends, though no input is read
    read = [(folder / f"{name}{epoch}").read_text() for name in "ab" for epoch in range(3)]
    again = "".join(map(str, [*range(4)] * 2))
    assert read == ["01234567", again, "01234567", "0123" * 8, "0123" * 8, "0123" * 7]
    assert report["count"]["trace"] < found.count("trace")


READ = """
def rows():
    open("read", "a").write("|")
    for i in range(8):
        open("read", "a").write(str(i))
        yield x[8 * i : 8 * i + 8], y[8 * i : 8 * i + 8]
kinds = tf.TensorSpec((8, 4)), tf.TensorSpec((8,), tf.int32)
data = tf.data.Dataset.from_generator(rows, output_signature=kinds)
model = keras.Sequential([keras.layers.Dense(3)])
model.compile("sgd", loss_fn)
model.fit(data, epochs=6, verbose=0)
"""


def test_a_fit_reads_whole_epochs_or_nothing(program):
    fit = program(READ)
    found = fit.watched()
    assert (found.steps, found.epoch) == (48, 8)
    (one,) = candidates(found)
    assert (one.key, one.names, one.line) == ("python_input", ["input"], fit.line("from_generator"))
    phases = [[16, ["input"]], [16, []]]
    report, folder = fit.again("tf", 48, phases=phases, values={"epoch": 8}, warm=8)
    assert len(report["marks"]["tf"]) == 48
    whole, once = "|01234567", "|0123"
    assert (folder / "read").read_text() == f"{whole}{once}{whole * 2}{whole}"
    report, folder = fit.again("tf", 6, read=True)  # alone, before the first step
    assert report["notes"]["read"] > 0
    assert (folder / "read").read_text()[:12] == f"{whole}|01"


REPLICAS = """
cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
strategy = tf.distribute.MirroredStrategy(["/cpu:0", "/cpu:1"])
data = tf.data.Dataset.from_tensor_slices((x, y)).batch(8)
each = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="none")
with strategy.scope():
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)])
    model.compile("sgd", loss_fn)
    rate = keras.optimizers.SGD(0.1)
    rate.build(model.trainable_variables)
def replica(a, b):
    with tf.GradientTape() as tape:
        loss = LOSS
    gradients = tape.gradient(loss, model.trainable_variables)
    rate.apply_gradients(zip(gradients, model.trainable_variables))
@tf.function
def step(batch):
    strategy.run(replica, args=batch)
for batch in strategy.experimental_distribute_dataset(data):
    step(batch)
model.fit(data, epochs=1, verbose=0)
"""


@pytest.mark.parametrize(
    ("loss", "wrong"),
    [
        ("tf.reduce_mean(each(b, model(a)))", ["loss_scale"]),
        ("tf.nn.compute_average_loss(each(b, model(a)))", []),
    ],
)
def test_replicas_whose_losses_are_means_of_their_own_examples(program, loss, wrong):
    """The optimizer adds up the gradients of all replicas; Keras divides by their number itself."""
    loop = program(REPLICAS.replace("LOSS", loss))
    found = loop.watched()
    assert (found.kind, found.steps, found.note("replicas")) == ("tf", 8, 2)
    faults = findings.wrong(found)
    assert [one.key for one in faults] == wrong
    assert all(one.line == loop.line("loss = tf") for one in faults)
