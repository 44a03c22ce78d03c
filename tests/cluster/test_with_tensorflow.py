"""TensorFlow in ranks: really several workers, warm from the second run, and honest about faults.

No TensorFlow is loaded in this process.
"""

import linecache
import os
import signal
import sys
import time
import types
from pathlib import Path

import pytest

import labkit
from tests.cluster.leftovers import children_of


@pytest.fixture(scope="module")
def two():
    with labkit.cluster(ranks=2, start=180) as c:
        yield c


def sums(rank):
    """One all-reduce over both workers; what had to be loaded for it, and who could listen in."""
    from pathlib import Path

    before = {name for name in sys.modules if name.startswith(("tensorflow", "keras", "numpy"))}
    import tensorflow as tf

    strategy = tf.distribute.MultiWorkerMirroredStrategy()

    @tf.function
    def step():
        def one():
            context = tf.distribute.get_replica_context()
            return context.all_reduce("sum", tf.constant(rank + 1.0))

        return strategy.run(one)

    total = float(step())
    after = {name for name in sys.modules if name.startswith(("tensorflow", "keras", "numpy"))}
    devices = Path("/proc/net/dev").read_text().splitlines()[2:]
    return total, len(after - before), [line.split(":")[0].strip() for line in devices]


def test_workers_meet_and_the_second_run_has_nothing_to_load(two):
    loaded_here = "tensorflow" in sys.modules
    first = two.run(sums, deadline=120)
    assert [total for total, *_ in first] == [3.0, 3.0]
    second = two.run(sums, deadline=120)
    assert [total for total, *_ in second] == [3.0, 3.0]
    assert [loaded for _, loaded, _ in second] == [0, 0]
    if "network of their own" in repr(two):
        assert [devices for *_, devices in second] == [["lo"], ["lo"]]
    assert ("tensorflow" in sys.modules) == loaded_here


def spares_of(cluster, count):
    """The processes that wait for the next run."""
    launcher = cluster.engine.launcher_pid
    until = time.monotonic() + 30
    while len(found := {pid for pid, _ in children_of(launcher)}) != count:
        assert time.monotonic() < until, found
        time.sleep(0.01)
    return found


def test_the_next_ranks_are_forked_beforehand_and_end_with_the_block():
    def whoami(rank):
        import os

        import tensorflow as tf  # noqa: F401

        return rank, os.getpid(), os.getsid(0), os.environ["RANK"]

    with labkit.cluster(ranks=2, start=180) as c:
        c.run(whoami)
        launcher = c.engine.launcher_pid
        lost = min(spares_of(c, 2))
        os.kill(lost, signal.SIGKILL)
        while (lost, "Z") not in (left := children_of(launcher)) and lost in dict(left):
            time.sleep(0.01)
        assert len(c.run(whoami)) == 2  # nobody minds
        waiting = spares_of(c, 2)
        assert lost not in waiting
        found = c.run(whoami)
        assert {pid for _, pid, *_ in found} == waiting
        assert [(rank, name) for rank, _, _, name in found] == [(0, "0"), (1, "1")]
        assert all(pid == session for _, pid, session, *_ in found)
        waiting = spares_of(c, 2)
    assert not any(Path(f"/proc/{pid}").exists() for pid in (launcher, *waiting))


def test_a_worker_that_is_killed_is_the_cause_and_not_the_one_that_notices(two):
    def dies(rank):
        import os

        import tensorflow as tf

        strategy = tf.distribute.MultiWorkerMirroredStrategy()

        @tf.function
        def step():
            def one():
                context = tf.distribute.get_replica_context()
                return context.all_reduce("sum", tf.constant(1.0))

            return strategy.run(one)

        for number in range(10_000):
            step()
            if rank == 1 and number == 20:
                os.kill(os.getpid(), 9)

    outcome = two.start(dies, show=False).finish(deadline=120)
    assert str(outcome.fault).startswith("Rank 1 was killed by signal 9 (SIGKILL) after")
    assert outcome.errors[0].what in ("raised", "stopped")
    assert "of dies (`step()`)" in str(outcome.fault)
    assert children_of(two.engine.launcher_pid) == []


def test_a_notebooks_condition_on_tensors_is_understood(two):
    text = """
def program(rank):
    import tensorflow as tf

    @tf.function
    def limited(x):
        if x > 0:
            return x
        else:
            return -x

    return float(limited(tf.constant(rank - 1.0)))
"""
    # AutoGraph reads the source of the cell, which no file holds.
    linecache.cache["cell_7.py"] = (len(text), None, text.splitlines(keepends=True), "cell_7.py")
    cell = types.ModuleType("__main__")
    exec(compile(text, "cell_7.py", "exec"), cell.__dict__)
    assert two.run(cell.program, deadline=120) == [1.0, 0.0]
