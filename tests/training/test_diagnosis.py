"""diagnose: each defect in the spellings that students use, and correct programs left alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from labkit.kinds import LabError
from labkit.training import diagnose
from labkit.training.diagnosis import DEFECTS, KERAS
from tests.exercises import torch_answers

CLEAN = """
import time
import keras
import tensorflow as tf

BATCH = 64
strategy = tf.distribute.MirroredStrategy()
GLOBAL_BATCH = BATCH * strategy.num_replicas_in_sync
(x_train, y_train), (x_test, y_test) = keras.datasets.mnist.load_data()
x_train = x_train.astype("float32") / 255
x_test = x_test.astype("float32") / 255


def build():
    model = keras.Sequential([keras.Input((28, 28)), keras.layers.Flatten(), keras.layers.Dense(10)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer="adam", loss=loss, metrics=["accuracy"])
    return model

train = tf.data.Dataset.from_tensor_slices((x_train, y_train))
train = train.cache().shuffle(len(y_train)).batch(GLOBAL_BATCH).prefetch(tf.data.AUTOTUNE)
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
"""

LOOP = """
with strategy.scope():
    model = keras.Sequential([keras.Input((9,)), keras.layers.Dense(10)])
    optimizer = keras.optimizers.SGD(0.1)
    loss_object = keras.losses.SparseCategoricalCrossentropy(from_logits=True{reduction})

GLOBAL_BATCH = 64 * strategy.num_replicas_in_sync

def step(images, labels):
    with tf.GradientTape() as tape:
        losses = loss_object(labels, model(images, training=True))
        loss = {loss}
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables))
    return loss

@tf.function
def train_step(images, labels):
    return strategy.reduce("SUM", strategy.run(step, args=(images, labels)), axis=None)
"""

IMPORTS = "import time, keras\nimport tensorflow as tf\n"
BUILD = "model = keras.Sequential([keras.Input((9,)), keras.layers.Dense(1)])\n"
COMPILE = "model.compile('sgd', 'mse')\n"
START, STOP = "start = time.perf_counter()\n", "print(time.perf_counter() - start)\n"
WARM = "model.fit(x, y)\n"
TWO = (
    "s = tf.distribute.MirroredStrategy()\nBATCH = 32\ndef build():\n    "
    + BUILD
    + "    model.compile('sgd', 'mse')\n    return model\n"
    "one = build()\nwith s.scope():\n    two = build()\n"
)
LOAD = "(x, y), test = keras.datasets.mnist.load_data()\n"
DATA = "ds = tf.data.Dataset.from_tensor_slices((x, y))"


def classifier(last, loss):
    layers = f"[keras.Input((9,)), {last}]"
    return f"model = keras.Sequential({layers})\nmodel.compile(optimizer='adam', loss={loss})\n"


def loop(loss, reduction=", reduction=None"):
    return LOOP.format(loss=loss, reduction=reduction)


CLIPPED = """    gradients = tf.distribute.get_replica_context().all_reduce("sum", gradients)
    gradients, _ = tf.clip_by_global_norm(gradients, 1.0)
    gradients = [one / strategy.num_replicas_in_sync for one in gradients]
    optimizer"""
LOGITS, SOFTMAX = "keras.layers.Dense(10)", "keras.layers.Dense(10, activation='softmax')"
FROM_LOGITS = "keras.losses.CategoricalCrossentropy(from_logits=True)"

FUNCTIONAL = "x = keras.Input((9,))\ny = keras.layers.Dense(8, 'sigmoid')(x)\ny = keras.layers.Dense(10)(y)\n"

WRONG = [
    ("clock", WARM + START.replace("perf_counter", "process_time") + WARM + "t = time.process_time()\nprint(t - start)"),
    ("clock", WARM + "start = time.time()\n" + WARM + "print(time.time() - start)"),
    ("first epoch", BUILD + COMPILE + START + WARM + STOP),
    ("first epoch", "def run():\n    " + BUILD + "    " + COMPILE + "    start = time.perf_counter()\n    model.fit(x)\n    return time.perf_counter() - start"),
    ("first epoch", "@tf.function\ndef step(x):\n    return x\n" + START + "step(x)\n" + STOP),
    ("timed evaluation", WARM + START + WARM + "model.evaluate(x, y)\n" + STOP),
    ("timed evaluation", WARM + START + "model.fit(x, y, validation_split=0.1)\n" + STOP),
    ("loss", classifier(LOGITS, "'categorical_crossentropy'")),
    ("loss", classifier(SOFTMAX, FROM_LOGITS)),
    ("loss", classifier(LOGITS + ", keras.layers.Softmax()", FROM_LOGITS)),
    ("first epoch", BUILD + COMPILE + START + "for a, b in ds:\n    model.train_on_batch(a, b)\n" + STOP),
    ("first epoch", "def show(m):\n    m.summary()\n" + BUILD + COMPILE + "show(model)\n" + START + WARM + STOP),
    ("batch", TWO + "one.fit(x, y, batch_size=BATCH)\ntwo.fit(x, y, batch_size=2 * BATCH)"),
    ("batch", TWO + DATA + ".shuffle(5000).batch(64)\none.fit(x, y)\ntwo.fit(ds)"),
    ("shuffle", TWO + DATA + ".cache().batch(32)\none.fit(x, y)\ntwo.fit(ds)"),
    ("shuffle", TWO + DATA + ".cache().batch(32)\none.fit(ds)\ntwo.fit(x, y)"),
    ("batch", TWO + "one.fit(x, y)\ntwo.fit(x, y, batch_size=64)"),
    ("shuffle", DATA + ".batch(32).shuffle(5000)"),
    ("shuffle", DATA + ".shuffle(10).batch(32)"),
    ("float64", LOAD + "x = x / 255.0\nmodel.fit(x, y)"),
    ("unscaled loss", loop("losses", "")),
    ("unscaled loss", loop("tf.reduce_mean(losses)")),
    ("unscaled loss", loop("tf.reduce_mean(losses)").replace("run(step, ", "run(tf.function(step), ")),
    ("unscaled loss", loop("tf.reduce_mean(losses)").replace("    optimizer", CLIPPED)),
]  # fmt: skip

HAND = """import torch
import torch.distributed as dist

for one in [*model.parameters(), *model.buffers()]:
    dist.broadcast(one.data, 0)
for x, y in loader:
    optimizer.zero_grad()
    loss(model(x), y).backward()
    for one in model.parameters():
        dist.all_reduce(one.grad)
        one.grad /= dist.get_world_size()
    optimizer.step()
"""
REPLICA = """import torch
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

sampler = DistributedSampler(dataset)
replica = DistributedDataParallel(model)
for epoch in range(3):
    sampler.set_epoch(epoch)
    for x, y in DataLoader(dataset, sampler=sampler):
        optimizer.zero_grad()
        loss(replica(x), y).backward()
        optimizer.step()
"""
BUCKETS = HAND.replace(
    "        dist.all_reduce(one.grad)\n        one.grad /= dist.get_world_size()\n",
    """        bucket.append(one.grad)
        if sum(each.nbytes for each in bucket) > 2**20:
            flushed += [dist.all_reduce(each.div_(ranks)) for each in bucket]
            bucket = []
    flushed += [dist.all_reduce(each.div_(ranks)) for each in bucket]
""",
)
HOOKS = "import torch\nfor one in model.parameters():\n    if one.requires_grad:\n        one.register_post_accumulate_grad_hook(send)\n"
ZERO = """import torch
mine = [one for number, one in enumerate(model.parameters()) if number % ranks == rank]
optimizer = torch.optim.AdamW(mine)
optimizer.step()
for number, one in enumerate(model.parameters()):
    dist.broadcast(one.data, number % ranks)
"""
LOSS = "loss(replica(x), y).backward()"
TORCH = [
    ("no broadcast", HAND.replace("broadcast(one.data, 0)", "barrier()")),
    ("no broadcast", HAND.replace("[*model.parameters(), *model.buffers()]", "model.buffers()")),
    ("buffers", HAND.replace("[*model.parameters(), *model.buffers()]", "model.parameters()")),
    ("divided twice", REPLICA.replace(LOSS, "(loss(replica(x), y) / world_size).backward()")),
    ("divided twice", HAND.replace("(one.grad)", "(one.grad, op=dist.ReduceOp.AVG)")),
    ("not divided", HAND.replace("        one.grad /= dist.get_world_size()\n", "")),
    ("mean of means", "import torch\nloss = total / len(y)\ndist.all_reduce(loss)\nloss /= dist.get_world_size()\n"),
    ("no zero_grad", REPLICA.replace("        optimizer.zero_grad()\n", "")),
    ("no zero_grad", HAND.replace("    optimizer.zero_grad()\n", "")),
    ("bucket", BUCKETS.replace("    flushed += [dist.all_reduce(each.div_(ranks)) for each in bucket]\n    opt", "    opt")),
    ("bucket", "import torch\nfor bucket in buckets[1:]:\n    send(bucket)\n"),
    ("frozen hook", HOOKS.replace("if one.requires_grad", "if True")),
    ("tied weights", HOOKS.replace("parameters()", "named_parameters(remove_duplicate=False)")),
    ("no wait", HAND.replace("(one.grad)", "(one.grad, async_op=True)")),
    ("no wait", "import torch\nhandle = dist.broadcast(x, 0, async_op=True)\nprint(x)\n"),
    ("rank 0 alone", "import torch\nif rank == 0:\n    torch.save(model.weight.full_tensor(), 'w')\n"),
    ("rank 0 alone", "import torch\nif dist.get_rank() == 0:\n    dcp.save(state, checkpoint_id='w')\n"),
    ("rank 0 alone", "import torch\ndef save():\n    if rank != 0:\n        return\n    dist.all_gather(parts, mine)\n"),
    ("no set_epoch", REPLICA.replace("    sampler.set_epoch(epoch)\n", "")),
    ("no_sync", REPLICA.replace(LOSS, f"with replica.no_sync():\n            {LOSS}")),
    ("whole state", ZERO.replace("AdamW(mine)", "AdamW(model.parameters())")),
    ("kept gathered", "import torch\nfully_shard(model, reshard_after_forward=False)\n"),
    ("kept gathered", "import torch\ndef forward(ctx, x, shard):\n    whole = all_gathered(shard)\n    ctx.save_for_backward(x, whole)\n"),
]  # fmt: skip

RIGHT = [
    CLEAN, HAND, REPLICA, BUCKETS, HOOKS, ZERO,
    *(program for programs in torch_answers.RIGHT.values() for program in programs),
    HAND.replace("one.grad /= dist.get_world_size()", "pass").replace("(one.grad)", "(one.grad, op=dist.ReduceOp.AVG)"),
    HAND.replace("(one.grad)", "(one.grad, async_op=True).wait()"),
    REPLICA.replace(LOSS, f"with nullcontext() if last else replica.no_sync():\n            {LOSS}"),
    REPLICA.replace(LOSS, f"with replica.no_sync():\n            {LOSS}\n        {LOSS}"),
    "import torch\nwhole = model.weight.full_tensor()\nif rank == 0:\n    torch.save(whole, 'w')\n",
    "import torch\ntotal = torch.tensor([loss, len(y)])\ndist.all_reduce(total)\nmean = total[0] / total[1]\n",
    START + WARM + STOP,  # the model may be warm: it was made elsewhere
    BUILD + COMPILE + WARM + START + WARM + STOP + "model.evaluate(x, y)",
    BUILD + COMPILE + "for _ in range(9):\n    " + START + "    model.fit(x)\n    " + STOP,
    "@tf.function\ndef step(x):\n    return x\nstep(x)\n" + START + "step(x)\n" + STOP,
    classifier(LOGITS, FROM_LOGITS),
    classifier(SOFTMAX, "'categorical_crossentropy'"),
    FUNCTIONAL + "y = keras.layers.Softmax()(y)\nm = keras.Model(x, y)\nm.compile('adam', 'categorical_crossentropy')",
    classifier(LOGITS, "keras.losses.CategoricalCrossentropy(from_logits=flag)"),
    TWO + "G = BATCH * s.num_replicas_in_sync\n" + DATA + ".shuffle(5000).batch(G)\ntwo.fit(ds)",
    TWO + "# weak scaling\none.fit(x, y)\ntwo.fit(x, y, batch_size=BATCH * s.num_replicas_in_sync)",
    TWO + "one.fit(x, y, batch_size=64)\none.fit(x, y)\ntwo.fit(x, y, batch_size=32)",
    BUILD + "other = keras.Sequential()\nmodel.fit(x, y)\nother.fit(x, y, batch_size=64)",
    DATA + ".batch(1000).map(f).unbatch().shuffle(5000).batch(32)",
    LOAD + "x = x.astype('float32') / 255.0\nmodel.fit(x, y)",
    loop("tf.nn.compute_average_loss(losses, global_batch_size=GLOBAL_BATCH)"),
    loop("tf.reduce_sum(losses) / GLOBAL_BATCH"),
    loop("tf.reduce_sum(losses) / GLOBAL_BATCH").replace("    optimizer", CLIPPED),
    loop("tf.reduce_mean(losses)").replace(
        "    optimizer", "    gradients = [one / strategy.num_replicas_in_sync for one in gradients]\n    optimizer"
    ),
    "def warm_up(m):\n    m.fit(x, y)\n" + BUILD + COMPILE + "warm_up(model)\n" + START + WARM + STOP,
    "def warm_up():\n    model.fit(x, y)\n" + BUILD + COMPILE + "warm_up()\n" + START + WARM + STOP,
    "from mine import warm_up\n" + BUILD + COMPILE + "warm_up(model)\n" + START + WARM + STOP,
    "with s.scope():\n    a = build()\n    b = build()\na.fit(x, y, batch_size=32)\nb.fit(x, y, batch_size=512)",
    # Programs of any kind must not trip it.
    "def f(): return f()\nf()",
    "batch = (2 *\n    batch)\nds = ds.batch(batch)\nm.fit(x, y, batch_size=batch)",
    "strategy.run()\nstrategy.scope()\ntf.function()\nx = x\nx = x + 1\nds = ds.batch(x)",
]  # fmt: skip
NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
TAKE_HOME = sorted((NOTEBOOKS / "programs").glob("*.py"))


@pytest.mark.parametrize(("defect", "code"), [*WRONG, *TORCH])
def test_a_defect_is_found_and_nothing_else(defect, code):
    assert set(diagnose(IMPORTS + code).names) == {defect}


def test_every_defect_is_tested():
    assert {defect for defect, _ in (*WRONG, *TORCH)} == set(DEFECTS)


@pytest.mark.parametrize("code", RIGHT)
def test_a_correct_program_is_left_alone(code):
    assert diagnose(IMPORTS + code).names == ()


def test_the_programs_of_the_course_are_left_alone():
    assert len(TAKE_HOME) >= 6
    for file in TAKE_HOME:
        assert diagnose(file.read_text(encoding="utf-8")).names == (), file


def test_the_benchmark_of_the_lecture_has_the_defects_that_it_teaches():
    text = (NOTEBOOKS / "14_what_went_wrong.ipynb").read_text(encoding="utf-8")
    cells = ["".join(cell["source"]) for cell in json.loads(text)["cells"]]
    program = [cell.partition("\n")[2] for cell in cells if cell.startswith("%%writefile")]
    assert set(diagnose(program).names) == {*KERAS} - {"unscaled loss"}


def test_a_place_is_a_line_and_the_same_defect_is_one_finding():
    code = LOAD + "\nx = x / 255.0\n" + LOAD + "x = x / 255.0\n"
    finding = next(iter(diagnose(code)))
    assert (finding.where, finding.wrote) == ("line 3, line 5", "x = x / 255.0")


def my_benchmark(model, x):
    import time

    start = time.process_time()
    model.fit(x)
    return time.process_time() - start


def test_a_function_is_read_and_not_run():
    finding = next(iter(diagnose(my_benchmark)))
    assert (finding.defect, finding.wrote) == ("clock", "start = time.process_time()")


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"code": "x = 1\ny = ("}, "line 2"),
        ({"code": len}, "len"),
        ({"code": "my_train.py"}, "name of a file"),
        ({}, "code"),
        ({"code": "def my_program(model):\n    ..."}, "only a"),
        ({"model": 3}, "compiled"),
    ],
)
def test_what_cannot_be_read_is_an_error_that_names_it(given, says):
    with pytest.raises(LabError, match=says):
        diagnose(**given)


def test_a_model_whose_layers_are_unknown_is_an_error_that_names_it(four):
    import keras

    model = keras.Sequential(name="empty")  # like a subclass of keras.Model with weights of its own
    model.compile("adam", "mse")
    with pytest.raises(LabError, match="layers"):
        diagnose(model=model)


def test_the_loss_of_a_model_must_fit_its_last_layer(four):
    import keras

    Dense, logits = keras.layers.Dense, keras.losses.CategoricalCrossentropy(from_logits=True)
    softmax = Dense(3, activation="softmax")
    for loss, layers, names in [
        ("categorical_crossentropy", [Dense(3)], ("loss",)),
        (keras.losses.SparseCategoricalCrossentropy(), [Dense(3)], ("loss",)),
        (keras.losses.categorical_crossentropy, [Dense(3)], ("loss",)),
        (logits, [softmax], ("loss",)),
        (logits, [Dense(3), keras.layers.Softmax()], ("loss",)),
        (logits, [Dense(3)], ()),
        ("mse", [Dense(3)], ()),
        ("categorical_crossentropy", [softmax], ()),
    ]:
        model = keras.Sequential([keras.Input((4,)), *layers])
        model.compile("adam", loss)
        assert diagnose(model=model).names == names


def test_of_other_frameworks_it_says_that_it_knows_no_mistakes():
    assert "none of horovod" in repr(diagnose("import torch\nfrom horovod import torch as hvd\n"))
    assert "horovod" not in repr(diagnose("import tensorflow as tf  # not horovod\n"))
