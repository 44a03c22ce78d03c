"""`labkit bench collectives`: what it passes on, prints, writes and answers."""

import dataclasses

import pytest

from labkit import cli
from labkit.collectives import bench as room
from labkit.collectives.bench import command
from tests.collectives.bench_made_up import made_up


@pytest.fixture
def asked(monkeypatch):
    seen = {}

    def measure(collective, **options):
        seen.update(options, collective=collective)
        return seen.get("answer", made_up())

    monkeypatch.setattr(command, "measure", measure)
    return seen


def test_its_options_reach_the_measurement(asked, capsys):
    words = [
        "bench",
        "collectives",
        "--ranks",
        "2",
        "--sizes",
        "1k:4k",
        "--contenders",
        "mpi, gloo",
    ]
    assert cli.main(words) == 0
    assert asked["collective"] == "all_reduce"
    assert (asked["ranks"], asked["sizes"]) == (2, "1k:4k")
    assert asked["contenders"] == ["mpi", "gloo"]
    assert "all_reduce, 4 ranks" in capsys.readouterr().out


def test_without_options_it_is_the_usual_range_and_quick_is_less(asked):
    cli.main(["bench", "collectives"])
    assert (asked["ranks"], asked["sizes"], asked["contenders"]) == (4, "1k:16M", None)
    usual = asked["rounds"], asked["seconds_per_size"]
    cli.main(["bench", "collectives", "--quick"])
    assert asked["sizes"] == "1k:1M"
    assert (asked["rounds"], asked["seconds_per_size"]) < usual


def test_the_file_holds_what_was_printed(asked, tmp_path):
    assert cli.main(["bench", "collectives", "--json", str(tmp_path / "found.json")]) == 0
    assert room.load(tmp_path / "found.json") == made_up()


def test_a_file_that_cannot_be_written_is_said_before_the_minutes_are_spent(
    asked, tmp_path, capsys
):
    assert cli.main(["bench", "collectives", "--json", str(tmp_path)]) == 2
    assert "is a folder" in capsys.readouterr().err
    assert asked == {}


def test_a_wrong_result_is_exit_code_1(asked):
    right = made_up()
    first = dataclasses.replace(right.timings[0], wrong=3)
    asked["answer"] = dataclasses.replace(right, timings=(first, *right.timings[1:]))
    assert cli.main(["bench", "collectives"]) == 1


def test_a_mistake_is_a_sentence_and_exit_code_2(capsys):
    assert cli.main(["bench", "collectives", "--sizes", "huge"]) == 2
    assert "'huge' in 'huge' is no size" in capsys.readouterr().err
