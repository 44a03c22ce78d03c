"""Parameter servers hold the weights, workers compute gradients, a chief hands out the steps.

Nobody waits for anybody: each worker fetches the weights, computes with its own batch, and sends
its gradient to the server, which applies it at once. In ranks of a cluster:

>>> def program(rank):                                         # doctest: +SKIP
...     coordinator = parameter_server.join()                  # only the chief goes on from here
...     return parameter_server.steps(coordinator, 200)
>>> with labkit.cluster(roles=parameter_server.ROLES) as c:    # doctest: +SKIP
...     chief, *_ = c.run(program, until={0})

`train(...)` is that with everything around it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Literal

from labkit.arguments import whole
from labkit.cluster import Cluster, tf_config
from labkit.hardware.devices import import_tensorflow
from labkit.kinds import LabError
from labkit.strategies.cases import BATCH, RATE, STEPS, Case
from labkit.strategies.keras_fit import fitted
from labkit.strategies.many_workers import explain_patience
from labkit.strategies.served import Served
from labkit.strategies.serving import GENTLE, Chief, delays_of

__all__ = ["ENVIRONMENT", "PRELOAD", "ROLES", "Served", "case", "join", "steps", "train"]

ROLES = {"chief": 1, "worker": 2, "ps": 1}
# A worker that dies must be told at once, not waited for; TensorFlow's own advice.
ENVIRONMENT = {"GRPC_FAIL_FAST": "use_caller"}


PRELOAD = ("tensorflow", "keras", "labkit.training.job")


def join() -> Any:
    """The coordinator, on the chief. Workers and parameter servers stay in here, and serve.

    They never come back: run the program with `until={0}`, and they are stopped after the chief.
    """
    config = tf_config.check()
    if "ps" not in config.cluster:
        raise LabError(
            f"TF_CONFIG has no parameter server: its roles are {', '.join(config.cluster)}. Start "
            'the ranks with labkit.cluster(roles={"chief": 1, "worker": 2, "ps": 1}).'
        )
    os.environ.update(ENVIRONMENT)
    tf = import_tensorflow()
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    if config.role != "chief":
        threads = tf.compat.v1.ConfigProto()
        # With fewer threads than callers, a server can wait for a call that waits for a thread.
        threads.inter_op_parallelism_threads = config.ranks + 1
        spec = resolver.cluster_spec()
        server = tf.distribute.Server(
            spec, job_name=config.role, task_index=config.index, protocol="grpc", config=threads
        )
        print(f"{config.task} serves", flush=True)
        server.join()
    strategy = tf.distribute.ParameterServerStrategy(resolver)
    return tf.distribute.coordinator.ClusterCoordinator(strategy)


def steps(coordinator: Any, count: int = 200, **asked: Any) -> Served:
    """On the chief: train so many steps, and say what happened to them. Keywords as for `train`."""
    chief = Chief(coordinator, **asked)
    chief.steps(count)
    return chief.record()


def train(
    count: int = 200,
    *,
    workers: int = 2,
    servers: int = 1,
    batch: int = BATCH,
    data: Any = None,
    optimizer: str = "sgd",
    learning_rate: float = GENTLE,
    one_at_a_time: bool = False,
    delays: Mapping[int, float] | None = None,
    patience: float = 20.0,
    deadline: float = 120.0,
    engine: str = "local",
    show: bool = False,
) -> Served:
    """Train the dense model with a chief, workers and parameter servers, each a process.

    >>> labkit.strategies.parameter_server.train(200, delays={1: 0.05})    # doctest: +SKIP

    `delays` makes workers slow: seconds by worker that its images take to come. `one_at_a_time`
    hands out a step only when the one before is done: then the result is that of one device.
    """
    roles = {
        "chief": 1,
        "worker": whole("workers", workers, at_least=1),
        "ps": whole("servers", servers, at_least=1),
    }
    # Said before four processes are started, where it can be.
    delays_of(delays, roles["worker"])
    asked = {
        "batch": batch, "data": data, "optimizer": optimizer, "learning_rate": learning_rate,
        "one_at_a_time": one_at_a_time, "delays": dict(delays or {}),
        "patience": explain_patience(patience),
    }  # fmt: skip
    count = whole("count", count, at_least=1)
    with Cluster(roles=roles, engine=engine, environment=ENVIRONMENT, preload=PRELOAD) as started:
        served = started.run(_train, count, asked, until={0}, deadline=deadline, show=show)[0]
    assert isinstance(served, Served)
    return served


def _train(rank: int, count: int, asked: Mapping[str, Any]) -> Served:
    return steps(join(), count, **asked)


def case(what: Literal["one step", "model.fit"], *, one_at_a_time: bool = True) -> Case:
    """A row of the table: Keras' fit, or the one step, with one worker at a time or freely.

    Only one at a time must give the weights of one device.
    """
    programs = {"model.fit": _fit, "one step": _in_turn if one_at_a_time else _freely}
    placed = "chief, 2 workers, 1 server" + ("" if one_at_a_time else ", asynchronous")
    return Case(
        "ParameterServer", placed, what, programs[what], processes=sum(ROLES.values()),
        roles=ROLES, until=frozenset({0}), environment=ENVIRONMENT, serial=one_at_a_time,
    )  # fmt: skip


def _in_turn(rank: int) -> list[Any]:
    chief = Chief(join(), learning_rate=RATE, one_at_a_time=True)
    chief.steps(STEPS)
    return chief.weights()


def _freely(rank: int) -> list[Any]:
    chief = Chief(join())
    chief.steps(STEPS)
    return chief.weights()


def _fit(rank: int) -> list[Any]:
    return fitted(join().strategy)
