"""labkit bench collectives without real ranks: the loop, the check, the fit, the report."""

import dataclasses
import importlib.util
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from labkit import LabError, cli, collectives, plain
from labkit.collectives import bench as room
from labkit.collectives.bench import Bench, Timing, bus_bandwidth, bus_factor, command, sizes_of
from labkit.collectives.bench.expected import MOST_RANKS, inputs_of, wrong_elements
from labkit.collectives.bench.fitting import least_squares
from labkit.collectives.bench.loop import Prepared, Ranks, time_all
from labkit.collectives.formulas import FORMULAS, terms
from labkit.collectives.programs import MEANING, all_gather, ring_all_reduce
from labkit.kinds import measured

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
NAMES = ("mpi", "ring_all_reduce", "tree_all_reduce")
SIZES = tuple(1 << power for power in range(10, 25, 2))


def made_up(latency=1e-5, bandwidth=1e9, sizes=SIZES, ranks=4, times=None, **changes):
    """A measurement whose times follow the model, or are given."""
    timings = []
    for name in NAMES:
        for size in times or sizes:
            messages, share = 1.0, bus_factor("all_reduce", ranks)
            if name in FORMULAS:
                messages, share, _ = terms(name, ranks)
            seconds = times[size] if times else messages * latency + share * size / bandwidth
            samples = (0.9 * seconds, seconds, 1.2 * seconds)
            timings.append(Timing(name, size, 2 * seconds, 1, samples, 0))
    fields = {
        "collective": "all_reduce", "ranks": ranks, "dtype": "float32", "timings": tuple(timings),
        "libraries": dict.fromkeys(NAMES, "a made-up MPI"), "left_out": {},
        "machine": "a made-up machine", "cores": 8, "when": "2026-11-21T12:00:00+00:00",
        "load": 0.1,
    }  # fmt: skip
    return Bench(**{**fields, **changes})


# --- sizes and bandwidths


@pytest.mark.parametrize(
    ("ranks", "all_reduce", "all_gather"),
    [(2, 1.0, 0.5), (4, 1.5, 0.75), (8, 1.75, 0.875), (16, 1.875, 0.9375)],
)
def test_the_bus_factors_are_those_of_nccl_tests(ranks, all_reduce, all_gather):
    """NVIDIA/nccl-tests, doc/PERFORMANCE.md, read in 2026-11."""
    assert bus_factor("all_reduce", ranks) == all_reduce
    for name in ("all_gather", "reduce_scatter", "all_to_all"):
        assert bus_factor(name, ranks) == all_gather
    assert bus_factor("broadcast", ranks) == bus_factor("reduce", ranks) == 1


def test_a_bus_factor_of_an_unknown_collective_is_refused():
    with pytest.raises(LabError, match="collective must be one of 'all_reduce'"):
        bus_factor("allreduce", 4)


def test_a_published_row_has_its_bus_bandwidth():
    """stas00/ml-engineering, network/README.md, 2026-11: 8 A100, 16 GiB in 127,997 µs."""
    assert round(bus_bandwidth("all_reduce", 8, 16 * GIB, 127_997e-6) / 1e9, 2) == 234.89


def test_sizes_double_and_1k_is_1024():
    assert sizes_of("1k:16M") == tuple(KIB << power for power in range(15))
    assert sizes_of("3:20") == (3, 6, 12)
    assert sizes_of("2MiB") == (2 << 20,)
    assert sizes_of(100) == (100,)
    assert sizes_of([8, 4, 8]) == (4, 8)


@pytest.mark.parametrize(
    "sizes", ["", "big", "1k:2k:4k", "2k:1k", "-1", "1.5k", 0, -8, True, [], [1.5], 5 << 30]
)
def test_what_is_no_size_is_refused(sizes):
    with pytest.raises(LabError, match="sizes"):
        sizes_of(sizes)


# --- the check of results


def left_by(program, ranks=4, count=192):
    inputs = [inputs_of(rank, count, "float32") for rank in range(ranks)]
    return collectives.run(program, inputs).outputs


def wrong(outputs, collective):
    return sum(
        wrong_elements(np.array(buffer), collective, rank, len(outputs))
        for rank, buffer in enumerate(outputs)
    )


@pytest.mark.parametrize("name", [name for name in MEANING if name != "barrier"])
def test_our_programs_pass_the_check_if_the_collective_is_timed(name):
    if MEANING[name] in ("scatter", "gather"):
        pytest.skip("is not timed")
    assert wrong(left_by(getattr(collectives.programs, name)), MEANING[name]) == 0


@pytest.mark.parametrize("collective", room.bandwidth.COLLECTIVES)
def test_a_program_that_does_nothing_never_passes(collective):
    assert wrong(left_by(lambda comm, buffer: None), collective) > 0


def test_every_rank_has_its_own_data_and_a_wrong_pair_changes_every_sum():
    """Data by rank modulo 7 let wrong sums of 8 ranks pass."""
    for count in (1, 100):
        inputs = [inputs_of(rank, count, "float32") for rank in range(MOST_RANKS)]
        assert all((a != b).all() for a, b in combinations(inputs, 2))
    right = left_by(ring_all_reduce, ranks=8)[0]
    for missing, twice in ((0, 7), (7, 0), (1, 3)):
        total = right - inputs_of(missing, 192, "float32") + inputs_of(twice, 192, "float32")
        assert wrong_elements(total, "all_reduce", 0, 8) == 192


def test_wrong_elements_and_wrong_chunks_are_counted():
    def one_off(comm, buffer):
        ring_all_reduce(comm, buffer)
        buffer[-1] += comm.Get_rank() == 3

    def rolled(comm, buffer):
        all_gather(comm, buffer)
        buffer[:] = np.roll(buffer, buffer.size // comm.Get_size())

    assert wrong(left_by(one_off), "all_reduce") == 1
    assert wrong(left_by(rolled), "all_gather") > 0


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64"])
def test_the_sum_of_64_ranks_is_exact_in_every_dtype(dtype):
    total = sum(inputs_of(rank, 100, dtype) for rank in range(MOST_RANKS))
    assert total.dtype == dtype
    assert wrong_elements(total, "all_reduce", 0, MOST_RANKS) == 0


# --- the timing loop

PLAN = {
    "collective": "all_reduce", "dtype": "float32", "sizes": [64], "rounds": 12, "warmup": 2,
    "seconds_per_size": 60.0, "seed": 1,
}  # fmt: skip


def timed(plan=PLAN, work=lambda buffer: None, names="abc"):
    """One rank alone, and a log of its barriers and calls."""
    log = []

    def prepared(name, buffer):
        def fill(values):
            buffer[:] = values(0)

        def call():
            log.append((name, bool(buffer.any())))
            work(buffer)

        return Prepared(fill, call, lambda: [(0, buffer)])

    def prepare(count):
        buffer = np.empty(count, "float32")
        return {name: prepared(name, buffer) for name in names}

    alone = Ranks(0, 1, lambda: log.append("barrier"), lambda value: value)
    return time_all(plan, prepare, alone, lambda share: None), log


def test_every_contender_has_a_record_for_every_size():
    records, _ = timed({**PLAN, "sizes": [64, 128]})
    assert [(r["contender"], r["nbytes"]) for r in records] == [
        (name, size) for size in (64, 128) for name in "abc"
    ]
    assert all(len(record["seconds"]) == 12 and record["wrong"] == 0 for record in records)


def test_a_barrier_comes_before_each_sample_and_the_order_changes():
    _, log = timed()
    samples = [log[at + 1][0] for at, one in enumerate(log[:-1]) if one == "barrier"]
    # Three checked calls and two warm-ups each, then the rounds, then the last checks.
    rounds = [samples[at : at + 3] for at in range(9, 9 + 36, 3)]
    assert all(sorted(one) == ["a", "b", "c"] for one in rounds)
    assert len({tuple(one) for one in rounds}) > 2


def test_timed_calls_work_on_zeros_so_that_sums_stay_what_they_are():
    records, log = timed(names="a")
    held = [one[1] for one in log if one != "barrier"]
    assert held[0]
    assert held[-1]
    assert not any(held[1:-1])
    assert records[0]["calls"] > 1, "a call that is too short for the clock"


@pytest.mark.parametrize(("broken_from", "wrong"), [(1, 2), (5, 1)])
def test_a_wrong_result_is_counted_at_the_beginning_and_at_the_end(broken_from, wrong):
    calls = []

    def work(buffer):
        calls.append(1)
        buffer[3] += len(calls) >= broken_from

    assert timed(work=work, names="a")[0][0]["wrong"] == wrong


def test_time_over_means_fewer_rounds_but_never_fewer_than_three():
    records, _ = timed({**PLAN, "seconds_per_size": 0.0, "rounds": 50})
    assert {len(record["seconds"]) for record in records} == {3}


# --- the fit


def test_a_link_that_follows_the_model_is_found_exactly():
    bench = made_up(latency=12e-6, bandwidth=3e9)
    for fit in (bench.fit("ring_all_reduce"), bench.fit("mpi"), bench.fit()):
        assert fit.latency == pytest.approx(12e-6)
        assert fit.bandwidth == pytest.approx(3e9)
        assert fit.typical < 1e-9
    assert bench.fit().contenders == ("ring_all_reduce", "tree_all_reduce")
    ring = bench.fit().seconds("ring_all_reduce", 1e6, 64)
    assert ring == pytest.approx(2 * 63 * 12e-6 + 2 * 63 / 64 * 1e6 / 3e9)


def test_the_residual_of_a_point_has_its_sign_and_size():
    bench = made_up(latency=12e-6, bandwidth=3e9)
    slow = tuple(
        dataclasses.replace(one, seconds=tuple(3 * s for s in one.seconds))
        if (one.contender, one.nbytes) == ("ring_all_reduce", 64 * KIB)
        else one
        for one in bench.timings
    )
    worst = dataclasses.replace(bench, timings=slow).fit("ring_all_reduce").worst
    assert (worst.contender, worst.nbytes) == ("ring_all_reduce", 64 * KIB)
    assert -0.7 < worst.residual < -0.5


def test_the_fit_is_the_least_squares_of_logarithms_and_never_negative():
    assert least_squares([(1, 0, 1e-6), (1, 0, 4e-6)])[0] == pytest.approx(2e-6)
    # Larger is faster: a straight line through it would have a negative bandwidth.
    assert least_squares([(6, 1e3, 2e-3), (6, 1e6, 1e-3)])[1] == 0
    assert least_squares([(6, 1e3, 1e-6), (6, 1e6, 1e-2)])[0] == 0
    assert "B = not seen" in repr(made_up(times={KIB: 2e-3, MIB: 1e-3}).fit("ring_all_reduce"))


def test_a_published_table_gives_about_the_numbers_that_others_found():
    """All-reduce on 8 A100 (stas00/ml-engineering, network/README.md, read in 2026-11).

    The course's own notes fit 56.3 µs and 210.6 GB/s of bus bandwidth to it, at most 36 % off.
    """
    published = {
        32 * KIB: 43.83, MIB: 101.9, 8 * MIB: 133.5, 64 * MIB: 684.6, 512 * MIB: 4218,
        16 * GIB: 127_997,
    }  # fmt: skip
    rows = np.array([(1, 1.75 * size, us * 1e-6) for size, us in published.items()])

    def loss(latency, per_byte):
        return float(np.square(np.log((rows[:, :2] @ (latency, per_byte)) / rows[:, 2])).sum())

    latency, per_byte = least_squares(rows)
    assert latency == pytest.approx(56.3e-6, rel=0.15)
    assert 1 / per_byte == pytest.approx(210.6e9, rel=0.05)
    for a, b in ((0.99, 1), (1.01, 1), (1, 0.99), (1, 1.01)):
        assert loss(latency, per_byte) < loss(a * latency, b * per_byte)


def test_a_fit_says_what_it_is_and_is_stored():
    fit = made_up(latency=12e-6, bandwidth=3e9).fit("ring_all_reduce")
    assert repr(fit) == "Fit(ring_all_reduce: α = 12.0 µs, B = 3.00 GB/s)"
    assert fit.kind.name == "modelled"
    assert "4 ranks on a made-up machine" in str(fit)
    assert plain.load(plain.dump(fit)) == fit


def test_one_size_or_an_unknown_name_cannot_be_fitted():
    with pytest.raises(LabError, match="two sizes"):
        made_up(sizes=(KIB,)).fit()
    with pytest.raises(LabError, match="gloo was not timed"):
        made_up().fit("gloo")


# --- the result


def test_bandwidths_come_from_the_median():
    bench = made_up(times={MIB: 1e-3, 2 * MIB: 2e-3})
    assert bench.seconds("mpi", MIB) == 1e-3
    assert bench.algbw("mpi", MIB) == MIB / 1e-3
    assert bench.busbw("mpi", MIB) == 1.5 * MIB / 1e-3
    with pytest.raises(LabError, match="There is: mpi, ring"):
        bench.seconds("gloo", MIB)


def test_it_comes_back_from_its_file_as_it_was(tmp_path):
    made_up().save(tmp_path / "bench.json")
    assert room.load(tmp_path / "bench.json") == made_up()
    (tmp_path / "kind.json").write_text(plain.dump(measured("x")))
    with pytest.raises(LabError, match="holds a Kind"):
        room.load(tmp_path / "kind.json")


def test_a_loaded_result_is_recorded_whatever_the_day(tmp_path):
    """It depends on who has measured, not on the date: a file of today is recorded, too."""
    import os
    from datetime import datetime

    from labkit.hardware.survey import machine_text

    now = datetime.now().astimezone().isoformat()
    here = made_up(machine=machine_text(), when=now, _process=os.getpid())
    assert here.kind.name == "measured"
    here.save(tmp_path / "bench.json")
    assert room.load(tmp_path / "bench.json").kind.name == "recorded"
    assert str(made_up().kind) == "recorded on 4 ranks on a made-up machine, 2026-11-21"


def test_a_wrong_result_is_the_first_note():
    bench = made_up()
    broken = dataclasses.replace(bench.timings[4], wrong=7)
    bench = dataclasses.replace(bench, timings=(*bench.timings[:4], broken, *bench.timings[5:]))
    assert not bench.correct
    assert bench.notes()[0].startswith("WRONG: MPI library left 7 wrong elements")
    assert "is right" not in str(bench)
    assert "is right" in str(made_up())


def test_notes_name_shared_cores_a_busy_machine_and_what_was_left_out():
    notes = made_up(cores=2, left_out={"gloo": "torch is not installed."}, load=6.0).notes()
    for words in ("4 ranks share 2 cores", "Left out: gloo. torch is", "load 6.0 on 2 cores"):
        assert any(words in note for note in notes)
    assert "share" not in str(made_up(cores=4))


def test_the_table_has_a_row_for_each_size_and_the_fit_below():
    bench = made_up()
    lines = str(bench).splitlines()
    assert lines[1].split() == ["buffer", "MPI", "library", "ring", "tree"]
    rows = lines[2 : 2 + len(bench.sizes)]
    assert rows[0].split()[:2] == ["1.02", "kB"]
    assert lines[2 + len(rows)].split() == ["fitted", "α"] + ["10.0", "µs"] * 3
    assert bench._repr_mimebundle_()["text/html"].count("<tr>") == 1 + len(rows) + 3


def test_figures_say_in_words_what_they_show():
    bench = made_up()
    times, speeds = bench.figure(), bench.bandwidth_figure()
    assert "ring: 10.0 µs latency, 1.00 GB/s, half of the medians within 0.0 %" in times.alt
    assert "The fastest there is" in speeds.alt
    assert times.kind == speeds.kind == bench.kind


# --- the command


@pytest.fixture
def measured_with(monkeypatch):
    seen = {}

    def measure(collective, **options):
        seen.update(options, collective=collective)
        return seen.get("answer", made_up())

    monkeypatch.setattr(command, "measure", measure)
    return seen


def test_the_options_of_the_command_reach_the_measurement(measured_with, capsys, tmp_path):
    file = str(tmp_path / "found.json")
    words = ["--ranks", "2", "--sizes", "1k:4k", "--contenders", "mpi, gloo", "--json", file]
    assert cli.main(["bench", "collectives", *words]) == 0
    assert (measured_with["ranks"], measured_with["sizes"]) == (2, "1k:4k")
    assert measured_with["contenders"] == ["mpi", "gloo"]
    assert "all_reduce, 4 ranks" in capsys.readouterr().out
    assert room.load(file) == made_up()


def test_a_wrong_result_is_exit_code_1_and_a_mistake_2(measured_with, capsys, tmp_path):
    assert cli.main(["bench", "collectives", "--json", str(tmp_path)]) == 2
    assert "--json" in capsys.readouterr().err
    assert measured_with == {}, "the file is checked before the minutes are spent"
    first, *others = made_up().timings
    wrong = dataclasses.replace(first, wrong=3)
    measured_with["answer"] = dataclasses.replace(made_up(), timings=(wrong, *others))
    assert cli.main(["bench", "collectives"]) == 1


# --- benchmarks/collectives.py

LARGE = 16 << 20


@pytest.fixture
def benchmark(monkeypatch):
    folder = Path(__file__).parents[2] / "benchmarks"
    monkeypatch.syspath_prepend(str(folder))
    spec = importlib.util.spec_from_file_location("bench_collectives", folder / "collectives.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def turn(**seconds):
    timings = tuple(Timing(name, LARGE, 1.0, 1, tuple(value), 0) for name, value in seconds.items())
    return made_up(timings=timings, libraries={name: name.upper() for name in seconds})


def test_the_ratio_is_taken_within_each_round(benchmark):
    """The machine was ten times slower in half of the rounds, for both alike."""
    ours = [0.010, 0.100] * 6
    one = turn(ring_all_reduce=ours, mpi=[0.8 * seconds for seconds in ours])
    ratio = benchmark.ratio([one], "ring_all_reduce", "mpi", LARGE)
    assert ratio == pytest.approx((0.8, 0.8, 0.8))


@pytest.mark.parametrize(("mpi", "word"), [(0.95, "reached, 0.95"), (0.5, "MISSED, 0.50")])
def test_the_target_is_judged_against_the_best_library_that_copies(benchmark, capsys, mpi, word):
    one = turn(
        ring_all_reduce=[1.0] * 8, in_buckets=[0.5] * 8, mpi=[mpi] * 8,
        tensorflow_ring=[9.0] * 8, tensorflow_hierarchical=[0.1] * 8,
    )  # fmt: skip
    rows = benchmark.rows_of([one], "ring_all_reduce", LARGE)
    benchmark.judge([one], rows, LARGE)
    assert f"of the best library (MPI): {word}" in capsys.readouterr().out
