"""Train on one device for some seconds, then on two replicas, to be watched by `labkit record`.

labkit record --to my_gpus.jsonl -- python one_then_two.py
"""

import time

import labkit
from labkit import training
from labkit.telemetry import span

SECONDS = 5

two = labkit.replicas(2)
one = labkit.replicas(devices=[two.devices[0]])
data = labkit.datasets.mnist()
jobs = {
    name: training.Job("convolutional", data, replicas=replicas, batch=64, images=1_280)
    for name, replicas in (("one device", one), ("2 replicas", two))
}
for name, job in jobs.items():
    time.sleep(1)
    epochs, end = 0, time.monotonic() + SECONDS
    with span(name) as trained:
        while time.monotonic() < end:
            job.steps(job.steps_per_epoch)
            epochs += 1
        trained.end(images=epochs * job.images)
