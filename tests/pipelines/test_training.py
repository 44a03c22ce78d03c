"""Training by any schedule gives the serial weights, and keeps what the schedule says."""

import numpy as np
import pytest

from labkit import collectives, pipelines
from labkit.kinds import measured

NAMES = ("naive", "gpipe", "1f1b", "interleaved", "zb-h1", "zb-h2")
ON_A_V = ("zb-v", "v-half", "v-min", "dualpipe-v")


def trained(schedule, steps, eager=0):
    ranks = {}

    def program(comm, buffer):
        ranks[comm.Get_rank()] = pipelines.train(comm, buffer, schedule, steps=steps)

    start = pipelines.initial_weights(schedule)
    trace = collectives.run(program, start, eager=eager)
    return trace.outputs, [ranks[rank] for rank in range(schedule.stages)]


@pytest.mark.parametrize("name", NAMES + ON_A_V)
def test_three_steps_give_the_serial_weights_and_hold_what_is_modelled(name):
    ranks = 2 if name == "interleaved" else 3 if name in ON_A_V else 4  # four or six stages
    schedule = pipelines.schedule(name, stages=ranks, micro_batches=8)
    weights, found = trained(schedule, steps=3)
    serial = pipelines.serial_weights(schedule, steps=3)
    before = pipelines.initial_weights(schedule)
    for mine, right, start in zip(weights, serial, before, strict=True):
        np.testing.assert_allclose(mine, right, rtol=0, atol=1e-6)
        assert abs(right - start).max() > 0.01
    assert [one.held for one in found] == schedule.timeline().peak_activations
    losses = found[schedule.paths[0][-1][0]].losses  # of the rank with the last stage
    assert losses == sorted(losses, reverse=True)
    assert len({*losses}) == 3


def test_a_schedule_of_ones_own_trains_too():
    rows = [[("F", 1), ("F", 0), ("F", 2), ("B", 0), ("B", 1), ("B", 2)] for _ in range(2)]
    schedule = pipelines.Schedule(rows)
    weights, _ = trained(schedule, steps=3)
    serial = pipelines.serial_weights(schedule, steps=3)
    np.testing.assert_allclose(weights, serial, rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", NAMES + ON_A_V)
def test_a_rehearsal_measures_each_piece_in_the_order_of_its_inputs(name):
    schedule = pipelines.schedule(name, stages=3, micro_batches=3)
    ranks = {}

    def program(comm, buffer):
        ranks[comm.Get_rank()] = pipelines.rehearse(comm, schedule, forward=1e-3, backward=2e-3)

    collectives.run(program, ranks=3)
    spans = [ranks[rank].spans for rank in range(3)]
    timeline = pipelines.measured_timeline(schedule, spans, "one process")
    assert timeline.kind == measured("one process")
    assert timeline.peak_activations == schedule.peaks()
    numbers = {run.number: run.needs for run in schedule.order}
    ends = {}
    for rank, row in enumerate(schedule.rows):
        runs = [run for run in schedule.order if run.rank == rank]
        for place in range(len(row)):
            ends[runs[place].number] = timeline.ends[rank][place]
            assert timeline.ends[rank][place] > timeline.starts[rank][place]
    assert all(ends[needs] < ends[one] for one, needs in numbers.items() if needs >= 0)
