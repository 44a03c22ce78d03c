"""What a measurement says about itself, and how it is kept and shown."""

import dataclasses

import pytest

from labkit import LabError, plain
from labkit.collectives import bench as room
from labkit.kinds import measured
from tests.collectives.bench_made_up import made_up

MIB = 1 << 20


def test_bandwidths_come_from_the_median():
    bench = made_up(times={MIB: 1e-3, 2 * MIB: 2e-3})
    assert bench.seconds("mpi", MIB) == 1e-3
    assert bench.algbw("mpi", MIB) == MIB / 1e-3
    assert bench.busbw("mpi", MIB) == 1.5 * MIB / 1e-3
    assert bench.contenders == ("mpi", "ring_all_reduce", "tree_all_reduce")
    assert bench.sizes == (MIB, 2 * MIB)


def test_it_comes_back_from_its_file_as_it_was(tmp_path):
    bench = made_up()
    bench.save(tmp_path / "bench.json")
    assert room.load(tmp_path / "bench.json") == bench
    (tmp_path / "kind.json").write_text(plain.dump(measured("x")))
    with pytest.raises(LabError, match="holds a Kind"):
        room.load(tmp_path / "kind.json")
    with pytest.raises(LabError, match="cannot be read"):
        room.load(tmp_path / "nothing.json")
    with pytest.raises(LabError, match="cannot be written"):
        bench.save(tmp_path / "no" / "folder.json")


def test_another_machine_or_day_was_recorded():
    assert str(made_up().kind) == "recorded on 4 ranks on a made-up machine, 2026-11-21"


def test_more_ranks_than_cores_is_said_and_what_follows_from_it():
    assert "take turns" not in str(made_up(cores=4))
    (said,) = [note for note in made_up(cores=2).notes() if "turns" in note]
    assert said.startswith("4 ranks share 2 cores and take turns")


def test_a_wrong_result_is_the_first_thing_said():
    bench = made_up()
    broken = dataclasses.replace(bench.timings[4], wrong=7)
    bench = dataclasses.replace(bench, timings=(*bench.timings[:4], broken, *bench.timings[5:]))
    assert not bench.correct
    assert bench.notes()[0].startswith("WRONG: MPI library left 7 wrong elements")
    assert "is right" not in str(bench)
    assert "is right" in str(made_up())


def test_what_was_left_out_and_a_busy_machine_are_said():
    said = " ".join(made_up(left_out={"gloo": "torch is not installed."}, busy=6.0).notes())
    assert "Left out: gloo. torch is not installed." in said
    assert "load 6.0 on 8 cores" in said


def test_the_table_has_a_row_for_each_size_and_the_fit_below():
    bench = made_up()
    lines = str(bench).splitlines()
    assert lines[1].split() == ["buffer", "MPI", "library", "ring", "tree"]
    rows = lines[2 : 2 + len(bench.sizes)]
    assert rows[0].split()[:2] == ["1.02", "kB"]
    assert lines[2 + len(rows)].split() == ["fitted", "α"] + ["10.0", "µs"] * 3
    assert bench._repr_mimebundle_()["text/html"].count("<tr>") == 1 + len(rows) + 3
    assert (
        repr(bench) == "Bench(all_reduce, 4 ranks; mpi, ring_all_reduce, tree_all_reduce; 8 sizes)"
    )


def test_an_unknown_contender_or_size_is_answered_with_what_there_is():
    with pytest.raises(LabError, match="There is: mpi, ring"):
        made_up().seconds("gloo", 1024)
    with pytest.raises(LabError, match="sizes 1024, 4096"):
        made_up().busbw("mpi", 1000)


def test_pictures_say_in_words_what_they_show():
    bench = made_up()
    times, speeds = bench.figure(), bench.bandwidth_figure()
    assert "ring: 10.0 µs latency, 1.00 GB/s, half of the medians within 0.0 %" in times.alt
    assert "The fastest there is" in speeds.alt
    assert times.kind == speeds.kind == bench.kind
    assert made_up(sizes=(1024,)).bandwidth_figure().png
