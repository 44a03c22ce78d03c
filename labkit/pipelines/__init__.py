"""Pipeline parallelism: schedules of micro-batches, their bubbles and memory, and real training.

>>> from labkit import pipelines
>>> pipelines.schedule("gpipe", stages=4, micro_batches=8).timeline().bubble
9.0
"""

from labkit.pipelines.schedules import schedule
from labkit.pipelines.timeline import Schedule, Timeline, measured_timeline
from labkit.pipelines.training import initial_weights, rehearse, serial_weights, train

# What a process may import before its ranks start.
PRELOAD = ("tensorflow",)
