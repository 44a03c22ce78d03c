"""TF_CONFIG: built from hosts and from Slurm, and each mistake in it explained."""

from __future__ import annotations

import contextlib
import json
import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labkit import plain
from labkit.cluster import tf_config
from labkit.cluster.slurm_rank import environment_of_batch_rank
from labkit.kinds import LabError

TWO = {
    "cluster": {"worker": ["10.0.0.1:23450", "10.0.0.2:23450"]},
    "task": {"type": "worker", "index": 1},
}
SLURM = {
    "SLURM_JOB_ID": "77", "SLURM_STEP_ID": "0", "SLURM_PROCID": "2", "SLURM_NODEID": "1",
    "SLURM_LOCALID": "0", "SLURM_JOB_NODELIST": "node[1-9]", "SLURM_TASKS_PER_NODE": "1(x9)",
    "SLURM_STEP_NODELIST": "node[1-2]", "SLURM_STEP_TASKS_PER_NODE": "2(x2)",
}  # fmt: skip


def changed(**entries):
    return {**TWO, **entries}


def workers(*addresses):
    return changed(cluster={"worker": list(addresses)}, task={"type": "worker", "index": 0})


def test_it_is_read_from_a_dictionary_from_text_and_from_the_environment(monkeypatch):
    monkeypatch.setenv("TF_CONFIG", json.dumps(TWO))
    read = tf_config.check(TWO)
    assert tf_config.check(json.dumps(TWO)) == tf_config.check() == tf_config.check(read) == read
    assert (read.task, read.rank, read.ranks) == ("worker 1", 1, 2)
    assert read.content() == TWO
    assert plain.load(plain.dump(read)) == read
    shown = read._repr_mimebundle_()
    assert shown["text/html"].count("this process") == 1
    monkeypatch.delenv("TF_CONFIG")
    with pytest.raises(LabError, match="not set"):
        tf_config.check()


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ("", "ends too early"),
        ("{'cluster': {}}", "single quote"),
        ("{“cluster”: {}}", "straight quotes"),
        (json.dumps(TWO)[:-1], "ends too early"),
        (json.dumps(TWO)[:-2] + ",}}", "comma"),
        ("export TF_CONFIG=" + json.dumps(TWO), "its own name"),
        ("[1, 2]", "not a dictionary"),
        ("[" * 100_000, "brackets"),
        (changed(workers=2), "'workers'"),
        ({"task": TWO["task"]}, "no cluster"),
        ({"cluster": TWO["cluster"]}, "no task"),
        (changed(task={"type": "worker"}), "no 'index'"),
        (changed(task={"type": "worker", "index": 2}), "worker 0 to worker 1"),
        (changed(task={"type": "worker", "index": -1}), "worker -1"),
        (changed(task={"type": "worker", "index": True}), "not a whole number"),
        (changed(task={"type": "chief", "index": 0}), "has no chief"),
        (changed(task={"type": "Worker", "index": 0}), "Write 'worker'"),
        (changed(cluster={"master": ["a:1"]}), "Write 'chief'"),
        (changed(cluster={"gpu": ["a:1"]}), "'gpu'"),
        (changed(cluster={"worker": []}), "Write a list"),
        (changed(cluster={"worker": "a:1"}), "Write a list"),
        (changed(cluster={"worker": ["a:1"], "ps": ["b:1"]}), "no chief"),
        (changed(cluster={"chief": ["a:1"], "ps": ["b:1"]}), "no worker"),
        (changed(cluster={"evaluator": ["a:1"]}), "no worker"),
        (changed(cluster={"chief": ["a:1", "b:1"]}), "2 chiefs"),
        (changed(cluster={"chief": ["a:1"], "worker": ["A:01"]}), "twice"),
        (workers("node1"), "no port; write node1:23450"),
        (workers("node1:http"), "'http'"),
        (workers("node1:70000"), "'70000'"),
        (workers(":23450"), "no host"),
        (workers("http://node1:80"), "http://"),
        (workers("node1: 80"), "blank"),
        (workers("fe80::1:80"), "[fe80::1]:80"),
        (workers(23450), "must be a text"),
        (workers("node[1-2]:80"), "not one machine"),
        (workers("0.0.0.0:80"), "names no machine"),
    ],
)
def test_each_mistake_is_explained_in_a_few_words(config, says):
    with pytest.raises(LabError) as caught:
        tf_config.check(config)
    assert says in str(caught.value)
    assert len(str(caught.value)) < 330


def test_an_evaluator_needs_no_address():
    read = tf_config.check(changed(task={"type": "evaluator", "index": 0}))
    assert (read.rank, read.address) == (2, "")


def test_hosts_get_a_worker_each_and_a_host_named_twice_two_ports():
    config = tf_config.from_hosts(["a", "a", "b"], 2, port=5000)
    assert config.cluster == {"worker": ("a:5000", "a:5001", "b:5000")}
    assert (config.task, config.address) == ("worker 2", "b:5000")


@pytest.mark.parametrize(
    ("hosts", "keywords", "says"),
    [
        ([], {}, "hosts must be"),
        (5, {}, "hosts must be"),
        (["node1:80"], {}, "two ports"),
        (["node1"], {"port": "http"}, "port must be"),
        (["a", "b"], {"index": 2}, "worker 2"),
    ],
)
def test_hosts_that_make_no_cluster_are_refused(hosts, keywords, says):
    with pytest.raises(LabError, match=says):
        tf_config.from_hosts(hosts, **keywords)


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("node1", ["node1"]),
        ("node[01-03,07],gpu5", ["node01", "node02", "node03", "node07", "gpu5"]),
        ("n[8-11]", ["n8", "n9", "n10", "n11"]),
        ("r[1-2]n[3-4].lan", ["r1n3.lan", "r1n4.lan", "r2n3.lan", "r2n4.lan"]),
        ("127.0.0.[2-3]", ["127.0.0.2", "127.0.0.3"]),
        ("a,b[1,3]", ["a", "b1", "b3"]),
    ],
)
def test_node_lists_are_expanded_as_slurm_means_them(text, hosts):
    assert list(tf_config.hosts_of(text)) == hosts


@pytest.mark.parametrize("text", ["", "n[1-", "n]1[", "n[a-b]", "n[3-1]", "n[[1]]", "n[1-9999999]"])
def test_a_broken_node_list_is_named(text):
    with pytest.raises(LabError, match="node list"):
        tf_config.hosts_of(text)
    with pytest.raises(LabError, match="tasks per node"):
        tf_config.counts_of("2x3")


def test_the_step_says_which_tasks_take_part():
    config = tf_config.from_slurm(SLURM, port=5000)
    assert config.cluster == {"worker": ("node1:5000", "node1:5001", "node2:5000", "node2:5001")}
    assert config.task == "worker 2"


@given(
    job=st.integers(1, 4_294_901_760),
    step=st.integers(0, 50),
    each=st.integers(1, 64),
    data=st.data(),
)
def test_two_steps_of_a_job_share_no_port_also_not_that_of_the_master(job, step, each, data):
    """16 tasks a node once had the MASTER_PORT of one step among the ports of the next."""

    def ports(step, rank):
        variables = {
            **SLURM, "SLURM_JOB_ID": str(job), "SLURM_STEP_ID": str(step),
            "SLURM_STEP_TASKS_PER_NODE": f"{each}(x2)", "SLURM_PROCID": str(rank),
            "SLURM_NODEID": str(rank // each), "SLURM_LOCALID": str(rank % each),
        }  # fmt: skip
        found = environment_of_batch_rank(variables)
        addresses = tf_config.check(found["TF_CONFIG"]).addresses
        assert len(set(addresses)) == 2 * each
        return {*addresses, f"{found['MASTER_ADDR']}:{found['MASTER_PORT']}"}

    ranks = st.integers(0, 2 * each - 1)
    mine = ports(step, data.draw(ranks))
    assert mine == ports(step, data.draw(ranks))
    assert len(mine) == 2 * each + 1
    assert mine & ports(step + 1, data.draw(ranks)) == set()
    assert all(1024 < int(address.rpartition(":")[2]) < 32768 for address in mine)


@pytest.mark.parametrize(
    ("environment", "says"),
    [
        ({}, "SLURM_JOB_NODELIST"),
        ({**SLURM, "SLURM_PROCID": ""}, "SLURM_PROCID"),
        ({**SLURM, "SLURM_PROCID": "4"}, "task 4"),
        ({**SLURM, "SLURM_STEP_TASKS_PER_NODE": "2"}, "does not fit"),
        ({**SLURM, "SLURM_NODEID": "0"}, "--distribution=block"),
        ({**SLURM, "SLURM_STEP_TASKS_PER_NODE": "100(x2)", "SLURM_NODEID": "0"}, "port="),
    ],
)
def test_what_slurm_has_not_set_is_named(environment, says):
    with pytest.raises(LabError, match=says):
        tf_config.from_slurm(environment)


@pytest.fixture
def taken():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener.getsockname()[1]


@pytest.fixture
def free():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


@pytest.fixture
def silent():
    """An address where every packet is lost: the queue of a listener that accepts no caller."""
    with socket.socket() as listener, contextlib.ExitStack() as queued:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(4):
            caller = queued.enter_context(socket.socket())
            caller.setblocking(False)
            caller.connect_ex(listener.getsockname())
        yield f"127.0.0.1:{listener.getsockname()[1]}"


def test_a_free_port_and_machines_that_answer_are_fine(free, taken):
    # The other task listens already, or not yet: its machine answers either way.
    other = workers(f"127.0.0.1:{free}", f"127.0.0.1:{taken}", "localhost:1")
    assert tf_config.check(other, reach=True).ranks == 3


def test_what_the_network_refuses_is_named(free, taken, silent):
    for others, says in (
        ([f"127.0.0.1:{taken}"], f"port {taken} is taken"),
        (["192.0.2.1:9"], "no address of this machine"),
        ([f"127.0.0.1:{free}", "no-such-machine.invalid:5000"], "Worker 1 .*no-such-machine"),
        ([f"127.0.0.1:{free}", silent], f"{silent}.*no answer within 300 ms"),
    ):
        with pytest.raises(LabError, match=says):
            tf_config.check(workers(*others), reach=True, deadline=0.3)
