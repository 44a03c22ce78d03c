"""The bytes that a rank sends in an all-reduce of Horovod, counted on the loopback device.

    horovodrun -np 4 python 60_bytes.py

Linux only, and only right where nothing else uses the loopback device, as in a private network.
"""

import time
from pathlib import Path

import horovod.tensorflow as hvd
import tensorflow as tf

hvd.init()


def bytes_on_loopback():
    time.sleep(0.2)  # until all ranks have received what they wait for
    rows = Path("/proc/net/dev").read_text().splitlines()
    [line] = [row for row in rows if row.strip().startswith("lo:")]
    return int(line.split(":")[1].split()[8])  # transmitted, by all ranks of this network


for megabytes in (0.01, 0.1, 1, 10, 100):
    buffer = tf.ones(int(megabytes * 1e6) // 4)
    hvd.allreduce(buffer, name=f"{megabytes} MB")  # connections are made, buffers allocated
    before = bytes_on_loopback()
    for _ in range(5):
        hvd.allreduce(buffer, name=f"{megabytes} MB")
    sent = (bytes_on_loopback() - before) / 5
    hvd.allreduce(tf.zeros(1), name="all have counted")
    if hvd.rank() == 0:
        print(int(megabytes * 1e6), round(sent / hvd.size()))  # buffer, sent per rank
