"""Traces for lecture 19: `python traces.py two_ranks waits a b c d e f` writes 19_* here.

The lecture asks what is wrong with which of a to f. Solve `19.causes` before you read on.
"""

import gzip
import sys
import tempfile
from pathlib import Path

import labkit

FOLDER = Path(__file__).parent
STEPS = 3
CASES = {
    "two_ranks": "fine",
    "waits": "late",
    "a": "straggler",
    "b": "fine",
    "c": "input",
    "e": "small operations",
    "f": "no overlap",
}


def train(rank, folder, case):  # noqa: C901 (one program, all cases)
    """Trains with PyTorch, and writes the trace of the last steps."""
    import time

    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel
    from torch.profiler import profile, schedule

    torch.set_num_threads(1)
    if case != "small operations":
        dist.init_process_group("gloo")
    torch.manual_seed(0)
    small, by_hand = case == "small operations", case == "no overlap"
    width, rows, layers = (32, 20, 3) if small else (1024, 128, 4) if by_hand else (512, 1024, 6)
    model = nn.Sequential(*[nn.Linear(width, width, bias=False) for _ in range(layers)])
    replica = model if small or by_hand else DistributedDataParallel(model, bucket_cap_mb=1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    class Images(torch.utils.data.Dataset):
        def __len__(self):
            return rows * 20

        def __getitem__(self, at):
            if case == "input" and at % 8 == 0:
                time.sleep(0.001)  # a file that is read and decoded
            return torch.ones(width)

        def __getitems__(self, places):
            return [self[at] for at in places] if case == "input" else torch.ones(rows, width)

    loader = torch.utils.data.DataLoader(Images(), rows, collate_fn=lambda found: (
        torch.stack(found) if case == "input" else found))  # fmt: skip
    batches = iter(loader)

    def step():
        x = next(batches)
        optimizer.zero_grad()
        if (case, rank) in (("straggler", 1), ("late", 0)):
            for _ in range(2):
                model(x)
        if small:
            loss = torch.stack([model(row).square().mean() for row in x]).mean()
        else:
            loss = replica(x).square().mean()
        loss.backward()
        if by_hand:
            for one in model.parameters():
                dist.all_reduce(one.grad)
        optimizer.step()

    def save(one):
        one.export_chrome_trace(f"{folder}/{rank}.json.gz")

    plan = schedule(wait=0, warmup=4, active=STEPS + 1, repeat=1)
    with profile(schedule=plan, on_trace_ready=save) as recorder:
        for _ in range(4 + STEPS):
            step()
            recorder.step()
        time.sleep(0.1)  # gloo's threads write to the profile until their spans end
        recorder.step()
    replica = None  # before its group ends
    if dist.is_initialized():
        dist.destroy_process_group()


def keras_steps(folder):
    """Trains with TensorFlow while threads of tf.data prepare the next batches."""
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(1)
    weights = [tf.Variable(tf.random.normal((512, 512)) / 23) for _ in range(5)]

    def prepare(number):
        x = tf.random.stateless_normal((900, 512), (0, number))
        return tf.sort(x)[:512]

    numbers = tf.data.Dataset.range(100)
    batches = iter(numbers.map(prepare, num_parallel_calls=1).prefetch(2))

    @tf.function
    def step(x):
        with tf.GradientTape() as tape:
            for one in weights:
                x = tf.nn.relu(x @ one)
            loss = tf.reduce_mean(x**2)
        for one, gradient in zip(weights, tape.gradient(loss, weights), strict=True):
            one.assign_sub(0.01 * gradient)
        return loss

    for _ in range(5):
        float(step(next(batches)))
    tf.profiler.experimental.start(folder)
    for number in range(STEPS):
        with tf.profiler.experimental.Trace("train", step_num=number, _r=1):
            float(step(next(batches)))
    tf.profiler.experimental.stop()


def record(letter, folder):
    """Writes the traces of one case, which other programs should not disturb."""
    if letter == "d":
        keras_steps(folder)
        [found] = Path(folder).rglob("*.xplane.pb")
        (FOLDER / "19_d.xplane.pb.gz").write_bytes(gzip.compress(found.read_bytes(), mtime=0))
        return
    ranks = 1 if CASES[letter] == "small operations" else 2
    with labkit.cluster(ranks=ranks, environment="torch") as c:
        c.run(train, folder, CASES[letter], timeout=120, show=False)
    for rank in range(ranks):
        target = FOLDER / f"19_{letter}_rank{rank}.json.gz"
        target.write_bytes((Path(folder) / f"{rank}.json.gz").read_bytes())


if __name__ == "__main__":
    for letter in sys.argv[1:]:
        with tempfile.TemporaryDirectory() as folder:
            record(letter, folder)
