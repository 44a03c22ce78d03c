"""Which worker reads which images: tf.data's sharding policies, found out by reading.

>>> labkit.strategies.sharding(ranks=2, images=16, batch=8, files=2)      # doctest: +SKIP
"""

from __future__ import annotations

import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from labkit.arguments import whole
from labkit.cluster import Cluster
from labkit.hardware import machine_text
from labkit.hardware.devices import import_tensorflow
from labkit.kinds import Kind, measured
from labkit.shown import ShownAsTable
from labkit.strategies.tf_errors import explain
from labkit.strategies.workers import workers

if TYPE_CHECKING:
    from labkit.views.table import Table

POLICIES = ("auto", "data", "file", "off")
TIMEOUT = 60.0  # seconds for one policy


@dataclass(frozen=True)
class Shard:
    """What a worker read in an epoch under a policy: its part of each global batch."""

    policy: str
    worker: int
    batches: tuple[tuple[int, ...], ...]
    why: str = ""
    """Why it could read nothing."""

    def __str__(self) -> str:
        return " | ".join(" ".join(map(str, batch)) or "–" for batch in self.batches) or "–"


@dataclass(frozen=True, repr=False)
class Sharding(ShownAsTable):
    """The images that each worker read, under each of tf.data's policies."""

    workers: int
    images: int
    batch: int
    files: int
    shards: tuple[Shard, ...]
    kind: Kind

    def verdict(self, policy: str) -> str:
        """Returns how often each image was read in an epoch under this policy."""
        shards = [shard for shard in self.shards if shard.policy == policy]
        if shards[0].why:
            return shards[0].why
        seen = Counter(image for shard in shards for batch in shard.batches for image in batch)
        times = [seen[image] for image in range(self.images)]
        if set(times) == {1}:
            return "every image once"
        if set(times) == {self.workers}:
            return f"every image {self.workers} times, once on each worker"
        return f"images {min(times)} to {max(times)} times, {times.count(0)} of them never"

    def table(self) -> Table:
        """Returns a row for each policy."""
        from labkit.views.table import Table

        source = "memory" if not self.files else f"{self.files} file{'s' * (self.files > 1)}"
        title = f"{self.images} images from {source}, global batch {self.batch}; | ends a batch"
        head = ["policy", *(f"worker {n} reads" for n in range(self.workers)), "in one epoch"]
        read = {(shard.policy, shard.worker): str(shard) for shard in self.shards}
        rows = [
            [policy, *(read[policy, n] for n in range(self.workers)), self.verdict(policy)]
            for policy in POLICIES
        ]
        return Table(head, rows, title, f"{self.kind}.", prose=True)


def sharding(ranks: int = 2, images: int = 16, batch: int = 8, files: int = 2) -> Sharding:
    """Let workers read the numbers of images once under each policy.

    The images are in `files` files, or in memory with files=0.
    """
    ranks, files = whole("ranks", ranks, at_least=2), whole("files", files)
    images, batch = whole("images", images, at_least=1), whole("batch", batch, at_least=ranks)
    shards: list[Shard] = []
    with tempfile.TemporaryDirectory(prefix="labkit-shards-") as folder, Cluster(ranks) as c:
        paths = [f"{folder}/images-{n}.txt" for n in range(files)]
        for n, path in enumerate(paths):
            numbers = range(n * images // files, (n + 1) * images // files)
            Path(path).write_text("".join(f"{image}\n" for image in numbers), encoding="utf-8")
        for policy in POLICIES:
            # Fresh processes for each: a worker that finds no file breaks every later collective.
            run = c.start(_read, policy, paths, images, batch, show=False)
            outcome = run.finish(TIMEOUT)
            why = explain(outcome, TIMEOUT)
            read = {} if why else outcome.results
            shards += [Shard(policy, rank, read.get(rank, ()), why) for rank in range(ranks)]
    return Sharding(ranks, images, batch, files, tuple(shards), measured(machine_text()))


def _read(
    rank: int, policy: str, paths: list[str], images: int, batch: int
) -> tuple[tuple[int, ...], ...]:
    """On a worker, returns its part of every global batch of an epoch."""
    tf = import_tensorflow()
    strategy = workers().strategy()
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = getattr(
        tf.data.experimental.AutoShardPolicy, policy.upper()
    )
    source = tf.data.Dataset.range(images)
    if paths:
        lines = tf.data.TextLineDataset(paths)
        source = lines.map(lambda line: tf.strings.to_number(line, tf.int64))
    pipeline = source.batch(batch).with_options(options)
    return tuple(
        tuple(int(n) for part in strategy.experimental_local_results(each) for n in part)
        for each in strategy.experimental_distribute_dataset(pipeline)
    )
