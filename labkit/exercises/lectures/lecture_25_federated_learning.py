"""The tasks of lecture 25: federated learning."""

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

from labkit.exercises.judges import federated, frameworks
from labkit.exercises.judges.answers import function, function_task, judged, number
from labkit.exercises.judges.model_parallel import Array, Case, Piece, on_ranks
from labkit.exercises.task import Task, Wrong

WHOLE = 2**32  # masks are whole numbers below it
WEIGH = "Weigh each client by its number of examples."
RESULTS = [*np.random.default_rng(25).normal(size=(4, 6))]


def _shares(results: list[Array], examples: list[int]) -> dict[str, Array]:
    parts = zip(results, examples, strict=True)
    return {f"client {n}": k / sum(examples) * one for n, (one, k) in enumerate(parts)}


def _fed_avg(ranks: int, rounds: int) -> Case:
    """(comm, weights, x, y, local, rounds) → the weights after the last round, on every rank."""
    rng = np.random.default_rng(ranks)
    examples = [3 * rank + 2 for rank in range(ranks)]
    starts = [rng.normal(size=5) for _ in examples]
    sites = [(rng.normal(size=(count, 5)), rng.normal(size=count)) for count in examples]

    def local(weights: Array, x: Array, y: Array) -> Array:
        return weights - 0.3 * np.tanh((x @ weights - y) @ x / len(y))

    weights = starts[0]
    for _ in range(rounds):
        parts = _shares([local(weights, *site) for site in sites], examples)
        weights = np.sum(list(parts.values()), axis=0)
    names = {who.replace("client", "rank"): part for who, part in parts.items()}
    name = f"average after {rounds} round{'s' * (rounds > 1)}"
    advice = "Start from rank 0's weights. In each round train from the last average, and "
    advice += "weigh each rank's result by len(y)."
    given = [(start, *site, local, rounds) for start, site in zip(starts, sites, strict=True)]
    return Case(given, [[Piece(name, names, advice)]] * ranks)


def _label_shards(mine: Callable[..., Any]) -> None:
    for classes, clients in ((10, 20), (4, 8)):
        labels = np.random.default_rng(25).permutation(np.repeat(np.arange(classes), 40))
        found, again, other = (
            [np.asarray(one) for one in mine(labels.copy(), clients, np.random.default_rng(seed))]
            for seed in (1, 1, 2)
        )
        on, each = f"With {len(labels)} labels and {clients} clients", len(labels) // clients
        if len(found) != clients:
            raise Wrong(f"{on} it returned {len(found)} arrays: return one for each client.")
        if sorted(np.concatenate(found).tolist()) != list(range(len(labels))):
            raise Wrong(f"{on}: the index of each example must be in exactly one array.")
        for rows in found:
            if len(rows) != each or len(set(labels[rows])) > 2:
                has = f"{len(rows)} examples of {len(set(labels[rows]))} classes"
                raise Wrong(f"{on}, one has {has}. Two blocks have {each}, of at most 2 classes.")
        if not all(map(np.array_equal, found, again)):
            raise Wrong(f"{on}: one generator gave two splits. Draw with rng, not with np.random.")
        if len({tuple(sorted(rows)) for rows in (*found, *other)}) == clients:
            raise Wrong(f"{on}: another generator makes the same pairs of blocks. Draw both.")


def _masks(mine: Callable[..., Any]) -> None:
    rng, size = np.random.default_rng(25), 1000
    for ranks in (2, 3, 5):
        seeds = np.triu(rng.integers(1, 2**31, (ranks, ranks)), 1)
        seeds += seeds.T
        masks = [np.asarray(mine(rank, row.tolist(), size)) for rank, row in enumerate(seeds)]
        for rank, mask in enumerate(masks):
            if mask.shape != (size,) or mask.dtype != np.uint32:
                text = f"{mask.dtype} of shape {mask.shape}"
                raise Wrong(f"Rank {rank} of {ranks} returned {text}: return uint32, ({size},).")
        if np.sum(masks, axis=0, dtype=np.uint32).any():
            text = "Of each pair, one adds their random numbers and the other subtracts them."
            raise Wrong(f"The masks of {ranks} ranks do not add up to 0 modulo 2³². {text}")
        if np.array_equal(masks[0], mine(0, [0] * ranks, size)):
            raise Wrong("The masks do not depend on seeds: the server can compute them, too.")
        for count in range(1, ranks):
            for some in itertools.combinations(range(ranks), count):
                total = np.sum([masks[k] for k in some], axis=0, dtype=np.uint32) / WHOLE
                if abs(total.mean() - 0.5) > 0.06 or abs(total.std() - 0.29) > 0.03:
                    text = "is not random from 0 to 2³² - 1, so the server learns about updates"
                    raise Wrong(f"On {ranks} ranks, the sum of the masks of {[*some]} {text}.")


def _flower_rounds(rank: int, train: Callable[..., Any], sites: Any, config: Any) -> list[float]:
    """The weights after two rounds: Flower's messages and its FedAvg, with `train` as client."""
    import logging

    import numpy as np
    from flwr.app import ArrayRecord, ConfigRecord, Context, Message, RecordDict
    from flwr.serverapp.strategy import FedAvg
    from flwr.supercore.task_identity import TaskIdentity

    TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1
    logging.getLogger("flwr").setLevel("CRITICAL")
    arrays = ArrayRecord([np.zeros(2)])
    for count in (1, 2):
        replies = []
        for node, site in enumerate(sites):
            given = RecordDict({"arrays": arrays, "config": ConfigRecord(config)})
            message = Message(given, dst_node_id=node, message_type="train")
            replies.append(train(message, Context(1, node, site, RecordDict(), run_config={})))
        arrays, _ = FedAvg().aggregate_train(count, replies)
    weights: list[float] = arrays.to_numpy_ndarrays()[0].tolist()
    return weights


def _flower_client(train: Any) -> None:
    """Two sites; three local steps leave 0.9³ of the distance to the site's target."""
    sites = [{"target": 1.0, "examples": 10}, {"target": 4.0, "examples": 30}]
    config = {"local-steps": 3, "lr": 0.1}
    [found] = frameworks.run("flower", _flower_rounds, train, sites, config, ranks=1)

    def serial(kept: float, share: float = 0.25, less: float = 0) -> Array:
        weights = np.zeros(2)
        for _ in range(2):
            before = weights
            local = [one["target"] + kept * (weights - one["target"]) for one in sites]
            weights = share * local[0] + (1 - share) * local[1] - less * before
        return weights

    if not np.allclose(found, right := serial(0.9**3)):
        mistakes = {
            "It makes one local step, not config['local-steps'].": serial(0.9),
            "It returns the change of the weights: return the weights.": serial(0.9**3, less=1),
            "FedAvg weighs by num-examples: the node's.": serial(0.9**3, 0.5),
        }
        text = f"Two rounds of Flower's FedAvg end at {found}, not at {right}."
        why = (f" {why}" for why, wrong in mistakes.items() if np.allclose(found, wrong))
        raise Wrong(f"{text}{next(why, ' Make all local steps, from the weights of the message.')}")


TASKS = {
    "25.weighted_average": function_task(
        "Write my_average(results, examples): the average of a list of arrays, one for each "
        "client, weighted by the clients' numbers of examples.",
        [(RESULTS[: len(one)], one) for one in ([300, 100], [10, 20, 30, 40], [7])],
        ("Add examples[k] / sum(examples) * results[k] over all clients k.",),
        """
def my_average(results, examples):
    return sum(n / sum(examples) * result for result, n in zip(results, examples))
""",
        "So each example has the same weight, on whichever client it is.",
        slips=[("n / sum(examples)", "1 / len(examples)", WEIGH)],
    ),
    "25.bytes": Task(
        "The CNN of the FedAvg paper has 1,663,370 parameters of 4 bytes. In each of 20 rounds the "
        "server sends the model to 10 clients and receives 10 models. How many MB pass the "
        "server's network card?",
        number(2661.4, "MB", within=0.01),
        ("One model is 6.65 MB.", "10 clients, 20 rounds, two directions."),
        "answer = 2 * 10 * 20 * 1_663_370 * 4 / 1e6",
        "2.7 GB in all, and 133 MB a round. The images of MNIST are 47 MB: federated learning does "
        "not save bytes. It is for data that must not move.",
        slips={1330.7: "One direction.", 133: "One round.", 266.1: "One client."},
    ),
    "25.fed_avg": Task(
        "Write my_fed_avg(comm, weights, x, y, local, rounds) without a server: every rank is a "
        "client with the examples x, y. All begin with rank 0's weights; local(weights, x, y) "
        "returns trained weights. Return the weights after the last round, the same on all ranks.",
        on_ranks(_fed_avg, (2, 1), (3, 3), (1, 2)),
        (
            "programs.broadcast(comm, weights) copies rank 0's array into those of the others.",
            "An all-reduce of len(y) gives the number of all examples: it sums arrays, so use "
            "np.array([float(len(y))]).",
            "In each round: weights = share * local(weights, x, y), then an all-reduce of weights.",
        ),
        """
def my_fed_avg(comm, weights, x, y, local, rounds):
    programs.broadcast(comm, weights)
    total = np.array([float(len(y))])
    programs.ring_all_reduce(comm, total)
    for _ in range(rounds):
        weights = len(y) / total[0] * local(weights, x, y)
        programs.ring_all_reduce(comm, weights)
    return weights
""",
        "A weighted average is an all-reduce. Among a few sites that can reach each other, no "
        "server is needed; phones cannot reach each other.",
        difficulty=2,
    ),
    "25.label_shards": Task(
        "Write my_split(labels, clients, rng), the non-IID split of the FedAvg paper: sort the "
        "examples by label, cut them into 2 * clients equal blocks, and give each client two "
        "blocks at random. Return a list of index arrays, one for each client.",
        function(_label_shards),
        (
            "np.array_split(np.argsort(labels), 2 * clients) gives the blocks.",
            "rng.permutation(2 * clients) is a random order of them: np.concatenate two and two.",
        ),
        """
def my_split(labels, clients, rng):
    blocks = np.array_split(np.argsort(labels, kind="stable"), 2 * clients)
    order = rng.permutation(2 * clients).reshape(clients, 2)
    return [np.concatenate([blocks[one], blocks[two]]) for one, two in order]
""",
        "Most clients know two of ten classes. A split by a Dirichlet distribution is milder, and "
        "has a parameter.",
        difficulty=2,
    ),
    "25.drift": Task(
        "Client 0 has the loss 1/2 · w², client 1 has 3/2 · (w - 4)², and both count the same. "
        "lr = 0.25, and 2 local steps in each round. To which w does FedAvg converge?",
        number(30 / 11, within=0.002),
        (
            "A local step of client 0 multiplies the distance to its minimum, 0, by 1 - 0.25 · 1; "
            "one of client 1 multiplies the distance to 4 by 1 - 0.25 · 3.",
            "After two steps: 0.5625 w, and 4 + 0.0625 (w - 4). w is the mean of both.",
        ),
        "answer = 4 * (1 - 0.0625) / (2 - 0.5625 - 0.0625)",
        "2.73, while the minimum of the sum is at 3. More rounds do not help: 2.73 is the fixed "
        "point. With very many local steps it is 2, the mean of the two minima.",
        difficulty=2,
        slips={3: "With one local step.", 2: "With very many."},
    ),
    "25.within_bytes": Task(
        "Write my_rounds(comm, weights, x, y, local): federated averaging on five hosts. Rank 0 is "
        "the server and has no examples; ranks 1 to 4 have 800 each, which follow different "
        "rules. weights are 1,000 zeros on every rank; local(weights, x, y, epochs) returns "
        "trained weights. Return the weights on rank 0. Choose the local epochs, the rounds and "
        "what is sent: the loss must come down from 2.303 to at most 1.328 (its minimum is 1.305), "
        "and the kernel may count at most 250 kB on any link, in both directions together.",
        judged(federated.rounds_over_links),
        (
            "In a round the server sends 4 × 1,000 weights and receives as many. How many rounds "
            "do 250 kB allow with 8 bytes a weight, and with 4?",
            "weights.astype(np.float32) before Send, and a buffer of float32 for Recv. Headers "
            "and acknowledgements add about 17 % to such short messages.",
            "With 1 local epoch 26 rounds are needed. With 20, client drift keeps the loss above "
            "1.338. Try values between.",
        ),
        """
def my_rounds(comm, weights, x, y, local):
    clients, message = range(1, comm.Get_size()), weights.astype(np.float32)
    for _ in range(5):
        if comm.Get_rank() == 0:
            for client in clients:
                comm.Send(message, dest=client)
            answers = [np.empty_like(message) for _ in clients]
            for client, answer in zip(clients, answers):
                comm.Recv(answer, source=client)
            message = np.mean(answers, axis=0)
        else:
            comm.Recv(message, source=0)
            comm.Send(local(message, x, y, epochs=10).astype(np.float32), dest=0)
    return message
""",
        "Five rounds with 10 local epochs, or six with 5: a compromise between bytes and client "
        "drift. float32 halves the bytes and changes the loss by less than 0.001.",
        difficulty=3,
    ),
    "25.masks": Task(
        "Write my_mask(rank, seeds, size): an array of `size` uint32. seeds[other] is a number "
        "that only this rank and `other` know (seeds[rank] is not used). The masks of all ranks "
        "must add up to 0 modulo 2³², and those of fewer ranks must look random.",
        function(_masks),
        (
            "For each other rank, np.random.default_rng(seeds[other]) gives both the same numbers: "
            ".integers(2**32, size=size, dtype=np.uint32).",
            "The rank with the smaller number adds them, the other subtracts them. uint32 arrays "
            "overflow silently: they compute modulo 2³².",
        ),
        """
def my_mask(rank, seeds, size):
    mask = np.zeros(size, np.uint32)
    for other, seed in enumerate(seeds):
        if other != rank:
            common = np.random.default_rng(seed).integers(2**32, size=size, dtype=np.uint32)
            mask = mask + common if rank < other else mask - common
    return mask
""",
        "The server sees only the sum. Real protocols make the seeds by key exchange and use a "
        "cryptographic generator, which numpy's is not.",
        difficulty=2,
    ),
    "25.flower_client": Task(
        "Write my_client(message, context) for Flower. The loss of a site is half the squared "
        'distance of the weights to context.node_config["target"]. Make config["local-steps"] '
        'steps of gradient descent with config["lr"]. Give node_config["examples"] as '
        '"num-examples" in the metrics.',
        judged(_flower_client),
        (
            'The gradient is weights - node["target"].',
            'metrics = MetricRecord({"num-examples": node["examples"]})',
        ),
        """
def my_client(message, context):
    from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict

    node, config = context.node_config, message.content["config"]
    [weights] = message.content["arrays"].to_numpy_ndarrays()
    for _ in range(config["local-steps"]):
        weights = weights - config["lr"] * (weights - node["target"])
    metrics = MetricRecord({"num-examples": node["examples"]})
    reply = RecordDict({"arrays": ArrayRecord([weights]), "metrics": metrics})
    return Message(content=reply, reply_to=message)
""",
        "FedAvg weighs each reply by its num-examples, as your average does.",
        difficulty=2,
        environment="flower",
    ),
}
