"""Programs on ranks of this machine: what they are given, and what comes back."""

import json
import os
import sys
import types

import numpy as np
import pytest

import labkit
from labkit.cluster import this_rank
from labkit.kinds import LabError

FACTOR = 10


def times_factor(rank, added=0):
    return rank * FACTOR + added


@pytest.fixture(scope="module")
def four():
    with labkit.cluster(ranks=4) as c:
        yield c


def test_every_rank_calls_the_program_and_results_come_by_rank(four):
    assert four.run(times_factor, 1) == [1, 11, 21, 31]


def test_every_run_has_fresh_processes(four):
    def pid(rank):
        return os.getpid()

    first, second = four.run(pid), four.run(pid)
    assert len({*first, *second, os.getpid()}) == 9


def test_a_program_may_be_a_closure_a_lambda_a_partial_or_a_method(four):
    import functools

    class Scaled:
        def __init__(self, by):
            self.by = by

        def program(self, rank):
            return rank * self.by

    by = 3
    assert four.run(lambda rank: rank * by) == [0, 3, 6, 9]
    assert four.run(Scaled(5).program) == [0, 5, 10, 15]
    assert four.run(functools.partial(times_factor, added=2)) == [2, 12, 22, 32]


def test_a_program_of_a_notebook_sees_the_names_of_its_cells(four):
    cell = types.ModuleType("__main__")
    text = "class Pair:\n    two = 2\nbase = 7\ndef twice(x):\n    return Pair.two * x\n"
    text += "def program(rank):\n    return twice(rank) + base\n"
    exec(text, cell.__dict__)
    assert four.run(cell.program) == [7, 9, 11, 13]


def test_a_rank_knows_who_it_is_and_where_the_others_are(four):
    def who(rank):
        me = this_rank()
        return me.rank, me.ranks, me.role, me.index, me.address, me.addresses, me.engine

    for rank, told in enumerate(four.run(who)):
        addresses = four.addresses
        assert told == (rank, 4, "worker", rank, addresses[rank], addresses, "local")


def test_the_environment_is_that_of_a_distributed_program(four):
    def seen(rank):
        return dict(os.environ)

    for rank, found in enumerate(four.run(seen)):
        assert (found["RANK"], found["LOCAL_RANK"]) == (str(rank), str(rank))
        assert (found["WORLD_SIZE"], found["LOCAL_WORLD_SIZE"]) == ("4", "4")
        assert found["MASTER_ADDR"] == "127.0.0.1"
        assert f"127.0.0.1:{found['MASTER_PORT']}" not in four.addresses
        assert json.loads(found["TF_CONFIG"]) == four.tf_config(rank)
        assert found["GLOO_SOCKET_IFNAME"] == "lo"
        assert int(found["TF_NUM_INTRAOP_THREADS"]) >= 1


def test_variables_set_in_the_session_are_seen_and_yours_win(monkeypatch):
    monkeypatch.setenv("SET_IN_A_CELL", "yes")
    environment = {"TF_CONFIG": None, "OMP_NUM_THREADS": 7}

    def seen(rank):
        return [os.environ.get(name) for name in ("SET_IN_A_CELL", "TF_CONFIG", "OMP_NUM_THREADS")]

    with labkit.cluster(ranks=1, environment=environment) as c:
        assert c.run(seen) == [["yes", None, "7"]]
        monkeypatch.setenv("SET_IN_A_CELL", "changed")
        assert c.run(seen) == [["changed", None, "7"]]


def test_roles_give_ranks_their_place_in_tf_config():
    def place(rank):
        me = this_rank()
        return me.role, me.index, json.loads(os.environ["TF_CONFIG"])["task"]

    with labkit.cluster(roles={"chief": 1, "worker": 2, "ps": 1}) as c:
        told = c.run(place)
        jobs = c.tf_config(0)["cluster"]
        assert "4 ranks (1 chief, 2 worker, 1 ps)" in repr(c)
    assert [(role, index) for role, index, _ in told] == [
        ("chief", 0),
        ("worker", 0),
        ("worker", 1),
        ("ps", 0),
    ]
    assert [task for *_, task in told][2] == {"type": "worker", "index": 1}
    assert {role: len(found) for role, found in jobs.items()} == {"chief": 1, "worker": 2, "ps": 1}


def test_results_and_arguments_may_be_large(four):
    def summed(rank, array):
        return array[: 1_000_000 * (rank + 1)] * 2

    array = np.arange(4_000_000, dtype="float64")
    for rank, found in enumerate(four.run(summed, array)):
        np.testing.assert_array_equal(found, array[: 1_000_000 * (rank + 1)] * 2)


def test_the_run_is_over_when_the_ranks_of_until_have_returned(four):
    def serves(rank):
        import time

        while rank > 1:
            time.sleep(1)
        return rank

    assert four.run(serves, until={0, 1}) == [0, 1, None, None]


def test_ranks_that_have_returned_stay_for_the_others(four):
    def split(address):
        host, _, port = address.rpartition(":")
        return host, int(port)

    def program(rank):
        import time
        from multiprocessing.connection import Client, Listener

        me = this_rank()
        if rank == 0:
            with Listener(split(me.address), authkey=b"x") as door:
                for _ in range(3):
                    with door.accept() as visitor:
                        visitor.send(os.getpid())
            return None
        while True:
            try:
                line = Client(split(me.addresses[0]), authkey=b"x")
            except ConnectionError:
                time.sleep(0.01)
            else:
                break
        pid = line.recv()
        line.close()
        if rank == 3:
            time.sleep(0.2)
            os.kill(pid, 0)  # rank 0 has returned long ago; this raises if it is gone
        return rank

    assert four.run(program) == [None, 1, 2, 3]


def test_every_rank_has_its_own_random_numbers(four):
    def draws(rank):
        import random

        import numpy as np

        return random.random(), float(np.random.random())  # noqa: NPY002

    four.run(draws)
    drawn = [*four.run(draws), *four.run(draws)]
    assert len({first for first, _ in drawn}) == len({second for _, second in drawn}) == 8


def test_a_program_with_processes_of_its_own_can_end_them(four):
    def forks(rank):
        import subprocess
        from multiprocessing import get_context

        with get_context("spawn").Pool(1) as pool:
            squared = pool.map(abs, [-rank])
        return squared, subprocess.run(
            [sys.executable, "-c", "print(5)"], capture_output=True
        ).stdout

    with labkit.cluster(ranks=1) as c:
        assert c.run(forks) == [([0], b"5\n")]


def test_a_rank_loads_nothing_of_the_launcher_by_accident(four):
    def main_module(rank):
        main = sys.modules["__main__"]
        return [name for name in vars(main) if not name.startswith("_")], sys.argv

    assert four.run(main_module)[0] == ([], [""])


def test_exit_without_fault_is_a_return(four):
    def leaves(rank):
        sys.exit(0)

    assert four.run(leaves) == [None] * 4


def test_a_second_run_while_one_goes_is_refused(four):
    going = four.start(lambda rank: input())
    try:
        with pytest.raises(LabError, match="Another run is still going"):
            four.run(times_factor)
    finally:
        going.stop()
    assert four.run(times_factor) == [0, 10, 20, 30]


def test_two_clusters_at_once_do_not_disturb_each_other(four):
    with labkit.cluster(ranks=2) as other:
        going = four.start(times_factor)
        assert other.run(times_factor) == [0, 10]
        assert going.finish().results == {0: 0, 1: 10, 2: 20, 3: 30}


@pytest.mark.parametrize(
    ("keywords", "said"),
    [
        ({"ranks": 0}, "ranks=0 must be a whole number from 1 to"),
        ({"ranks": 2.0}, "ranks=2.0 must be a whole number"),
        ({"ranks": 3, "roles": {"worker": 2}}, "are 2 ranks, but ranks=3"),
        ({"roles": {"boss": 1}}, "'boss' is no role that TensorFlow knows"),
        ({"roles": {"chief": 2}}, "There is one chief, not 2"),
        ({"roles": ["worker"]}, "does not say how many ranks have which role"),
        ({"engine": "moon"}, "engine='moon' is unknown. Choose among local"),
        ({"network": "wide"}, "network='wide' is unknown"),
        ({"partition": "gpu"}, "no keyword partition= with engine='local'"),
        ({"environment": {"A": [1]}}, r"environment\['A'\]=\[1\] must be a text"),
        ({"environment": {"": "1"}}, "cannot be the name of a variable"),
        ({"preload": "numpy"}, "preload='numpy' must be names of modules"),
        ({"preload": ["no name"]}, "preload has 'no name'"),
        ({"start": 0}, "must be a number of seconds above 0"),
    ],
)
def test_wrong_keywords_are_told_before_anything_starts(keywords, said):
    with pytest.raises(LabError, match=said):
        labkit.cluster(**keywords)


@pytest.mark.parametrize(
    ("program", "keywords", "said"),
    [
        (3, {}, r"c.run wants a function of \(rank\), not 3"),
        (times_factor, {"deadline": -1}, "deadline=-1 must be a number"),
        (times_factor, {"until": {7}}, "until names rank 7, but ranks are numbered 0 to 3"),
        (times_factor, {"until": set()}, "until names no rank"),
        (times_factor, {"tolerate": 1}, "tolerate=1 must be a set of ranks"),
    ],
)
def test_wrong_calls_are_told_before_anything_starts(four, program, keywords, said):
    with pytest.raises(LabError, match=said):
        four.run(program, **keywords)


def test_outside_its_block_a_cluster_has_no_ranks():
    c = labkit.cluster(ranks=2)
    with pytest.raises(LabError, match="Ranks exist only in a block"):
        c.run(times_factor)
    with c:
        pass
    with pytest.raises(LabError, match="Ranks exist only in a block"):
        c.run(times_factor)
    assert "its block has ended" in repr(c)


def test_outside_a_program_this_process_is_no_rank():
    with pytest.raises(LabError, match="This process is no rank"):
        this_rank()


def test_ranks_know_whether_they_have_a_way_out():
    def network(rank):
        return os.environ.get("LABKIT_NETWORK")

    with labkit.cluster(ranks=1) as own, labkit.cluster(ranks=1, network="shared") as shared:
        shut_in = "network of their own" in repr(own)
        assert own.run(network) == ["own" if shut_in else None]
        assert shared.run(network) == [None]
