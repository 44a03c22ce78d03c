"""Horovod's timeline of eight gradients, all-reduced five times; rank 0 prints it.

    horovodrun -np 2 python 60_timeline.py 0           # bytes of the fusion buffer: no fusion
    horovodrun -np 2 python 60_timeline.py 67108864

A file of the printed text opens in https://ui.perfetto.dev.
"""

import os
import sys
import tempfile
import time
from pathlib import Path

timeline = Path(tempfile.mkdtemp(), "timeline.json")
os.environ["HOROVOD_TIMELINE"] = str(timeline)
os.environ["HOROVOD_FUSION_THRESHOLD"] = sys.argv[1]  # hvd.init() reads the variables

import horovod.tensorflow as hvd  # noqa: E402
import tensorflow as tf  # noqa: E402

hvd.init()
shapes = [(784, 256), (256,), (256, 256), (256,), (256, 256), (256,), (256, 10), (10,)]
gradients = [tf.ones(shape) for shape in shapes]


@tf.function
def step():
    return [hvd.allreduce(each, name=f"gradient_{n}") for n, each in enumerate(gradients)]


for _ in range(5):
    step()
rank = hvd.rank()
time.sleep(1)  # a thread writes the file, on rank 0 only
hvd.shutdown()  # and ends it
if rank == 0:
    print(timeline.read_text())
