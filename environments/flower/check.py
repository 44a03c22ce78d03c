"""Two ranks, each a client of a real FedAvg on rank 0: the result is their mean, by examples."""

import logging
import os
import sys
from contextlib import suppress
from multiprocessing.connection import Client, Listener

import numpy as np
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg
from flwr.supercore.task_identity import TaskIdentity  # real nodes get theirs from a SuperLink

logging.getLogger("flwr").setLevel("WARNING")
rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 2
address = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, rank, 1
app = ClientApp()


@app.train()
def train(message, context):
    """Add the rank to the weights; client r has r + 1 examples."""
    print(f"client {rank} trains")
    weights = [array + rank for array in message.content["arrays"].to_numpy_ndarrays()]
    metrics = MetricRecord({"num-examples": rank + 1, "loss": 0.0})
    content = {"arrays": ArrayRecord(weights), "metrics": metrics}
    return Message(content=RecordDict(content), reply_to=message)


def answer(message):
    """What the client of this rank replies."""
    context = Context(run_id=1, node_id=rank, node_config={}, state=RecordDict(), run_config={})
    return app(message, context)


class Connections(Grid):
    """Messages to clients in other processes; FedAvg calls two of these methods."""

    def __init__(self, clients):
        self.clients = clients

    def get_node_ids(self):
        return [*self.clients]

    def send_and_receive(self, messages, *, timeout=None):
        asked = list(messages)
        for message in asked:
            if message.metadata.dst_node_id in self.clients:
                self.clients[message.metadata.dst_node_id].send(message)
        return [self.clients[message.metadata.dst_node_id].recv() for message in asked]

    def _unused(self, *arguments, **keywords):
        raise NotImplementedError

    run = property(_unused)
    set_run = create_message = push_messages = pull_messages = _unused


class Here:
    """The client of rank 0 itself."""

    def send(self, message):
        self.reply = answer(message)

    def recv(self):
        return self.reply


if rank == 0:
    with Listener(address, backlog=ranks) as listener:
        clients = {0: Here()}
        for _ in range(ranks - 1):
            connection = listener.accept()
            clients[connection.recv()] = connection
    strategy = FedAvg(fraction_evaluate=0.0, min_available_nodes=ranks, min_train_nodes=ranks)
    start = ArrayRecord([np.zeros(3)])
    result = strategy.start(grid=Connections(clients), initial_arrays=start, num_rounds=rounds)
    (weights,) = result.arrays.to_numpy_ndarrays()
    wanted = rounds * sum(r * (r + 1) for r in range(ranks)) / sum(range(1, ranks + 1))
    np.testing.assert_allclose(weights, wanted)
    print(f"FedAvg over {ranks} clients in {rounds} rounds: {weights[0]:.4f}, as it must be")
    for other in range(1, ranks):
        clients[other].send(None)
else:
    connection = None
    while connection is None:
        with suppress(ConnectionRefusedError):  # until rank 0 listens
            connection = Client(address)
    connection.send(rank)
    while (message := connection.recv()) is not None:
        connection.send(answer(message))
