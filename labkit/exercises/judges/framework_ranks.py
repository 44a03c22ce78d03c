"""What ranks of other frameworks' environments do with a student's function.

Apart from the judges, whose truths `labkit grade` keeps from an answer's process.
"""

from collections.abc import Callable
from typing import Any


def horovod_steps(rank: int, my_step: Any, images: Any, labels: Any, start: Any) -> Any:
    """Three steps on a rank's shard, in Horovod's environment; the weights after them."""
    import horovod.tensorflow as hvd  # type: ignore[import-not-found]
    import numpy as np
    import tensorflow as tf

    tf.config.run_functions_eagerly(True)  # to trace Horovod's takes seconds
    hvd.init()
    model = tf.keras.Sequential([tf.keras.layers.Dense(3, use_bias=False, input_shape=(5,))])
    model.set_weights([np.array(start)])
    optimizer = tf.keras.optimizers.SGD(0.5)
    for x, y in zip(images, labels, strict=True):
        mine = slice(rank, None, hvd.size())
        my_step(hvd, tf, model, optimizer, tf.constant(x[mine]), tf.constant(y[mine]))
    return model.get_weights()[0].tolist()  # lists: the versions of NumPy are different


def horovod_start(rank: int, my_start: Any) -> Any:
    """What a rank holds after my_start, in Horovod's environment, and what it held before."""
    import horovod.tensorflow as hvd
    import tensorflow as tf

    hvd.init()
    layers = [tf.keras.layers.Dense(4, input_shape=(3,)), tf.keras.layers.BatchNormalization()]
    model = tf.keras.Sequential(layers)
    model.set_weights([each + rank + 1.0 for each in model.get_weights()])
    before = [each.tolist() for each in model.get_weights()]

    class Resumed(tf.keras.optimizers.SGD):  # type: ignore[misc]
        """Its momenta are other ones on each rank, as after a checkpoint that rank 0 alone read."""

        def build(self, variables: Any) -> None:
            new = not getattr(self, "_built", False)
            super().build(variables)
            for momentum in self.momentums if new else ():
                momentum.assign(tf.fill(momentum.shape, rank + 1.0))

    optimizer = Resumed(0.1, momentum=0.9)
    optimizer.iterations.assign(100 if rank == 0 else 0)
    my_start(hvd, model, optimizer)
    after = [each.tolist() for each in model.get_weights()]
    state = [each.numpy().tolist() for each in optimizer.variables]
    return before, after, int(optimizer.iterations), state


def flower_rounds(rank: int, train: Callable[..., Any], sites: Any, rounds: Any) -> list[float]:
    """The weights after these rounds: Flower's messages and its FedAvg, with `train` as client."""
    import logging

    import numpy as np
    from flwr.app import ArrayRecord, ConfigRecord, Context, Message, RecordDict
    from flwr.serverapp.strategy import FedAvg
    from flwr.supercore.task_identity import TaskIdentity

    TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1
    logging.getLogger("flwr").setLevel("CRITICAL")
    arrays = ArrayRecord([np.zeros(2)])
    contexts = [
        Context(1, node, site, RecordDict(), run_config={}) for node, site in enumerate(sites)
    ]
    for count, config in enumerate(rounds, 1):
        replies = []
        for node, context in [*enumerate(contexts)][count - 1 :]:  # the first takes part once
            given = RecordDict({"arrays": arrays, "config": ConfigRecord(config)})
            message = Message(given, dst_node_id=node, message_type="train")
            replies.append(train(message, context))
        arrays, _ = FedAvg().aggregate_train(count, replies)
    weights: list[float] = arrays.to_numpy_ndarrays()[0].tolist()
    return weights


def torch_cases(_: int, mine: Callable[..., Any], cases: list[dict[str, Any]]) -> Any:
    """What ranks of PyTorch do with the function: they are threads of this one."""
    import torch._dynamo  # named here: imported once, before ranks are forked
    import torch.distributed.checkpoint.state_dict
    import torch.distributed.fsdp

    import labkit.exercises.judges.pytorch.torch_observed

    assert torch
    return labkit.exercises.judges.pytorch.torch_observed.observed(mine, cases)
