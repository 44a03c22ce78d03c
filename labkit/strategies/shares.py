"""Who reads what: how tf.data shares a data set among workers, found out by reading it.

>>> labkit.strategies.sharing(ranks=2, images=16, files=2)      # doctest: +SKIP
"""

from __future__ import annotations

import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from labkit import plain
from labkit.hardware import machine_text
from labkit.hardware.devices import import_tensorflow
from labkit.kinds import Kind, LabError, measured
from labkit.strategies.many_workers import workers
from labkit.strategies.reasons import plainly, why

__all__ = ["POLICIES", "Share", "Sharing", "read_share", "sharing"]

POLICIES = ("auto", "data", "file", "off")


@plain.stored
@dataclass(frozen=True)
class Share:
    """What one worker read in an epoch under one policy: its part of each global batch."""

    policy: str
    worker: int
    batches: tuple[tuple[int, ...], ...]
    fault: str = ""
    """Why it could read nothing."""


@plain.stored
@dataclass(frozen=True)
class Sharing:
    """The images that each worker read, under each of tf.data's policies."""

    workers: int
    images: int
    batch: int
    files: int
    shares: tuple[Share, ...]
    kind: Kind

    def of(self, policy: str) -> tuple[Share, ...]:
        """Each worker's share under a policy."""
        return tuple(share for share in self.shares if share.policy == policy)

    def verdict(self, policy: str) -> str:
        """What an epoch under this policy comes to."""
        shares = self.of(policy)
        if shares[0].fault:
            return shares[0].fault
        seen = Counter(image for share in shares for batch in share.batches for image in batch)
        times = {seen.get(image, 0) for image in range(self.images)}
        if times == {1}:
            return "every image once"
        if times == {self.workers}:
            return f"every image {self.workers} times, once on each worker"
        missing = sum(1 for image in range(self.images) if not seen.get(image))
        return f"images {min(times)} to {max(times)} times, {missing} of them never"

    def rows(self) -> list[tuple[str, ...]]:
        """Policy, what each worker read, and what that comes to."""
        return [
            (policy, *(_batches(share) for share in self.of(policy)), self.verdict(policy))
            for policy in dict.fromkeys(share.policy for share in self.shares)
        ]

    def head(self) -> tuple[str, ...]:
        """The heads of the rows."""
        return ("policy", *(f"worker {n} reads" for n in range(self.workers)), "in one epoch")

    def title(self) -> str:
        """What was read."""
        source = f"{self.files} files" if self.files > 1 else "one file"
        if not self.files:
            source = "memory"
        return f"{self.images} images from {source}, global batch {self.batch}; | ends a batch"

    def __str__(self) -> str:
        lines = [self.head(), *self.rows()]
        wide = [max(len(line[i]) for line in lines) for i in range(len(lines[0]) - 1)]
        shown = [
            "  ".join([*(c.ljust(w) for c, w in zip(line[:-1], wide, strict=True)), line[-1]])
            for line in lines
        ]
        return "\n".join([self.title(), *shown, f"{self.kind}"])

    __repr__ = __str__

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        from labkit.views.table import table

        html = table(self.head(), self.rows(), self.title(), f"{self.kind}.", prose=True)
        return {"text/plain": str(self), "text/html": html}


def _batches(share: Share) -> str:
    return " | ".join(" ".join(map(str, batch)) or "–" for batch in share.batches) or "–"


def sharing(
    ranks: int = 2, images: int = 16, batch: int = 8, files: int = 2, deadline: float = 60.0
) -> Sharing:
    """Let workers read the numbers of images once, and note who got which.

    >>> labkit.strategies.sharing(files=0)                    # doctest: +SKIP

    The images lie in `files` files, or in memory with files=0.
    """
    from labkit.cluster import Cluster

    for name, value, least in (
        ("ranks", ranks, 2),
        ("images", images, 1),
        ("batch", batch, ranks),
        ("files", files, 0),
    ):
        if not isinstance(value, int) or value < least:
            raise LabError(f"{name}={value!r} is not a whole number from {least} on.")
    shares: list[Share] = []
    with (
        tempfile.TemporaryDirectory(prefix="labkit-shares-") as folder,
        Cluster(ranks) as c,
    ):
        paths = _written(Path(folder), images, files)
        for policy in POLICIES:
            # Each policy in fresh processes: a worker that finds no file ends all exchanges.
            going = c.start(plainly, read_share, policy, paths, images, batch, show=False)
            outcome = going.finish(deadline=deadline)
            fault = why(outcome, deadline) if outcome.errors else ""
            for rank in range(ranks):
                read = () if fault else outcome.results[rank]
                shares.append(Share(policy, rank, read, fault))
    return Sharing(ranks, images, batch, files, tuple(shares), measured(machine_text()))


def read_share(
    rank: int, policy: str, paths: list[str], images: int, batch: int
) -> tuple[tuple[int, ...], ...]:
    """On a worker: one epoch, shared out by TensorFlow; its part of every global batch."""
    tf = import_tensorflow()
    strategy = workers().strategy()
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = getattr(
        tf.data.experimental.AutoShardPolicy, policy.upper()
    )
    source = (
        tf.data.TextLineDataset(paths).map(lambda line: tf.strings.to_number(line, tf.int32))
        if paths
        else tf.data.Dataset.range(images)
    )
    pipeline = source.batch(batch).with_options(options)
    return tuple(
        tuple(int(n) for part in strategy.experimental_local_results(each) for n in part)
        for each in strategy.experimental_distribute_dataset(pipeline)
    )


def _written(folder: Path, images: int, files: int) -> list[str]:
    """The numbers of all images in files of about the same length, one number a line."""
    paths = []
    for number in range(files):
        path = folder / f"images-{number}.txt"
        mine = range(number * images // files, (number + 1) * images // files)
        path.write_text("".join(f"{image}\n" for image in mine), encoding="utf-8")
        paths.append(str(path))
    return paths
