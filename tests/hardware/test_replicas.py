"""labkit.replicas with the real TensorFlow, in processes of their own: what TensorFlow was first
asked for stays for a process's life. Starting it takes seconds, so there are two such lives."""

import os
import subprocess
import sys
import textwrap

import pytest


@pytest.fixture
def story(tmp_path):
    def story(*parts, **environment):
        opening = """
            import os, sys, threading
            import pytest
            import labkit
            from labkit import LabError
            from labkit.hardware.devices import import_tensorflow

            def refused(*arguments, **keywords):
                with pytest.raises(LabError) as fault:
                    labkit.replicas(*arguments, **keywords)
                return str(fault.value)
        """
        # A file and not -c: TensorFlow reads the source of the functions that it compiles.
        path = tmp_path / "story.py"
        path.write_text("".join(map(textwrap.dedent, (opening, *parts))))
        paths = {"CUDA_VISIBLE_DEVICES": "-1", "PYTHONPATH": os.pathsep.join(sys.path)}
        done = subprocess.run(
            [sys.executable, path], env={**os.environ, **paths, **environment},
            capture_output=True, text=True, timeout=240,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    return story


LOGICAL_CPUS = """
        sys.ps1 = ">>> "  # as in a notebook, where TensorFlow turns its log to INFO
        two = labkit.replicas(2)
        assert two.placement == "cpus"
        assert two.devices == ("/cpu:0", "/cpu:1")
        assert two.names == ("logical CPU 0", "logical CPU 1")
        assert two.reductions()[0] == "reduction to one device"
        many = labkit.hardware().cores.usable > 1
        assert two.describe().startswith("2 logical CPUs " + ("with one core each" if many else ""))
        assert ("up to 2 times" if many else "correctness, not speed") in two.expectation
        assert "recorded" in two._repr_mimebundle_()["text/html"]
        assert two == labkit.replicas()

        for n in (0, True, 2.0, "2"):
            message = refused(n)
            assert message.startswith("n must be a whole number") and repr(n) in message
        assert "got 1000" in refused(1000)
        for names in (["cpu:-1"], ["cpu:0", "/cpu:0"], ["cpu:0", "gpu:0"], [], 3):
            assert "different devices" in refused(devices=names)
        assert "no GPU here" in refused(2, "gpu")
        assert "n=3" in refused(3, ["cpu:0", "cpu:1"])

        # None of it has initialised TensorFlow: two can still become four.
        four = labkit.replicas(4)
        assert "correctness, not speed" in labkit.replicas(8).expectation or many
        chosen = labkit.replicas(devices=["/cpu:3", "CPU:1"])
        assert chosen.devices == ("/cpu:3", "/cpu:1")
        one = labkit.replicas(devices=[two.devices[0]])
        assert (one.count, one.reductions()) == (1, ("none",))
        assert one.describe() == "1 logical CPU with one core"

        tf = import_tensorflow()

        def added(strategy):
            def one():
                return tf.distribute.get_replica_context().all_reduce("sum", tf.ones([2]))

            @tf.function(autograph=False)
            def run():
                return strategy.run(one)

            return [v.numpy().tolist() for v in strategy.experimental_local_results(run())]

        # Groups of two, four and two again in one process: collectives would fail.
        for group in (two, four, chosen, two):
            for reduction in (None, *group.reductions()):
                strategy = group.strategy(reduction)
                assert isinstance(strategy, tf.distribute.MirroredStrategy)
                assert added(strategy) == [[float(group.count)] * 2] * group.count
        assert isinstance(one.strategy(), tf.distribute.OneDeviceStrategy)
        assert added(one.strategy()) == [[1.0, 1.0]]

        # Now TensorFlow runs: fewer still work, more do not.
        assert labkit.replicas(3).devices == ("/cpu:0", "/cpu:1", "/cpu:2")
        message = refused(9) if labkit.hardware().cores.usable > 2 else "Restart"
        assert "Restart" in message
        for asked in ("nccl", "none", "ring"):
            with pytest.raises(LabError, match="'hierarchical copy'"):
                two.strategy(asked)
    """

# Two independent operations wait for each other: they meet only where both run at once.
ONE_CORE_EACH = """
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
        assert labkit.hardware().cores.usable == 1 or at_once(two.strategy(), 1) == 2
        # The test sees threads: TensorFlow's own strategy for one device uses both.
        assert at_once(tf.distribute.OneDeviceStrategy("/cpu:0"), 2) == 2
    """

# A step on one device may be whatever TensorFlow allows.
STEPS = """
        import keras, numpy as np

        strategy = labkit.replicas(1).strategy()
        plain_strategy = tf.distribute.OneDeviceStrategy("/cpu:0")
        images, labels = np.ones([64, 4], "float32"), np.arange(64) % 3
        losses = []
        for chosen in (strategy, plain_strategy):
            keras.utils.set_random_seed(1)
            with chosen.scope():  # not built: its variables are made in the first step
                model = keras.Sequential([keras.layers.Dense(8), keras.layers.Dropout(0.5),
                                          keras.layers.BatchNormalization(), keras.layers.Dense(3)])
                model.compile("adam", "sparse_categorical_crossentropy")
            losses.append(model.fit(images, labels, 16, epochs=2, verbose=0).history["loss"])
        assert losses[0] == losses[1]

        data = tf.data.Dataset.range(6).map(lambda i: i * 2, num_parallel_calls=2).prefetch(1)

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
    """


def test_logical_cpus(story):
    noise = story(LOGICAL_CPUS, ONE_CORE_EACH, STEPS)
    assert "INFO" not in noise
    assert "MirroredStrategy" not in noise


def test_after_tensorflow_is_initialised_and_what_each_device_did(story):
    story("""
        from labkit.hardware import work_by_device

        tf = import_tensorflow()
        cpu = tf.config.list_physical_devices("CPU")[0]
        three = [tf.config.LogicalDeviceConfiguration()] * 3
        tf.config.set_logical_device_configuration(cpu, three)
        x = tf.random.normal([8, 8])
        two = labkit.replicas(2)
        assert two.devices == ("/cpu:0", "/cpu:1")
        assert "sharing" in two.describe()  # its threads could not be set any more
        message = refused(4)
        assert "already running with 3" in message and "labkit.replicas(3)" in message

        @tf.function
        def forward():
            return tf.reduce_sum(tf.nn.relu(x @ x))

        forward()  # a second call must be counted as well
        for function in (forward, lambda: tf.reduce_sum(tf.nn.relu(x @ x))):
            work = work_by_device(function)
            assert work.operations == {"/cpu:0": 3, "/cpu:1": 0, "/cpu:2": 0}
            assert work.products == {"/cpu:0": 1, "/cpu:1": 0, "/cpu:2": 0}
            assert work.busy == ("/cpu:0",)
        assert "measured on 3 logical devices" in str(work)

        strategy = two.strategy()
        with strategy.scope():
            weights = tf.Variable(x)

        @tf.function
        def step():
            def one():
                with tf.GradientTape() as tape:
                    loss = tf.reduce_sum(x @ weights)
                gradient = tape.gradient(loss, weights)
                here = tf.distribute.get_replica_context()
                weights.assign_sub(here.all_reduce("sum", gradient))
                return loss
            return strategy.run(one)

        work = work_by_device(step)
        assert work.busy == ("/cpu:0", "/cpu:1")
        assert list(work.products.values()) == [2, 2, 0]
        with pytest.raises(ZeroDivisionError):
            work_by_device(lambda: 1 / 0)
        assert work_by_device(step).busy == ("/cpu:0", "/cpu:1")
    """)


def test_without_tensorflow_the_message_says_how_to_get_it(story, tmp_path):
    broken = tmp_path / "tensorflow"
    broken.mkdir()
    (broken / "__init__.py").write_text("raise ImportError('no TensorFlow for this test')")
    program = """
        message = refused(2)
        assert "no TensorFlow for this test" in message
        assert "make lab" in message
    """
    story(program, PYTHONPATH=os.pathsep.join([str(tmp_path), *sys.path]))
