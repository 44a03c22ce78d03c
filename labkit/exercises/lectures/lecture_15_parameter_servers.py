"""The tasks of lecture 15: parameter servers, and processes that fail."""

from labkit.exercises.judges.answers import number, word
from labkit.exercises.judges.cluster_loops import cluster_config, coordinator_loop, restarted_loop
from labkit.exercises.judges.server_loop import examine_two_servers
from labkit.exercises.task import Task

TASKS = {
    "15.lost_update": Task(
        "A counter on the server holds 5. Two workers read it, each adds 1 to what it read, each "
        "writes its result. What does the counter hold?",
        number(6),
        ("Both workers have read the same number.", "What does each of them write?"),
        """
counter = 5
first = counter  # both read before one of them writes
second = counter
counter = first + 1
counter = second + 1
answer = counter
""",
        "A race condition: an unsynchronised read-modify-write loses updates.",
        slips={7: "Both have read 5, and both write 6: one update is lost."},
    ),
    "15.parameter_server": Task(
        "Machine a is the chief, b, c and d are workers, e is the parameter server; all listen on "
        "port 12345. Write the TF_CONFIG of e.",
        cluster_config("ps 0", chief="a:12345", worker="b:12345 c:12345 d:12345", ps="e:12345"),
        (
            "Three roles: chief, worker and ps, each a list of addresses.",
            "The index counts within a role, from 0.",
        ),
        """
my_servers_config = {
    "cluster": {
        "chief": ["a:12345"],
        "worker": ["b:12345", "c:12345", "d:12345"],
        "ps": ["e:12345"],
    },
    "task": {"type": "ps", "index": 0},
}
""",
        "The fifth machine is rank 4, and ps 0: ranks count through all roles, indices do not.",
    ),
    "15.schedule": Task(
        "Write my_lead(coordinator, make_model, make_dataset, steps): the workers make so many "
        "steps with SGD, learning rate 0.1. Return the model, and the number of updates as "
        "counted by a variable on the parameter server.",
        coordinator_loop,
        (
            "Make the model, the optimizer and the counter (a tf.Variable) inside "
            "coordinator.strategy.scope().",
            "A tf.function takes an iterator and makes one step with strategy.run; "
            "coordinator.create_per_worker_dataset(make_dataset) gives each worker its iterator.",
            "coordinator.schedule(step, args=(batches,)) for each step, then coordinator.join(). "
            "Count with assign_add inside the step.",
        ),
        """
import keras
import tensorflow as tf

def my_lead(coordinator, make_model, make_dataset, steps):
    strategy = coordinator.strategy
    with strategy.scope():
        model, optimizer = make_model(), keras.optimizers.SGD(0.1)
        updates = tf.Variable(0, dtype=tf.int64)

    def replica_step(images, labels):
        with tf.GradientTape() as tape:
            logits = model(images, training=True)
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
            loss = tf.reduce_mean(losses)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))

    @tf.function
    def step(batches):
        strategy.run(replica_step, args=next(batches))
        updates.assign_add(1)

    batches = iter(coordinator.create_per_worker_dataset(make_dataset))
    for _ in range(steps):
        coordinator.schedule(step, args=(batches,))
    coordinator.join()
    return model, updates.numpy()
""",
        "The workers made every step once, and the counter lost none.",
        difficulty=3,
    ),
    "15.restart": Task(
        "Write my_worker(strategy, make_model, dataset, global_batch, folder): train one pass with "
        "SGD, learning rate 0.1, momentum 0.9, and save a checkpoint in the folder after every "
        "second step. Started again, it restores the newest one and goes on with the next step. "
        "Return the model. Two workers run it; worker 1 is killed in step 5, and both start again.",
        restarted_loop,
        (
            "Which four things must a checkpoint hold, so that the training goes on as if nothing "
            "had happened? The momentum is one of them.",
            "done = tf.Variable(0, dtype=tf.int64) in the scope counts the steps. It belongs into "
            "tf.train.Checkpoint(model=model, optimizer=optimizer, done=done).",
            "dataset.batch(global_batch).skip(int(done)) begins with the next batch. Call "
            "optimizer.build(model.trainable_variables) before restore: then there is a momentum "
            "to restore.",
        ),
        """
import keras
import tensorflow as tf

def my_worker(strategy, make_model, dataset, global_batch, folder):
    with strategy.scope():
        model, optimizer = make_model(), keras.optimizers.SGD(0.1, momentum=0.9)
        optimizer.build(model.trainable_variables)
        done = tf.Variable(0, dtype=tf.int64)
        checkpoint = tf.train.Checkpoint(model=model, optimizer=optimizer, done=done)
    checkpoint.restore(tf.train.latest_checkpoint(folder))

    @tf.function
    def train_step(images, labels):
        def step(images, labels):
            with tf.GradientTape() as tape:
                logits = model(images, training=True)
                losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
                loss = tf.nn.compute_average_loss(losses, global_batch_size=global_batch)
            gradients = tape.gradient(loss, model.trainable_variables)
            optimizer.apply_gradients(zip(gradients, model.trainable_variables))

        strategy.run(step, args=(images, labels))

    left = dataset.batch(global_batch).skip(int(done.numpy()))
    for images, labels in strategy.experimental_distribute_dataset(left):
        train_step(images, labels)
        done.assign_add(1)
        if done.numpy() % 2 == 0 and strategy.cluster_resolver.task_id == 0:
            checkpoint.save(f"{folder}/step")
    return model
""",
        "Killed and started again, it ends with the weights of a training without a failure.",
        difficulty=3,
    ),
    "15.server_bytes": Task(
        "A model of 400 MB, 8 workers, 4 parameter servers that share the weights evenly. Each "
        "worker makes one step: it fetches all weights and sends all gradients. How many MB pass "
        "through each server?",
        number(1600, "MB"),
        (
            "First all bytes: each of 8 workers moves the model twice.",
            "Each server has a quarter of the weights, and so a quarter of the bytes.",
        ),
        """
one_worker = 400 + 400  # weights and gradients
answer = 8 * one_worker / 4
""",
        "With one server it would be 6.4 GB: its traffic grows with the number of workers.",
        difficulty=2,
        slips={6400: "All four servers together carry this.", 800: "Each way counts."},
    ),
    "15.two_servers": Task(
        "Write my_training(comm, weights, gradient, steps). Ranks 0 and 1 are servers, each of one "
        "half: np.array_split(weights, 2). All others are workers: in each step a worker pulls "
        "both halves, calls gradient(weights), and pushes half of the gradient to each server. "
        "When all workers have, a server subtracts 0.1 × the sum. At the end it returns its half. "
        "The link of each server must carry half of the bytes.",
        examine_two_servers,
        (
            "halves = np.array_split(weights, 2) are views: what Recv writes into halves[0] is in "
            "weights, too.",
            "A server has two loops in each step: Send its half to each worker, then Recv a "
            "part of the gradient from each.",
            "A worker: Recv from rank 0 and from rank 1, gradient(weights), then two Sends of "
            "np.array_split(gradient(weights), 2).",
        ),
        """
import numpy as np

def my_training(comm, weights, gradient, steps):
    rank, workers = comm.Get_rank(), range(2, comm.Get_size())
    halves = np.array_split(weights, 2)
    for _ in range(steps):
        if rank < 2:
            mine, total = halves[rank], 0
            for worker in workers:
                comm.Send(mine, dest=worker)
            for worker in workers:
                part = np.empty_like(mine)
                comm.Recv(part, source=worker)
                total = total + part
            mine -= 0.1 * total
        else:
            for server in (0, 1):
                comm.Recv(halves[server], source=server)
            parts = np.array_split(gradient(weights), 2)
            for server in (0, 1):
                comm.Send(parts[server], dest=server)
    return halves[rank] if rank < 2 else None
""",
        "Each of two links carries half: with as many servers as needed, none is a bottleneck.",
        difficulty=3,
    ),
    "15.which_strategy": Task(
        "One machine has four GPUs of 40 GB and 512 GB of main memory. The weights of your model "
        "take 100 GB, and each step touches a small part of them. Which strategy of TensorFlow is "
        "made for that?",
        word("CentralStorageStrategy"),
        ("A mirrored variable has a copy on every GPU.", "Where would one copy for all fit?"),
        'answer = "CentralStorageStrategy"  # 100 GB fit into 512 GB once, and into no GPU of 40',
        "One copy, in main memory. It is still called experimental, and is for one machine.",
    ),
    "15.which_fault": Task(
        "Synchronous workers train, and one has a fault. After which do all workers stop making "
        "steps, though no process has ended and no connection is closed: "
        '"kill", "hang" or "slow"?',
        word("hang"),
        (
            "Which fault did the others notice at once?",
            "After which did they continue to make steps?",
        ),
        'answer = "hang"  # a killed process closes its connections, a slow one still makes steps',
        "A dead process closes its connections; a hanging one does not. A timeout finds it, or a "
        "heartbeat if the whole process is stopped.",
    ),
    "15.failures": Task(
        "A machine fails once in 1,095 days, on average. Your training runs on 500 of them, and "
        "one failure stops it. How many hours does it run between two failures, on average?",
        number(52.56, "hours", within=0.01),
        ("500 machines fail 500 times as often as one.", "A day has 24 hours."),
        """
days = 1095 / 500
answer = days * 24
""",
        "Every two days. On a large cluster restarts are normal: the program must support them.",
        slips={26280: "This is for one machine. 500 machines fail 500 times as often."},
    ),
    "15.lost_work": Task(
        "A step takes 0.2 s, a checkpoint is written after every 100 steps, and a worker is killed "
        "right after step 374. How many seconds of training are done again?",
        number(14.8, "s", within=0.01),
        ("After which step was the last checkpoint written?", "How many steps came after it?"),
        """
last_checkpoint = 374 // 100 * 100
answer = (374 - last_checkpoint) * 0.2
""",
        "Steps 301 to 374. On average half of the interval is lost.",
        slips={74.8: "It goes on from the last checkpoint.", 74: "That is the number of steps."},
    ),
    "15.checkpoint_interval": Task(
        "Writing a checkpoint takes 6 s. On average 6 hours pass between two failures. After how "
        "many seconds of training should the next checkpoint be written?",
        number(509.1, "s", within=0.02),
        (
            "The square root of 2 × seconds to write × seconds between failures.",
            "6 hours are 21,600 seconds.",
        ),
        """
from math import sqrt

answer = sqrt(2 * 6 * (6 * 3600))
""",
        "About eight and a half minutes; then writing and doing again cost about 1.2 % each.",
        difficulty=2,
        slips={360: "There is a 2 under the root.", 259200: "Take the square root."},
    ),
}
