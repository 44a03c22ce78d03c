"""Lecture 63: its judges, the published orders of ranks, and that table and timeline agree."""

import ast
import importlib.util
import json
import re
from pathlib import Path

import nbformat
import numpy as np
import pytest

from labkit.collectives import programs
from labkit.exercises import tasks
from labkit.exercises.lectures import lecture_63_frameworks_today as frameworks
from tests.exercises.cells import refused, value

ROOT = Path(__file__).parents[2]
NOTEBOOK = nbformat.read(ROOT / "notebooks" / "63_frameworks_today.ipynb", as_version=4)
(TWELVE,) = (cell.source for cell in NOTEBOOK.cells if cell.id == "today-04")


def rows_of(text):
    """The rows of all tables of projects in a text."""
    lines = (line for line in text.splitlines() if re.match(r"\| (?!project)", line))
    return [[column.strip() for column in line.strip("|").split(" | ")] for line in lines]


ROWS = rows_of((ROOT / "docs" / "frameworks.md").read_text(encoding="utf-8"))
PROJECTS = next(
    ast.literal_eval(re.match(r"projects = (\(.*?\))", cell.source, re.DOTALL)[1])
    for cell in NOTEBOOK.cells
    if cell.source.startswith("projects = ")
)
# Megatron-LM, megatron/core/parallel_state.py, initialize_model_parallel: 16 GPUs, tensor 2,
# pipeline 4 (commit d98e8a6).
TENSOR = [[n, n + 1] for n in range(0, 16, 2)]
DATA = [[0, 2], [1, 3], [4, 6], [5, 7], [8, 10], [9, 11], [12, 14], [13, 15]]
PIPELINE = [[0, 4, 8, 12], [1, 5, 9, 13], [2, 6, 10, 14], [3, 7, 11, 15]]


def solution(name):
    return value(tasks()[name].solution.strip() + "\n")


def test_the_groups_are_those_that_megatron_publishes():
    groups = solution("63.groups")
    for rank in range(16):
        found = groups(rank, 2, 2, 4)
        for group, published in zip(found, (TENSOR, DATA, PIPELINE), strict=True):
            assert group in published
            assert rank in group


def pipeline_before_data(rank, tensor, data, pipeline):
    """The order of lecture 43, which is not that of Megatron."""
    t, p, d = rank % tensor, rank // tensor % pipeline, rank // (tensor * pipeline)
    ranks = np.arange(tensor * data * pipeline).reshape(data, pipeline, tensor)
    return [group.tolist() for group in (ranks[d, p], ranks[:, p, t], ranks[d, :, t])]


def gathered(comm, piece, axis):
    rank, ranks = comm.Get_rank(), comm.Get_size()
    whole = np.zeros((ranks, *np.moveaxis(piece, axis, 0).shape))
    whole[rank] = np.moveaxis(piece, axis, 0)
    programs.all_gather(comm, whole)
    return np.moveaxis(np.concatenate(whole), 0, axis)


def everything_gathered(comm, a, b, *specs):
    a, b = (
        gathered(comm, one, spec.index("x")) if "x" in spec else one
        for one, spec in zip((a, b), specs, strict=False)
    )
    c = a @ b
    return np.split(c, comm.Get_size())[comm.Get_rank()] if specs[2][0] else c


def all_reduced(comm, a, b, a_spec, b_spec, c_spec):
    if b_spec[0] and not a_spec[1]:
        b = gathered(comm, b, 0)
    c = a @ b
    if a_spec[1]:
        programs.ring_all_reduce(comm, c)
        return np.split(c, comm.Get_size())[comm.Get_rank()] if c_spec[0] else c
    return gathered(comm, c, 0) if a_spec[0] and not c_spec[0] else c


def by_the_library(comm, a, b, a_spec, b_spec, c_spec):
    """One call of MPI's own collectives, whatever algorithm it takes."""

    def whole(rows):
        found = np.empty((comm.Get_size() * len(rows), rows.shape[1]))
        comm.Allgather(np.ascontiguousarray(rows), found)
        return found

    if a_spec[1] and b_spec[0]:
        c = a @ b
        found = np.empty((len(c) // comm.Get_size(), c.shape[1])) if c_spec[0] else np.empty_like(c)
        (comm.Reduce_scatter if c_spec[0] else comm.Allreduce)(c, found)
        return found
    c = a @ (whole(b) if b_spec[0] else b)
    return whole(c) if a_spec[0] and not c_spec[0] else c


def no_sum(comm, a, b, *specs):
    return a @ b if a.shape[1] == len(b) else a @ gathered(comm, b, 0)


@pytest.mark.parametrize(
    ("task", "answer", "says"),
    [
        ("groups", pipeline_before_data, "right is [[0, 1]"),
        ("partitioner", everything_gathered, "Each rank has what its piece of C needs"),
        ("partitioner", all_reduced, "C is wanted in shards"),
        ("partitioner", no_sum, "is missing"),
        ("retired", {"Alpa", "JAX"}, "JAX has a release"),
        ("retired", ["Alpa"], "5 more"),
        ("retired", "Alpa, MXNet", "a set of names"),
    ],
)
def test_a_wrong_answer_is_refused_with_what_is_wrong(task, answer, says):
    refused(f"63.{task}", answer, says)


def test_names_may_be_written_without_hyphens_and_capitals():
    names = ["alpa", "BytePS", "FairScale", "horovod", "Mesh TensorFlow", "mxnet"]
    assert tasks()["63.retired"].check(names)


def test_a_product_by_the_calls_of_mpi_is_accepted():
    outcome = tasks()["63.partitioner"].check(by_the_library)
    assert outcome, outcome


def test_the_table_of_what_jax_inserts_follows_the_rule_of_the_exercise():
    (source,) = (cell.source for cell in NOTEBOOK.cells if "by_rule = (" in cell.source)
    (rules,) = re.findall(r"by_rule = (\(.*\))", source)
    recording = json.loads((ROOT / "notebooks/recordings/jax_collectives.json").read_text())
    for case, rule in zip(recording["products"], ast.literal_eval(rules), strict=False):
        specs = (eval(case[name], {"P": lambda *axes: axes}) for name in "abc")
        assert frameworks.PRODUCTS[tuple(specs)] == rule


def test_every_row_of_the_map_has_a_source():
    assert len(ROWS) > 20
    for row in ROWS:
        assert len(row) == 5, row
        assert re.search(r"\]\(https://\S+\)", row[-1]), row


def test_the_twelve_rows_of_the_lecture_have_the_releases_of_the_sources():
    rows = rows_of(TWELVE)
    assert len(rows) == 12
    for project, _, release in rows:
        name, year = re.split(r"[ :,]", project)[0], re.search(r"\d{4}", release)[0]
        assert any(name in row[0] and year in row[2] for row in ROWS), project


def test_the_timeline_shows_the_last_releases_of_the_table():
    path = ROOT / "images" / "frameworks_today.py"
    spec = importlib.util.spec_from_file_location("frameworks_today", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    lanes = {name: one for lane in module.LANES.values() for name, one in lane.items()}
    finished = solution("63.retired")
    for name in finished:
        (row,) = (row for row in ROWS if row[0].startswith(name))
        year = lanes[name][1]
        assert year is not None
        assert year <= 2023
        assert str(year) in row[2]
        assert f"{name} {year}" in module.ALT
    for row in ROWS:
        if row[0].partition(" ")[0].strip(":,") in {*PROJECTS} - finished:
            assert re.search(r"202[4-6]", row[2]), row
