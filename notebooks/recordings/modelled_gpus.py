"""Make modelled_eight_gpus.jsonl: from a formula, not from a machine.

The job: synchronous data-parallel training on H100s (80 GB, 700 W), 2,500 images/s on each. The
formula follows known behaviour:
- NVML's utilisation counts the kernel of an all-reduce, too, also while it waits: a GPU that waits
  for a slower one shows nearly 100 %. Its power falls.
- A GPU that becomes too hot lowers its clock until its temperature holds. Its power falls faster
  than its clock, because the voltage falls with it.
- A synchronous step takes as long as its slowest GPU.

python notebooks/recordings/modelled_gpus.py
"""

from pathlib import Path

import numpy as np

from labkit.kinds import modelled
from labkit.telemetry.columns import Series
from labkit.telemetry.format import Header, Span
from labkit.telemetry.metrics import Device
from labkit.telemetry.recording import Recording

EVERY, SECONDS = 0.2, 60.0
CLOCK, LIMIT, IDLE, FULL, WAITING, HOT = 1980.0, 700.0, 110.0, 640.0, 330.0, 87.0  # MHz, W, °C
COMPUTE, RATE, BYTES = 0.9, 2500.0, 80e9  # share of a step at full clock, images/s, memory
METRICS = ("utilisation", "memory", "power", "temperature", "clock", "energy")
FOLDER = Path(__file__).parent


def train(gpus, images, what, *, cooling):
    """A recording. `cooling(gpu, time)` is in kelvin per watt."""
    noise = np.random.default_rng(7)
    times = np.arange(0.0, SECONDS, EVERY)
    values = np.full((len(times), gpus, len(METRICS)), np.nan)
    clock, heat, energy = np.full(gpus, CLOCK), np.full(gpus, 42.0), np.zeros(gpus)
    spans, seen, began = [], 0.0, 2.0
    for row, time in enumerate(times):
        step = COMPUTE * CLOCK / clock + 1 - COMPUTE  # of each GPU, 1 at full clock
        busy = COMPUTE * CLOCK / clock / step.max()  # share of the step in which it computes
        own = IDLE + (FULL - IDLE) * (clock / CLOCK) ** 2.4
        power = busy * own + (1 - busy) * np.minimum(WAITING, own) + 6 * noise.standard_normal(gpus)
        used = np.clip(99.0 + noise.integers(-3, 3, gpus), 0, 100)
        if time < 2:  # building the model
            used, power = np.zeros(gpus), IDLE + 3 * noise.standard_normal(gpus)
        else:
            seen += EVERY * gpus * RATE / step.max()
        hot = np.array([cooling(gpu, time) for gpu in range(gpus)])
        warming = (30 + hot * power - heat) / 12  # °C/s
        heat += EVERY * warming
        clock = np.clip(clock - np.clip(8 * (heat + 2 * warming - HOT), -20, 60), 600, CLOCK)
        energy += EVERY * power
        memory = 2e9 + 69e9 * min(1.0, max(0.0, time - 1.4)) + 2e8 * np.arange(gpus)
        values[row] = np.column_stack((used, memory.round(-7), power, heat, clock, energy)).round()
        if row % 5:
            values[row, :, 3:5] = np.nan  # read once a second
        if seen >= images:
            loss = round(6.9 / (len(spans) + 2) ** 0.8, 3)
            seen -= images
            end = float(time) + EVERY * (1 - seen / (gpus * RATE / step.max() * EVERY))
            spans.append(Span(f"epoch {len(spans) + 1}", began, round(end, 3), images, loss))
            began = round(end, 3)
    devices = [
        Device(f"gpu{gpu}", "NVIDIA H100 80GB HBM3", "gpu", BYTES, LIMIT) for gpu in range(gpus)
    ]
    said = f"{gpus} × H100, from the formula in recordings/modelled_gpus.py, no machine"
    header = Header("no machine", "2026-11-26T00:00:00+00:00", EVERY, 0.0, what, said)
    series = Series("gpus", METRICS, tuple(devices), times, values)
    return Recording(modelled(said), header, (series,), tuple(spans), (), SECONDS)


def normal(_gpu, _time):
    """67 °C at full power."""
    return 0.058


def one_fan_slows(gpu, time):
    """From 22 s on GPU 5 cannot get rid of its heat."""
    return 0.17 if gpu == 5 and time > 22 else normal(gpu, time)


if __name__ == "__main__":
    eight = train(8, 180_000, "Training on eight GPUs", cooling=one_fan_slows)
    eight.save(FOLDER / "modelled_eight_gpus.jsonl")
