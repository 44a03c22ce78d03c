"""Recordings for tests of the panel, made from a formula: known, and shown to nobody."""

from __future__ import annotations

import numpy as np

from labkit.kinds import recorded
from labkit.telemetry.format import Header, Span
from labkit.telemetry.metrics import Device, DeviceState
from labkit.telemetry.recording import Recording, Series

METRICS = (
    "utilisation", "sm_activity", "memory_activity", "memory", "process_memory", "power",
    "temperature", "clock", "energy",
)  # fmt: skip


def made(gpus: int = 2, seconds: float = 60, every: float = 0.1) -> Recording:
    """Every metric of every GPU, noisy, busy in waves; SM activity missing, and it is said why."""
    noise = np.random.default_rng(1)
    times = np.arange(0, seconds, every)
    values = np.empty((len(times), gpus, len(METRICS)))
    for gpu in range(gpus):
        busy = (times + 3 * gpu) % 20 > 4
        use = np.where(busy, 92, 1) + noise.integers(-1, 8, len(times))
        memory = 4e9 + 3e8 * times.clip(0, 60)
        power = 80 + 5 * use + 10 * noise.standard_normal(len(times))
        values[:, gpu] = np.column_stack((
            use, np.full(len(times), np.nan), 0.4 * use, memory, memory - 5e8, power,
            50 + busy * 12.0, 1980 - 1600 * ~busy, 300 * times,
        ))  # fmt: skip
    devices = tuple(Device(f"gpu{n}", "NVIDIA H200", "gpu", 141e9, 700.0) for n in range(gpus))
    epochs = tuple(
        Span(f"epoch {n + 1}", start, start + 8.0, 60_000)
        for n, start in enumerate(np.arange(1.0, seconds - 10, 10).tolist())
    )
    states = tuple(
        DeviceState(0.0, device.key, "sm_activity", "not supported", "This GPU does not tell it.")
        for device in devices
    )
    where = f"{gpus} GPUs of a formula"
    header = Header(where, "2026-11-20T14:03:00+01:00", every, 0.0)
    series = Series("gpus", METRICS, devices, times, values)
    return Recording(
        recorded(where, "2026-11-20"), header, (series,), epochs, states, float(times[-1])
    )
