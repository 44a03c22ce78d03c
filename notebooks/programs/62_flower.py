"""Federated averaging with Flower: rank 0 is the server, every rank is a client.

    export WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=29500
    RANK=0 python 62_flower.py 10 5 & RANK=1 python 62_flower.py 10 5

These are 10 rounds of 5 local steps on two ranks; labkit.cluster sets the same variables. It needs
Flower and numpy. The lecture "Federated learning" reads its first part, which is a Flower app: on
real sites `flwr run` takes it as it is. The second part carries the messages here, without a
SuperLink.
"""

import logging
import os
import sys
import time
from multiprocessing.connection import Client, Listener

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.supercore.task_identity import TaskIdentity  # real nodes get theirs from a SuperLink

logging.getLogger("flwr").setLevel("ERROR")

# --- The program of the lecture begins here.


def site(number):
    """The examples of a site: 20 of site 0, 40 of site 1, …; no two sites are alike."""
    rng = np.random.default_rng(number)
    x = rng.normal(size=(20 * (number + 1), 4)) + number
    return x, x @ [1.0, -2.0, 3.0, -1.0] + number


def local(weights, x, y, steps):
    """Gradient descent on half the mean squared error of a linear model."""
    for _ in range(steps):
        weights = weights - 0.02 * (x @ weights - y) @ x / len(y)
    return weights


client = ClientApp()


@client.train()
def train(message, context):
    x, y = site(context.node_config["partition-id"])
    [weights] = message.content["arrays"].to_numpy_ndarrays()
    weights = local(weights, x, y, message.content["config"]["local-steps"])
    metrics = MetricRecord({"num-examples": len(y)})
    reply = RecordDict({"arrays": ArrayRecord([weights]), "metrics": metrics})
    return Message(content=reply, reply_to=message)


server = ServerApp()


@server.main()
def main(grid, context):
    strategy = FedAvg(fraction_train=1.0, fraction_evaluate=0.0)
    result = strategy.start(
        grid=grid,
        initial_arrays=ArrayRecord([np.zeros(4)]),
        num_rounds=context.run_config["num-server-rounds"],
        train_config=ConfigRecord({"local-steps": context.run_config["local-steps"]}),
    )
    [weights] = result.arrays.to_numpy_ndarrays()
    print("weights", *(f"{one:.9f}" for one in weights))


# --- The program of the lecture ends here. What follows stands for the SuperLink.


class Connections(Grid):
    """Messages to clients in other processes; a strategy calls two of these methods."""

    def __init__(self, clients, here):
        self.clients, self.here = clients, here

    def get_node_ids(self):
        """One client on each rank."""
        return [0, *self.clients]

    def send_and_receive(self, messages, *, timeout=None):
        """Let all clients train at the same time; their replies."""
        by_rank = {message.metadata.dst_node_id: message for message in messages}
        own = by_rank.pop(0, None)
        for other, message in by_rank.items():
            self.clients[other].send(message)
        replies = [] if own is None else [client(own, self.here)]
        return replies + [self.clients[other].recv() for other in by_rank]

    def _unused(self, *arguments, **keywords):
        raise NotImplementedError

    run = property(_unused)
    set_run = create_message = push_messages = pull_messages = _unused


def run_rank(rank, ranks, address, config):
    """One process of this job: rank 0 is the server and a client, the others are clients."""
    TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, rank, 1
    here = Context(1, rank, {"partition-id": rank}, state=RecordDict(), run_config=config)
    if rank == 0:
        clients = {}
        with Listener(address, backlog=ranks) as listener:
            for _ in range(ranks - 1):
                connection = listener.accept()
                clients[connection.recv()] = connection
        server(Connections(clients, here), here)
        for connection in clients.values():
            connection.send(None)
        return
    connection, count = None, 0
    while connection is None:
        try:
            connection = Client(address)
        except ConnectionRefusedError:  # until rank 0 listens
            time.sleep(0.05)
    connection.send(rank)
    while (message := connection.recv()) is not None:
        connection.send(client(message, here))
        count += 1
    print(f"{count} messages answered; the examples stayed on rank {rank}")


if __name__ == "__main__":
    if len(sys.argv) != 3 or "RANK" not in os.environ:
        sys.exit(__doc__)
    rounds, steps = (int(one) for one in sys.argv[1:])
    run_rank(
        int(os.environ["RANK"]),
        int(os.environ["WORLD_SIZE"]),
        (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])),
        {"num-server-rounds": rounds, "local-steps": steps},
    )
