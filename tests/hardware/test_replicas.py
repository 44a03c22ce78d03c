"""labkit.replicas with the real TensorFlow. What it was first asked for stays for a process's life,
so each story below has a process of its own."""

import os
import subprocess
import sys
import textwrap

import pytest


@pytest.fixture
def story(tmp_path):
    return lambda program, **environment: _run(tmp_path / "story.py", program, environment)


def _run(path, program, environment):
    opening = """
        import os, sys
        import pytest
        import labkit
        from labkit import LabError, plain

        def refused(*arguments, **keywords):
            with pytest.raises(LabError) as fault:
                labkit.replicas(*arguments, **keywords)
            return str(fault.value)
    """
    # A file and not -c: TensorFlow reads the source of the functions that it compiles.
    path.write_text(textwrap.dedent(opening) + textwrap.dedent(program))
    done = subprocess.run(
        [sys.executable, path],
        env={**os.environ, "CUDA_VISIBLE_DEVICES": "-1", "PYTHONPATH": os.pathsep.join(sys.path)}
        | environment,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_before_tensorflow_is_initialised(story):
    noise = story("""
        # TensorFlow turns its log to INFO when somebody is at the keyboard, as in a notebook.
        sys.ps1 = ">>> "

        two = labkit.replicas(2)
        assert two.placement == "cpus"
        assert two.devices == ("/cpu:0", "/cpu:1")
        assert two.names == ("logical CPU 0", "logical CPU 1")
        assert two.reduction == "reduction to one device"
        many = os.cpu_count() > 1
        assert two.describe().startswith("2 logical CPUs " + ("with one core each" if many else ""))
        assert ("up to 2 times" if many else "correctness, not speed") in two.expectation
        assert "recorded" in two.expectation
        assert plain.load(plain.dump(two)) == two
        assert repr(two) == repr(labkit.replicas())
        assert "recorded" in two._repr_mimebundle_()["text/html"]
        words = labkit.hardware.words
        assert "correctness, not speed" in words.cpu_expectation(8, cores=2, alone=True)
        threads = labkit.hardware.tensorflow.import_tensorflow().config.threading
        assert threads.get_intra_op_parallelism_threads() == 1
        before = threads.get_inter_op_parallelism_threads()
        assert labkit.replicas(1).describe() == "1 logical CPU with one core"
        assert threads.get_inter_op_parallelism_threads() == before

        for n in (0, -1):
            assert f"{n} replicas" in refused(n)
        for n in (True, 2.0, "2", [2]):
            assert repr(n) in refused(n)
        for n in (1000, 10**9, 10**30):
            assert f"{n:,} replicas" in refused(n)
            assert "logical CPUs" in refused(n)
        for name in ("tpu:0", "cuda:0", "cpu", "cpu:-1", "gpu:x"):
            assert repr(name) in refused(devices=[name])
            assert "cpu:0 to cpu:" in refused(devices=[name])
        assert "'tpu:0'" in refused(devices="tpu:0")
        assert "sees no GPU" in refused(2, "gpu")
        assert "gpu:7" in refused(devices=["gpu:7"])
        assert "twice" in refused(devices=["cpu:0", "/cpu:0"])
        assert "mixes" in refused(devices=["cpu:0", "gpu:0"])
        assert "empty" in refused(devices=[])
        assert "3 replicas" in refused(3, ["cpu:0", "cpu:1"])
        assert "cpu:999" in refused(devices=["cpu:999"])

        # None of it has initialised TensorFlow: two can still become four.
        four = labkit.replicas(4)
        chosen = labkit.replicas(devices=["/cpu:3", "/device:CPU:1"])
        assert chosen.devices == ("/cpu:3", "/cpu:1")
        one = labkit.replicas(1)
        assert (one.count, one.reduction) == (1, "none")

        tf = labkit.hardware.tensorflow.import_tensorflow()
        assert os.environ["TF_CPP_MIN_LOG_LEVEL"] == "2"
        assert os.environ["TF_ENABLE_ONEDNN_OPTS"] == "0"

        def added(strategy):
            def one():
                return tf.distribute.get_replica_context().all_reduce("sum", tf.ones([2]))

            @tf.function(autograph=False)
            def run():
                return strategy.run(one)

            return [v.numpy().tolist() for v in strategy.experimental_local_results(run())]

        # Groups of two, four and two again in one process: collectives would not survive it.
        for group in (two, four, chosen, two):
            for reduction in (None, *group.reductions()):
                strategy = group.strategy(reduction)
                assert isinstance(strategy, tf.distribute.MirroredStrategy)
                assert added(strategy) == [[float(group.count)] * 2] * group.count
        assert isinstance(one.strategy(), tf.distribute.OneDeviceStrategy)
        assert added(one.strategy()) == [[1.0, 1.0]]

        # Now it runs, with four: fewer still work, more do not.
        assert labkit.replicas(3).devices == ("/cpu:0", "/cpu:1", "/cpu:2")
        message = refused(5)
        assert "5 replicas" in message
        assert "already running with 4 logical CPUs" in message
        assert "Restart" in message
        assert 'labkit.replicas(4, devices="cpu")' in message

        for asked, why in (("nccl", "between GPUs only"), ("none", "a model of its own"),
                           ("ring", "no such reduction")):
            with pytest.raises(LabError, match=why) as fault:
                two.strategy(asked)
            assert '"hierarchical copy"' in str(fault.value)
        with pytest.raises(LabError, match="nothing to reduce"):
            one.strategy("nccl")
        import dataclasses
        with pytest.raises(LabError, match="another session"):
            dataclasses.replace(two, devices=("/cpu:0", "/cpu:7")).strategy()
    """)
    assert "INFO" not in noise
    assert "MirroredStrategy" not in noise


def test_after_tensorflow_is_initialised_and_what_each_device_did(story):
    story("""
        from labkit.hardware import work_by_device
        from labkit.hardware.tensorflow import import_tensorflow

        tf = import_tensorflow()
        cpu = tf.config.list_physical_devices("CPU")[0]
        three = [tf.config.LogicalDeviceConfiguration()] * 3
        tf.config.set_logical_device_configuration(cpu, three)
        x = tf.random.normal([8, 8])
        two = labkit.replicas(2)
        assert two.devices == ("/cpu:0", "/cpu:1")
        assert "3 logical CPUs" in refused(4)

        @tf.function
        def forward():
            return tf.reduce_sum(tf.nn.relu(x @ x))

        forward()  # a second call must be seen as well
        for function in (forward, lambda: tf.reduce_sum(tf.nn.relu(x @ x))):
            work = work_by_device(function)
            assert [use.device for use in work.devices] == ["/cpu:0", "/cpu:1", "/cpu:2"]
            assert work.busy == ("/cpu:0",)
            assert work.devices[0].products == 1
            assert work.devices[0].operations == 3
            assert (work.devices[2].operations, work.devices[2].products) == (0, 0)
        assert work.kind.name == "measured"
        assert plain.load(plain.dump(work)) == work
        assert "/cpu:2           0                0" in str(work)

        with tf.device("/cpu:2"):
            assert work_by_device(forward).busy == ("/cpu:2",)

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
        assert work_by_device(lambda: None).busy == ()
        with pytest.raises(ZeroDivisionError):
            work_by_device(lambda: 1 / 0)
        assert work_by_device(step).busy == ("/cpu:0", "/cpu:1")
    """)


def test_after_tensorflow_is_initialised_with_one_device(story):
    story("""
        os.environ["TF_CPP_MIN_LOG_LEVEL"] = "1"
        from labkit.hardware.tensorflow import import_tensorflow
        tf = import_tensorflow()
        assert os.environ["TF_CPP_MIN_LOG_LEVEL"] == "1"
        tf.constant(1) + 1
        message = refused(2)
        assert "already running with 1 logical CPU," in message
        assert 'labkit.replicas(1, devices="cpu")' in message
        assert labkit.replicas(1, devices="cpu").devices == ("/cpu:0",)
        assert labkit.replicas(1).strategy().num_replicas_in_sync == 1
    """)


def test_without_tensorflow_the_message_says_how_to_get_it(story, tmp_path):
    broken = tmp_path / "tensorflow"
    broken.mkdir()
    (broken / "__init__.py").write_text("raise ImportError('no TensorFlow for this test')")
    story(
        """
        message = refused(2)
        assert "no TensorFlow for this test" in message
        assert "make lab" in message
        assert "make clean" in message
        """,
        PYTHONPATH=os.pathsep.join([str(tmp_path), *sys.path]),
    )
