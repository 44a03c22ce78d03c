"""Replicas with the real TensorFlow, in a process of its own: what it was first asked for stays for
a process's life."""

import subprocess
import sys
import textwrap

import pytest

import labkit
from labkit.kinds import LabError
from tests import forked

PARTS = (
    # Strategies over logical CPUs: the sums are right, also for groups of several sizes.
    """
    import threading
    import labkit
    from labkit.hardware.devices import import_tensorflow

    two, four = labkit.replicas(2), labkit.replicas(4)
    one = labkit.replicas(devices=[two.devices[0]])
    many = labkit.hardware().cores.usable > 1
    tf = import_tensorflow()

    def added(strategy):
        def one():
            return tf.distribute.get_replica_context().all_reduce("sum", tf.ones([2]))

        @tf.function(autograph=False)
        def run():
            return strategy.run(one)

        return [v.numpy().tolist() for v in strategy.experimental_local_results(run())]

    # Groups of two, four and two again in one process: collective operations would fail.
    for group in (two, four, two):
        for reduction in group.reductions():
            strategy = group.strategy(reduction)
            assert isinstance(strategy, tf.distribute.MirroredStrategy)
            assert added(strategy) == [[float(group.count)] * 2] * group.count
    assert added(two.strategy("collective operations")) == [[2.0, 2.0]] * 2
    assert isinstance(one.strategy(), tf.distribute.OneDeviceStrategy)
    assert added(one.strategy()) == [[1.0, 1.0]]
    """,
    # One core each: two operations that wait for each other meet only where both run at once.
    """
    def at_once(strategy, operations, seconds=60):
        barrier = threading.Barrier(2)

        def meet(x):
            try:
                barrier.wait(timeout=seconds)
            except threading.BrokenBarrierError:
                return x * 0
            return x

        def step(x):
            calls = [tf.numpy_function(meet, [x], tf.float32, stateful=False)
                     for _ in range(operations)]
            return tf.add_n(calls)

        @tf.function
        def run(x):
            return strategy.run(step, args=(x,))

        results = strategy.experimental_local_results(run(tf.constant(1.0)))
        return sum(float(result) for result in results)

    assert at_once(one.strategy(), 2, seconds=1) == 0
    assert not many or at_once(two.strategy(), 1) == 2
    # The test sees threads: TensorFlow's own strategy for one device uses both.
    assert at_once(tf.distribute.OneDeviceStrategy("/cpu:0"), 2) == 2
    """,
    # A step on one device may be whatever TensorFlow allows.
    """
    data = tf.data.Dataset.range(6).map(lambda i: i * 2, num_parallel_calls=2).prefetch(1)
    strategy = one.strategy()

    @tf.function
    def total(batches):
        added = tf.constant(0, tf.int64)
        for i in tf.range(6):
            def step(batch):
                for _ in tf.range(2):  # AutoGraph sees the step, too
                    batch += tf.cast(batch > 100, tf.int64)
                return batch
            added += strategy.run(step, args=(next(batches),))
        return added

    assert int(total(iter(strategy.experimental_distribute_dataset(data)))) == 30
    assert float(strategy.run(tf.function(lambda: tf.constant(2.0)))) == 2.0
    """,
    # Who deletes an iterator of a replica does not wait for the thread that would tune it.
    """
    tuned, begin = [], tf.data.Dataset.__iter__

    def noted(dataset):
        tuned.append(dataset.options().autotune.enabled)
        return begin(dataset)

    tf.data.Dataset.__iter__ = noted
    iter(tf.distribute.MirroredStrategy(two.devices).experimental_distribute_dataset(data.batch(2)))
    assert tuned == [False, False]
    """,
)


def test_strategies_on_logical_cpus(tmp_path):
    story = tmp_path / "story.py"
    story.write_text("".join(map(textwrap.dedent, PARTS)))
    done = forked.run(story, CUDA_VISIBLE_DEVICES="-1")
    assert done.code == 0, done.out + done.err


def test_an_import_after_labkit_hides_tensorflows_information_and_nothing_else(tmp_path):
    (tmp_path / "tensorflow.py").write_text('import os\nos.write(2, b"I0000 on\\nE0000 no\\n")')
    level = "import labkit, logging, tensorflow; exit(logging.getLogger('tensorflow').level)"
    done = subprocess.run([sys.executable, "-c", level], cwd=tmp_path, capture_output=True)
    assert (done.returncode, done.stderr) == (30, b"E0000 no\n")


def test_without_tensorflow_the_message_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorflow", None)
    with pytest.raises(LabError, match=r"TensorFlow cannot be loaded here.*make lab"):
        labkit.replicas(2)
