"""labkit.replicas with the real TensorFlow. What it was first asked for stays for a process's life,
so each story below has a process of its own."""

import os
import subprocess
import sys
import textwrap

import pytest


@pytest.fixture
def story(tmp_path):
    def story(program, **environment):
        opening = """
            import os, sys, threading
            import pytest
            import labkit
            from labkit import LabError, plain

            def refused(*arguments, **keywords):
                with pytest.raises(LabError) as fault:
                    labkit.replicas(*arguments, **keywords)
                return str(fault.value)
        """
        # A file and not -c: TensorFlow reads the source of the functions that it compiles.
        path = tmp_path / "story.py"
        path.write_text(textwrap.dedent(opening) + textwrap.dedent(program))
        paths = {"CUDA_VISIBLE_DEVICES": "-1", "PYTHONPATH": os.pathsep.join(sys.path)}
        done = subprocess.run(
            [sys.executable, path], env={**os.environ, **paths, **environment},
            capture_output=True, text=True, timeout=240,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    return story


def test_logical_cpus(story):
    noise = story("""
        sys.ps1 = ">>> "  # as in a notebook, where TensorFlow turns its log to INFO
        two = labkit.replicas(2)
        assert two.placement == "cpus"
        assert two.devices == ("/cpu:0", "/cpu:1")
        assert two.names == ("logical CPU 0", "logical CPU 1")
        assert two.reduction == "reduction to one device"
        many = labkit.hardware().cores.usable > 1
        assert two.describe().startswith("2 logical CPUs " + ("with one core each" if many else ""))
        assert ("up to 2 times" if many else "correctness, not speed") in two.expectation
        assert "recorded" in two._repr_mimebundle_()["text/html"]
        assert plain.load(plain.dump(two)) == two
        assert two == labkit.replicas()

        for n in (0, True, 2.0, "2"):
            message = refused(n)
            assert message.startswith("n must be a whole number") and repr(n) in message
        assert "got 1000" in refused(1000)
        for names in (["tpu:0"], ["cpu:-1"], ["cpu:0", "/cpu:0"], ["cpu:0", "gpu:0"], [], 3):
            assert "different devices" in refused(devices=names)
        assert "no GPU here" in refused(2, "gpu")
        assert "'gpu:7'" in refused(devices="gpu:7")
        assert "n=3" in refused(3, ["cpu:0", "cpu:1"])

        # None of it has initialised TensorFlow: two can still become four.
        four = labkit.replicas(4)
        assert "correctness, not speed" in labkit.replicas(8).expectation or many
        chosen = labkit.replicas(devices=["/cpu:3", "CPU:1"])
        assert chosen.devices == ("/cpu:3", "/cpu:1")
        one = labkit.replicas(devices=[two.devices[0]])
        assert (one.count, one.reduction) == (1, "none")
        assert one.describe() == "1 logical CPU"
        assert "two independent operations may run at once" in one.expectation

        from labkit.hardware.devices import import_tensorflow
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
    """)
    assert "INFO" not in noise
    assert "MirroredStrategy" not in noise


def test_an_operation_has_one_thread_and_two_replicas_run_at_once(story):
    """Two operations wait for each other: they meet only where both run at once."""
    story("""
        from labkit.hardware.devices import import_tensorflow

        two = labkit.replicas(2)
        tf = import_tensorflow()
        assert tf.config.threading.get_intra_op_parallelism_threads() == 1
        barrier = threading.Barrier(2)

        def meet(x):
            barrier.wait(timeout=30)  # with one thread for both replicas it would break
            return x

        strategy = two.strategy()

        @tf.function
        def run(x):
            def step(x):
                return tf.numpy_function(meet, [x], tf.float32, stateful=False)

            return strategy.run(step, args=(x,))

        results = strategy.experimental_local_results(run(tf.constant(1.0)))
        assert [float(result) for result in results] == [1, 1]
    """)


def test_after_tensorflow_is_initialised_and_what_each_device_did(story):
    story("""
        from labkit.hardware import work_by_device
        from labkit.hardware.devices import import_tensorflow

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
            assert [use.device for use in work.devices] == ["/cpu:0", "/cpu:1", "/cpu:2"]
            assert work.busy == ("/cpu:0",)
            assert (work.devices[0].operations, work.devices[0].products) == (3, 1)
            assert (work.devices[2].operations, work.devices[2].products) == (0, 0)
        assert work.kind.name == "measured"
        assert plain.load(plain.dump(work)) == work

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
        assert [use.products for use in work.devices] == [2, 2, 0]
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
