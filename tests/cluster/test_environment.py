"""The environment of a rank: roles, addresses, cores and GPUs."""

import pytest

from labkit.cluster import environment
from labkit.cluster.engine import Addresses
from labkit.cluster.environment import (
    gpus_by_rank,
    indices,
    local_variables,
    rank_environment,
    tf_config_of,
)


@pytest.mark.parametrize(
    ("names", "ranks", "expected"),
    [
        ((), 2, ()),
        (("A", "B"), 2, ("A", "B")),
        (("A", "B", "C", "D"), 2, ("A,C", "B,D")),
        (("A", "B"), 3, ("A", "B", "A")),
    ],
)
def test_gpus_are_distributed_in_turn(monkeypatch, names, ranks, expected):
    monkeypatch.setattr(environment, "_gpus", lambda: names)
    assert gpus_by_rank(ranks) == expected


def test_ranks_that_share_a_gpu_do_not_take_it_whole(monkeypatch):
    monkeypatch.setattr(environment, "_gpus", lambda: ("A",))
    first, second = (local_variables(2, rank) for rank in range(2))
    assert first["CUDA_VISIBLE_DEVICES"] == second["CUDA_VISIBLE_DEVICES"] == "A"
    assert first["TF_FORCE_GPU_ALLOW_GROWTH"] == "true"


def test_threads_are_those_that_you_have_set(monkeypatch):
    monkeypatch.setattr(environment, "_usable_cores", lambda: 7)
    monkeypatch.setenv("OMP_NUM_THREADS", "5")
    monkeypatch.delenv("TF_NUM_INTRAOP_THREADS", raising=False)
    found = local_variables(2, 0)
    assert (found.get("OMP_NUM_THREADS"), found["TF_NUM_INTRAOP_THREADS"]) == (None, "3")
    assert found["GLOO_SOCKET_IFNAME"] == "lo"


def test_master_is_an_address_of_its_own():
    addresses = Addresses(("127.0.0.1:5", "127.0.0.1:6"), "127.0.0.1:7")
    found = rank_environment(("worker",) * 2, addresses, 1)
    assert (found["RANK"], found["MASTER_ADDR"], found["MASTER_PORT"]) == ("1", "127.0.0.1", "7")


def test_an_evaluator_is_no_part_of_the_cluster():
    roles = ("chief", "worker", "evaluator")
    assert tf_config_of(roles, ("a:1", "b:2", "c:3"), 2) == {
        "cluster": {"chief": ["a:1"], "worker": ["b:2"]},
        "task": {"type": "evaluator", "index": 0},
    }
    assert indices(("worker", "ps", "worker")) == (0, 0, 1)
