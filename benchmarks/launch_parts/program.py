"""The program of which every launcher starts four: a line with TensorFlow, then a sum."""

from __future__ import annotations

import os

RANKS = 4
# The variable in which each launcher gives the rank.
NAMES = ("RANK", "PMI_RANK", "OMPI_COMM_WORLD_RANK")


def program(rank: int) -> None:
    import tensorflow as tf

    print(f"line of rank {rank}: TensorFlow {tf.__version__}", flush=True)
    print(f"sum of rank {rank}: {int(tf.add(rank, 1))}", flush=True)


if __name__ == "__main__":
    program(int(next(os.environ[name] for name in NAMES if name in os.environ)))
