"""TF_CONFIG: built from hosts and from Slurm, and each mistake in it said in one sentence."""

from __future__ import annotations

import contextlib
import json
import socket

import pytest

from labkit import plain
from labkit.cluster import tf_config
from labkit.cluster.nodelist import counts_of, hosts_of
from labkit.kinds import LabError

TWO = {
    "cluster": {"worker": ["10.0.0.1:23450", "10.0.0.2:23450"]},
    "task": {"type": "worker", "index": 1},
}


def changed(**entries):
    return {**TWO, **entries}


def workers(*addresses):
    return changed(cluster={"worker": list(addresses)}, task={"type": "worker", "index": 0})


def test_a_right_one_is_read_from_a_dictionary_from_text_and_from_the_environment(monkeypatch):
    monkeypatch.setenv("TF_CONFIG", json.dumps(TWO))
    read = tf_config.check(TWO)
    assert tf_config.check(json.dumps(TWO)) == tf_config.check() == tf_config.check(read) == read
    assert (read.task, read.rank, read.ranks) == ("worker 1", 1, 2)
    assert read.content() == TWO
    assert json.loads(read.environment()["TF_CONFIG"]) == TWO
    assert plain.load(plain.dump(read)) == read


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ("", "is empty"),
        ("{'cluster': {}}", "single quote"),
        (json.dumps(TWO)[:-1], "ends too early"),
        (json.dumps(TWO)[:-2] + ",}}", "comma with nothing after it"),
        ("TF_CONFIG=" + json.dumps(TWO), "begins with its own name"),
        ("cluster", "column 1"),
        ("[1, 2]", "[1, 2], not a dictionary"),
        ('{"cluster": {"worker": ["a:1"], "worker": ["b:1"]}, "task": {}}', "two entries 'worker'"),
        (changed(workers=2), "'workers' that nobody reads"),
        ({"task": TWO["task"]}, "no cluster"),
        (changed(cluster=["a:1"]), "a cluster that is ['a:1']"),
        ({"cluster": TWO["cluster"]}, "no task"),
        (changed(task={"type": "worker"}), "no 'index'"),
        (changed(task={"index": 0}), "no 'type'"),
        (changed(task={"type": "worker", "index": 2}), "worker 2, and the cluster has worker 0 to"),
        (changed(task={"type": "worker", "index": -1}), "worker -1, and"),
        (changed(task={"type": "worker", "index": "one"}), "'one', not a whole number"),
        (changed(task={"type": "worker", "index": 1.5}), "1.5, not a whole number"),
        (changed(task={"type": "worker", "index": True}), "True, not a whole number"),
        (changed(task={"type": "chief", "index": 0}), "has no chief: it has worker"),
        (changed(task={"type": "Worker", "index": 0}), "Write 'worker'"),
        (changed(cluster={"master": ["a:1"]}), "Write 'chief'"),
        (changed(cluster={"gpu": ["a:1"]}), "'gpu', which TensorFlow does not know. The roles"),
        (changed(cluster={"worker": []}), "'worker' is empty"),
        (changed(cluster={"worker": "a:1"}), "'a:1', not a list"),
        (changed(cluster={"worker": ["a:1"], "ps": ["b:1"]}), "no chief"),
        (changed(cluster={"chief": ["a:1"], "ps": ["b:1"]}), "no worker"),
        (changed(cluster={"chief": ["a:1", "b:1"]}), "2 chiefs (a:1, b:1)"),
        (workers("a:1", "b:1", "a:1"), "a:1 stands in TF_CONFIG twice: for worker 0 and for work"),
        (changed(cluster={"chief": ["a:1"], "worker": ["a:1"]}), "for chief 0 and for worker 0"),
        (workers("node1"), "'node1', has no port; write node1:23450"),
        (workers("node1:"), "the port ''"),
        (workers("node1:http"), "the port 'http'"),
        (workers("node1:70000"), "the port '70000'"),
        (workers("node1:0"), "the port '0'"),
        (workers(":23450"), "no host"),
        (workers("http://node1:80"), "begins with http://"),
        (workers("node1: 80"), "a blank"),
        (workers("fe80::1:80"), "[fe80::1]:80"),
        (workers(23450), "23450, not a text"),
        (workers("node[1-2]:80"), "is not one machine"),
        (workers("node1,node2:80"), "is not one machine"),
        (workers("0.0.0.0:80"), "nobody can reach it"),
        (workers("a:80", "A:080"), "A:080 stands in TF_CONFIG twice"),
        (changed(cluster={"evaluator": ["a:1"]}), "nobody who trains"),
        ('{“cluster”: {}}', "there is “, and JSON has straight quotes"),
        ("[" * 100_000, "not JSON"),
    ],
)  # fmt: skip
def test_each_mistake_has_its_sentence(config, says):
    with pytest.raises(LabError) as told:
        tf_config.check(config)
    text = str(told.value)
    assert says in text
    # What is wrong and what to do: never a page.
    assert len(text) < 330
    assert text.count("\n") == 0


@pytest.mark.parametrize(
    ("hosts", "asked", "says"),
    [
        ([], {}, "no hosts"),
        (5, {}, "5 are no hosts"),
        (["node1:80"], {}, "has a port already. Write 'node1', and port=80"),
        (["node1"], {"port": "http"}, "port='http' is no port"),
        (["node1"], {"roles": ["worker"]}, "are no roles"),
    ],
)
def test_hosts_that_are_none_are_said(hosts, asked, says):
    with pytest.raises(LabError) as told:
        tf_config.from_hosts(hosts, **asked)
    assert says in str(told.value)


def test_a_missing_one_is_said(monkeypatch):
    monkeypatch.delenv("TF_CONFIG", raising=False)
    with pytest.raises(LabError, match="not set"):
        tf_config.check()


def test_an_evaluator_needs_no_address():
    read = tf_config.check(changed(task={"type": "evaluator", "index": 0}))
    assert (read.rank, read.address, read.is_chief) == (2, "", False)


def test_hosts_get_a_task_each_and_a_host_named_twice_two_ports():
    roles = {"chief": 1, "worker": 2, "ps": 1}
    config = tf_config.from_hosts(["a", "a", "::1", "b"], "ps", 0, port=5000, roles=roles)
    assert config.cluster == {
        "chief": ("a:5000",), "worker": ("a:5001", "[::1]:5000"), "ps": ("b:5000",),
    }  # fmt: skip
    assert [config.at(rank).task for rank in range(4)] == [
        "chief 0",
        "worker 0",
        "worker 1",
        "ps 0",
    ]
    assert [rank for rank in range(4) if config.at(rank).is_chief] == [0]
    assert config.at("worker", 1).address == "[::1]:5000"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (([],), "no hosts"),
        ((["a", "b"], "worker", 2), "worker 2"),
        ((["a", "b"], "worker", 0, {"chief": 1}), "1 tasks, and there are 2 hosts"),
        ((["a"], "worker", 0, {"boss": 1}), "cannot be dealt out"),
        ((["a"], "worker", 0, {"worker": 0}), "cannot be dealt out"),
    ],
)
def test_hosts_that_make_no_cluster_are_refused(arguments, says):
    *positional, roles = [*arguments, None] if len(arguments) < 4 else arguments
    with pytest.raises(LabError, match=says):
        tf_config.from_hosts(*positional, roles=roles)


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
    assert list(hosts_of(text)) == hosts


@pytest.mark.parametrize("text", ["", "n[1-", "n]1[", "n[a-b]", "n[3-1]", "n[[1]]", "n[1-9999999]"])
def test_a_broken_node_list_is_named(text):
    with pytest.raises(LabError, match="node list"):
        hosts_of(text)


def test_tasks_per_node_are_counted():
    assert counts_of("2(x3),1") == (2, 2, 2, 1)
    with pytest.raises(LabError, match="2x3"):
        counts_of("2x3")


SLURM = {
    "SLURM_JOB_ID": "77", "SLURM_STEP_ID": "0", "SLURM_PROCID": "2", "SLURM_NODEID": "1",
    "SLURM_JOB_NODELIST": "node[1-9]", "SLURM_TASKS_PER_NODE": "1(x9)",
    "SLURM_STEP_NODELIST": "node[1-2]", "SLURM_STEP_TASKS_PER_NODE": "2(x2)",
}  # fmt: skip


def test_slurm_says_who_takes_part_in_the_step():
    config = tf_config.from_slurm(SLURM, port=5000)
    assert config.cluster == {"worker": ("node1:5000", "node1:5001", "node2:5000", "node2:5001")}
    assert config.task == "worker 2"
    roles = {"chief": 1, "worker": 2, "ps": 1}
    assert tf_config.from_slurm(SLURM, roles=roles).task == "worker 1"


def test_all_tasks_of_a_step_see_one_cluster_and_two_steps_never_meet():
    first = [
        tf_config.from_slurm({**SLURM, "SLURM_PROCID": str(rank), "SLURM_NODEID": str(rank // 2)})
        for rank in range(4)
    ]
    assert {str(sorted(config.addresses)) for config in first} == {str(sorted(first[0].addresses))}
    assert [config.rank for config in first] == [0, 1, 2, 3]
    second = tf_config.from_slurm({**SLURM, "SLURM_STEP_ID": "1"})
    assert set(first[0].addresses) & set(second.addresses) == set()
    for job in (1, 142, 99_999, 4_294_901_760):
        ports = tf_config.from_slurm({**SLURM, "SLURM_JOB_ID": str(job)}).addresses
        assert all(1024 < int(address.rpartition(":")[2]) < 32768 for address in ports)


@pytest.mark.parametrize(
    ("environment", "says"),
    [
        ({}, "SLURM_JOB_NODELIST is not set"),
        ({**SLURM, "SLURM_PROCID": ""}, "SLURM_PROCID is not set"),
        ({**SLURM, "SLURM_PROCID": "4"}, "task 4, of 4"),
        ({**SLURM, "SLURM_STEP_TASKS_PER_NODE": "2"}, "names 2 machines and tasks for 1"),
        ({**SLURM, "SLURM_NODEID": "0"}, "--distribution=block"),
    ],
)
def test_what_slurm_has_not_said_is_named(environment, says):
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


def test_a_free_port_and_machines_that_answer_are_fine(free, taken):
    # The other task listens already, or not yet: its machine answers either way.
    other = workers(f"127.0.0.1:{free}", f"127.0.0.1:{taken}", "localhost:1")
    assert tf_config.check(other, reach=True).ranks == 3


def test_a_port_in_use_is_named(taken):
    with pytest.raises(LabError, match=f"port {taken} is taken"):
        tf_config.check(workers(f"127.0.0.1:{taken}"), reach=True)


def test_an_address_of_another_machine_is_not_mine():
    with pytest.raises(LabError, match=r"worker 0 at 192\.0\.2\.1:9, which is no address"):
        tf_config.check(workers("192.0.2.1:9"), reach=True)


def test_an_unknown_name_is_unreachable(free):
    config = workers(f"127.0.0.1:{free}", "no-such-machine.invalid:5000")
    with pytest.raises(LabError, match=r"Worker 1 is said to be at no-such-machine\.invalid:5000"):
        tf_config.check(config, reach=True, deadline=2)


@pytest.fixture
def silent():
    """An address where every packet is lost: the queue of a listener that nobody empties."""
    with socket.socket() as listener, contextlib.ExitStack() as queued:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(4):
            caller = queued.enter_context(socket.socket())
            caller.setblocking(False)
            caller.connect_ex(listener.getsockname())
        yield f"127.0.0.1:{listener.getsockname()[1]}"


def test_a_machine_that_does_not_answer_costs_no_more_than_its_deadline(free, silent):
    config = workers(f"127.0.0.1:{free}", silent)
    with pytest.raises(LabError, match=f"{silent}.* cannot be reached: no answer within 300 ms"):
        tf_config.check(config, reach=True, deadline=0.3)


def test_it_shows_itself_with_the_own_task_marked():
    shown = tf_config.check(TWO)._repr_mimebundle_()
    assert shown["text/plain"].splitlines()[0] == "TF_CONFIG of worker 1, of 2 tasks"
    assert shown["text/html"].count("this process") == 1
