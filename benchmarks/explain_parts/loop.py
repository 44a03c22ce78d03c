"""A training loop with steps of about 5 ms: it takes as many steps as a line of its input says.

    python loop.py torch|tensorflow

It answers with a line: seconds by the clock, and seconds of CPU of this process.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

WIDTH, BATCH = 512, 64


def torch_steps() -> Callable[[int], None]:
    import torch

    torch.set_num_threads(1)
    layers = [torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU()] * 4
    model = torch.nn.Sequential(*layers, torch.nn.Linear(WIDTH, 10))
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    data = torch.utils.data.TensorDataset(torch.randn(4096, WIDTH), torch.randint(10, (4096,)))
    source = endless(torch.utils.data.DataLoader(data, BATCH, shuffle=True))

    def steps(count: int) -> None:
        total = 0.0
        for _ in range(count):
            x, y = next(source)
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            total += loss.item()

    return steps


def tensorflow_steps() -> Callable[[int], None]:
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    weights = [tf.Variable(tf.random.normal([WIDTH, WIDTH], stddev=0.05)) for _ in range(5)]
    data = tf.data.Dataset.from_tensor_slices(
        (tf.random.normal([4096, WIDTH]), tf.random.uniform([4096], maxval=10, dtype=tf.int32))
    )
    source = endless(data.shuffle(4096).batch(BATCH))

    @tf.function
    def step(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            for one in weights[:-1]:
                x = tf.nn.relu(x @ one)
            logits = x @ weights[-1]
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(y, logits)
            loss = tf.reduce_mean(losses)
        for one, slope in zip(weights, tape.gradient(loss, weights), strict=True):
            one.assign_sub(0.01 * slope)
        return loss

    def steps(count: int) -> None:
        total = 0.0
        for _ in range(count):
            total += float(step(*next(source)))

    return steps


def endless(batches: Any) -> Iterator[Any]:
    while True:
        yield from batches


if __name__ == "__main__":
    run = {"torch": torch_steps, "tensorflow": tensorflow_steps}[sys.argv[1]]()
    run(30)
    print("ready", flush=True)
    for line in sys.stdin:
        clock, cpu = time.perf_counter(), time.process_time()
        run(int(line))
        print(json.dumps([time.perf_counter() - clock, time.process_time() - cpu]), flush=True)
