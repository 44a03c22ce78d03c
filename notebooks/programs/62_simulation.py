"""Flower's simulator: a strategy of your own, and an evaluation of the global model in each round.

    python 62_simulation.py fedavg 8        # or: median; 8 rounds

Six clients run in the processes of Ray on this machine. Client 5 is broken: the weights that it
sends are ten times too large. It needs flwr[simulation] and numpy.
"""

import logging
import sys

import numpy as np
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation

CLIENTS = 6
logging.getLogger("flwr").setLevel("ERROR")

# --- The clients.


def site(number):
    """The examples of a site: 20 of site 0, 40 of site 1, …; all follow one rule."""
    rng = np.random.default_rng(number)
    x = rng.normal(size=(20 * (number + 1), 4))
    return x, x @ [1.0, -2.0, 3.0, -1.0] + 0.1 * rng.normal(size=len(x))


def loss(weights, x, y):
    return float(np.mean((x @ weights - y) ** 2))


client = ClientApp()


@client.train()
def train(message, context):
    number = context.node_config["partition-id"]
    x, y = site(number)
    [weights] = message.content["arrays"].to_numpy_ndarrays()
    for _ in range(5):
        weights = weights - 0.1 * (x @ weights - y) @ x / len(y)
    if number == CLIENTS - 1:
        weights = 10 * weights  # the broken client
    metrics = MetricRecord({"num-examples": len(y)})
    reply = RecordDict({"arrays": ArrayRecord([weights]), "metrics": metrics})
    return Message(content=reply, reply_to=message)


@client.evaluate()
def evaluate(message, context):
    x, y = site(context.node_config["partition-id"])
    [weights] = message.content["arrays"].to_numpy_ndarrays()
    metrics = MetricRecord({"loss": loss(weights, x, y), "num-examples": len(y)})
    return Message(content=RecordDict({"metrics": metrics}), reply_to=message)


# --- The server, and a strategy of its own.


class Median(FedAvg):
    """FedAvg with the median of each weight in place of the mean."""

    def aggregate_train(self, server_round, replies):
        """The new weights, and the metrics of FedAvg."""
        replies = list(replies)
        _, metrics = super().aggregate_train(server_round, replies)
        every = [reply.content["arrays"].to_numpy_ndarrays()[0] for reply in replies]
        return ArrayRecord([np.median(every, axis=0)]), metrics


def on_the_server(server_round, arrays):
    """Of the global model, on examples that only the server has."""
    [weights] = arrays.to_numpy_ndarrays()
    return MetricRecord({"loss": loss(weights, *site(99))})


server = ServerApp()


@server.main()
def main(grid, context):
    strategy = {"fedavg": FedAvg, "median": Median}[sys.argv[1]]()
    result = strategy.start(
        grid=grid,
        initial_arrays=ArrayRecord([np.zeros(4)]),
        num_rounds=int(sys.argv[2]),
        evaluate_fn=on_the_server,
    )
    for number, clients in result.evaluate_metrics_clientapp.items():
        here, there = result.evaluate_metrics_serverapp[number]["loss"], clients["loss"]
        print(f"round {number}: loss {here:.8g} on the server, {there:.8g} on the clients")
    [weights] = result.arrays.to_numpy_ndarrays()
    print("weights", *(f"{one:.8f}" for one in weights))


if __name__ == "__main__":
    quiet = {"_node_ip_address": "127.0.0.1", "log_to_driver": False, "logging_level": "ERROR"}
    backend = {"init_args": quiet, "client_resources": {"num_cpus": 1}}
    run_simulation(server, client, CLIENTS, backend_config=backend)
