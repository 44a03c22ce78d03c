"""Of every kind of picture that labkit draws: words stay apart, and can be read on every page."""

import base64
import io
from functools import partial

import pytest
from PIL import Image

from labkit import collectives, updates
from labkit.choosing import Data, Machine, Model, choose, queue_model
from labkit.collectives import programs
from labkit.collectives.bench import Bench, Timing
from labkit.kinds import measured
from labkit.memory import footprint
from labkit.memory.step_memory import bars
from labkit.pipelines import schedule
from labkit.telemetry.page import panel_figure as panel
from labkit.training.history import Epoch, History, curves
from labkit.views.figure import SCALE
from tests.telemetry.panel_recordings import made
from tests.views.legibility import check_apart, check_contrast, drawn

HERE = measured("2 logical CPUs with one core each")
SLOW = {"latency": 5e-6, "bandwidth": 50e6}


def bench():
    made = [
        Timing(name, size, 10, tuple(1e-5 * (1 + i) + size / rate for i in range(5)), 0)
        for name, rate in (("ring_all_reduce", 1e9), ("tree_all_reduce", 3e8), ("mpi", 2e9))
        for size in (1_000, 10_000, 100_000, 1_000_000, 10_000_000)
    ]
    return Bench(4, tuple(made), "a library 1.2", 2, HERE)


def histories():
    def history(batch, fast):
        epochs = tuple(Epoch(fast + 0.1 * n, 0.8 / (n + 1), 0.7 + 0.03 * n) for n in range(5))
        return History("dense", 101_770, "MNIST", 60_000, 2, batch, 10, 0.5, epochs, HERE)

    return [history(32, 0.5), history(512, 0.06), history(4096, 0.3)]


def chosen():
    data = Data(1.28e6, example_bytes=602_112, batch=64, epochs=90)
    model = Model(25.6e6, activation_bytes=90e6, step_seconds=0.1)
    return choose(model, data, Machine(40e9, devices=8, link=235e9))


def simulated(**options):
    return updates.simulate(
        updates.problems.Quadratic(), workers=4, slow={3: 4.0}, updates=60, **options
    )


def overlap():
    return collectives.overlap([(1e-3, 4e6)] * 12, ranks=8, bucket=16e6, latency=1e-4,
                               bandwidth=1e10)  # fmt: skip


RING = partial(collectives.run, programs.ring_all_reduce)
PIPES = {"stages": 4, "micro_batches": 8}
PICTURES = {
    "bench": lambda: bench().picture(),
    "overlap": overlap,
    "curves": lambda: curves(histories(), target=0.8),
    "decision": lambda: chosen().picture(),
    "server": lambda: updates.simulate(workers=9, jitter=0.5, network=0.05, updates=200).picture(),
    "staleness": lambda: simulated().histogram(),
    "losses": lambda: simulated(mode="sync").beside(simulated(), target=0.1).picture(),
    "queue": lambda: queue_model.queue(queue_model.crowd(3), devices=16),
    "footprints": lambda: bars({"dense": footprint(101_770), "large": footprint(25_600_000)},
                               device_memory=16e9),
    "ring": lambda: RING(ranks=4).player().still(),
    "many ranks": lambda: RING(ranks=17).player().still(),
    "messages": lambda: RING(ranks=4).picture(**SLOW),
    "pipeline": lambda: schedule("1f1b", **PIPES).timeline(1.0, 2.0).picture(),
    "panel": lambda: panel.figure(made()),
    "crowd": lambda: panel.figure(made(64, seconds=10)),
}  # fmt: skip


@pytest.mark.parametrize("name", PICTURES)
def test_words_stay_apart_and_can_be_read(name, monkeypatch):
    monkeypatch.setenv("LABKIT_PICTURES", "still")
    with drawn(monkeypatch) as words:
        png = base64.b64decode(PICTURES[name]()._repr_mimebundle_()[0]["image/png"])
    width, height = (edge / SCALE for edge in Image.open(io.BytesIO(png)).size)
    assert words
    check_apart(words, width, height)
    check_contrast(words, png)
