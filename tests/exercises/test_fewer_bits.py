"""Lecture 48: its formats agree bit by bit with two others, and its judges with other styles."""

import subprocess
from functools import partial

import ml_dtypes
import numpy as np
import pytest

from labkit import collectives
from labkit.cluster import Cluster, communicator
from labkit.exercises import tasks
from labkit.exercises.judges.answers import solved
from labkit.exercises.lectures import lecture_48_fewer_bits as judges
from labkit.exercises.lectures.lecture_48_fewer_bits import e4m3, to_bits, to_float32
from tests.exercises.cells import NEEDS_TORCH, TORCH, cells_of, refused, value

BITS = np.random.default_rng(0).integers(0, 2**32, 200_000, np.uint32)
FLOATS = BITS.view(np.float32)[np.isfinite(BITS.view(np.float32))]
E4M3, E5M2 = ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2


def same(one, other):
    return np.array_equal(np.asarray(one, float), np.asarray(other, float), equal_nan=True)


def numbers(dtype):
    """Each finite number of a format, and the midpoints between them."""
    size = np.dtype(dtype).itemsize
    codes = np.arange(256**size).astype(f"uint{8 * size}").view(dtype)
    with np.errstate(invalid="ignore"):
        found = np.unique(codes.astype(float))
    found = found[np.isfinite(found)]
    return np.concatenate([found, (found[1:] + found[:-1]) / 2])


def test_each_of_65536_patterns_of_bfloat16_is_what_it_is_in_ml_dtypes():
    patterns = np.arange(2**16).astype(np.uint16)
    with np.errstate(invalid="ignore"):
        assert same(to_float32(patterns), patterns.view(ml_dtypes.bfloat16).astype(float))


def test_random_floats_and_all_midpoints_become_the_same_bits_as_in_ml_dtypes():
    for x in (FLOATS, numbers(ml_dtypes.bfloat16).astype(np.float32)):
        right = x.astype(ml_dtypes.bfloat16).view(np.uint16)
        assert np.array_equal(to_bits(x), right)
        answer = solved(tasks()["48.round_bf16"].solution)
        assert np.array_equal(answer(x.view(np.uint32)), right)


def test_a_byte_of_e4m3_means_what_it_means_in_ml_dtypes():
    answer = solved(tasks()["48.e4m3_value"].solution)
    right = np.arange(256).astype(np.uint8).view(E4M3).astype(float)
    assert same([answer(byte) for byte in range(256)], right)


def test_e4m3_rounds_as_ml_dtypes_does_and_has_nothing_above_464():
    x = np.concatenate([numbers(E4M3), FLOATS, np.linspace(-600, 600, 9999)]).astype(np.float32)
    assert same(e4m3(x), x.astype(E4M3))
    assert np.isnan(e4m3([465, np.inf])).all()
    assert same(e4m3([464, -464]), [448, -448])


@pytest.fixture(scope="module")
def lecture():
    cell = cells_of("48", ("bits-09", "bits-17"))
    formats = {"float16": (10, -14, 65504.0), "bfloat16": (7, -126, 2.0**127 * (2 - 2**-7)),
               "E4M3": (3, -6, 448.0), "E5M2": (2, -14, 57344.0)}  # fmt: skip
    cell["rounded"].__globals__["FORMATS"] = formats
    return cell


@pytest.mark.parametrize(
    ("name", "dtype", "largest"),
    [
        ("float16", np.float16, 65504),
        ("bfloat16", ml_dtypes.bfloat16, 3.38e38),
        ("E4M3", E4M3, 448),
        ("E5M2", E5M2, 57344),
    ],
)
def test_the_lectures_one_function_rounds_to_four_formats(lecture, name, dtype, largest):
    x = np.concatenate([FLOATS, numbers(dtype).astype(np.float32)])
    inside = x[np.abs(x) <= largest]
    assert same(lecture["rounded"](inside.astype(float), name), inside.astype(dtype))
    beyond = lecture["rounded"](np.array([-np.inf, 1e39]), name)  # it saturates
    assert same(-beyond[0], beyond[1])
    assert beyond[1] == float(ml_dtypes.finfo(dtype).max)


@NEEDS_TORCH
def test_torch_rounds_as_the_lecture_does_and_saturates_e4m3_but_not_e5m2(lecture):
    x = np.concatenate([numbers(E4M3), numbers(E5M2), [465.0, np.inf, -1e9]]).astype(np.float32)
    names = ("float8_e4m3fn", "float8_e5m2", "bfloat16")
    program = (
        "import sys, torch; x = torch.tensor([float(one) for one in sys.stdin.read().split()])"
    )
    for name in names:
        program += f"; print(*x.to(torch.{name}).float().tolist())"
    lines = subprocess.run(
        [TORCH.python, "-c", program], input=" ".join(map(repr, x.tolist())), capture_output=True,
        text=True, check=True, timeout=300,
    ).stdout.splitlines()  # fmt: skip
    fp8, wide, bf16 = (np.array(line.split(), float) for line in lines)
    assert same(fp8, lecture["rounded"](x.astype(float), "E4M3"))
    finite = np.abs(x) <= 57344
    assert same(wide[finite], lecture["rounded"](x[finite].astype(float), "E5M2"))
    assert np.isinf(wide[-2:]).all()
    assert same(bf16, x.astype(ml_dtypes.bfloat16))


def test_a_scale_for_each_block_gives_what_the_exercise_asks_for(lecture):
    x = np.random.default_rng(1).normal(size=256) * 9.0 ** np.arange(-128, 128, dtype=float)
    answer = solved(tasks()["48.block_scales"].solution)
    for block in (1, 16, 256):
        assert same(lecture["scaled"](x, "E4M3", 448, block), answer(x, block, e4m3))


# Answers in other styles.

BY_BITS = """
def my_stochastic(x, rng):
    bits = x.view(np.uint32) + rng.integers(0, 65536, x.shape, np.uint32)
    return (bits & 0xFFFF0000).view(np.float32)
"""
BY_NEIGHBOURS = """
def my_stochastic(x, rng):
    low = (x.view(np.uint32) & 0xFFFF0000).view(np.float32)
    high = ((x.view(np.uint32) & 0xFFFF0000) + 0x10000).view(np.float32)
    share = np.where(x == low, 0, (x.astype(float) - low) / (high.astype(float) - low))
    return np.where(rng.random(x.shape) < share, high, low)
"""
ONE_BY_ONE = """
def my_stochastic(x, rng):
    found = []
    for one in x.ravel().tolist():
        step = 2.0 ** (np.frexp(one)[1] - 8)
        below = one // step
        found.append(step * (below + (rng.uniform() < one / step - below)))
    return np.array(found).reshape(x.shape)
"""
PACKED = """
def my_sum(comm, bits, to_float32, to_bits):
    rank, ranks = comm.Get_rank(), comm.Get_size()
    pieces = np.array_split(bits, ranks)
    mine = sum(to_float32(one) for one in comm.alltoall(pieces))
    return np.concatenate(comm.allgather(to_bits(mine)))
"""
IN_A_CLASS = """
class Sender:
    def __init__(self, compress):
        self.kept, self.compress = None, compress
    def send(self, gradient):
        if self.kept is None:
            self.kept = np.zeros_like(gradient)
        self.kept += gradient
        sent = np.array(self.compress(self.kept))
        self.kept -= sent
        return sent

def my_sender(compress):
    return Sender(compress).send
"""
SORTED = """
def my_sum(comm, gradient, k):
    places = sorted(range(len(gradient)), key=lambda at: -abs(gradient[at]))[:k]
    total = np.zeros(len(gradient))
    for some, values in comm.allgather((np.array(places), gradient[places])):
        total[some] += values
    return total
"""
CODES = """
def my_sum(comm, gradient):
    scale = max(abs(gradient)) / 127
    both = comm.allgather((np.rint(gradient / scale).astype("int8"), scale))
    return np.sum([codes.astype(float) * one for codes, one in both], axis=0)
"""


@pytest.mark.parametrize(
    ("task", "source"),
    [
        ("stochastic", BY_BITS), ("stochastic", BY_NEIGHBOURS), ("stochastic", ONE_BY_ONE),
        ("bf16_sum", PACKED), ("feedback", IN_A_CLASS), ("top_k_sum", SORTED), ("int8_sum", CODES),
    ],
)  # fmt: skip
def test_other_styles_are_right(task, source):
    outcome = tasks()[f"48.{task}"].check(value(source))
    assert outcome, str(outcome)


@pytest.mark.parametrize(
    ("task", "source", "words"),
    [
        ("stochastic", BY_BITS.replace("0, 65536", "0, 131072"), "Its neighbours in bfloat16 are"),
        ("stochastic", BY_BITS.replace("65536", "32768"), "Its mean must be the number itself"),
        ("stochastic", BY_NEIGHBOURS.replace("(x.shape) <", "(x.shape[:1])[:, None] <"),
         "Whole rows or columns"),
        ("stochastic", "def f(x, rng): return None", "returned None"),
        ("bf16_sum", PACKED.replace("to_bits(mine)", "mine").replace("return", "return to_bits(")
         + ")", "Numbers travel as two bytes"),
        ("top_k_sum", """
def my_sum(comm, gradient, k):
    mine = np.where(abs(gradient) >= np.sort(abs(gradient))[-k], gradient, 0)
    return sum(comm.allgather(mine))
""", "A rank sends k numbers and k places"),
        ("int8_sum", CODES.replace(".astype(\"int8\")", ""), "A code has one byte"),
        ("bf16_sum", PACKED.replace("return", "bits[:] =") + "    return None", "is None"),
        ("bf16_sum", """
def my_sum(comm, bits, to_float32, to_bits):
    total = to_float32(bits).copy()
    for other in range(comm.Get_size() - 1):
        right, left = (comm.Get_rank() + 1) % comm.Get_size(), comm.Get_rank() - 1
        bits = comm.sendrecv(bits, dest=right, source=left % comm.Get_size())
        total = to_float32(to_bits(total + to_float32(bits)))
    return to_bits(total)
""", "round once"),
        ("feedback", IN_A_CLASS.replace("return Sender(compress).send", "pass"),
         "return the function send"),
        ("feedback", IN_A_CLASS.replace("        return sent", "        return None"),
         "return what is sent"),
        ("feedback", IN_A_CLASS.replace("self.kept += gradient", "self.kept = gradient.copy()"),
         "It keeps nothing"),
        ("top_k_sum", SORTED.replace("some] +=", "some] ="), "may send the same place"),
        ("top_k_sum", SORTED.replace("[:k]", "[:2 * k]"), "largest absolute value"),
        ("int8_sum", CODES.replace("* one", "* scale"), "scale of its own"),
        ("int8_sum", CODES.replace("codes.astype(float) * one", "codes").replace("axis=0",
         "axis=0, dtype=np.int8"), "do not fit in int8"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(task, source, words):
    refused(f"48.{task}", value(source), words)


# The programs leave this process, and the mathematics that the lecture quotes.


def _bf16_sum(program, given, comm):
    bits = program(comm, given[comm.Get_rank()].copy(), to_float32, to_bits)
    return bits.tolist()


def _in_rank(rank, program, given):
    return _bf16_sum(program, given, communicator())


@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
def test_the_sum_in_float32_is_the_serial_one_in_processes(ranks):
    program = value(tasks()["48.bf16_sum"].solution + "\n")
    case = judges.bf16_sum(ranks)
    with Cluster(ranks) as c:
        for found in c.run(_in_rank, program, [given[0] for given in case.given], timeout=60):
            assert same(found, case.pieces[0][0].parts["sum"])


def test_the_sum_in_float32_runs_under_mpi():
    pytest.importorskip("mpi4py.MPI")
    program = value(tasks()["48.bf16_sum"].solution + "\n")
    case = judges.bf16_sum(3)
    whole = partial(_whole, program)
    for found in collectives.run_mpi(whole, [given[0] for given in case.given], timeout=60):
        assert same(found, case.pieces[0][0].parts["sum"])


def _whole(program, comm, buffer):
    buffer[:] = program(comm, buffer.copy(), to_float32, to_bits)


def test_top_1_on_three_workers_grows_by_1_and_11_sixths_of_the_rate():
    a = np.array([[-3, 2, 2], [2, -3, 2], [2, 2, -3]])
    for feedback in (False, True):
        x, memory, sums = np.ones(3), np.zeros((3, 3)), np.zeros((3, 3))
        sent = np.zeros((3, 3))
        for _ in range(300):
            gradients = np.array([2 * (one @ x) * one + x / 2 for one in a])
            now = np.array([judges.largest(one) for one in memory * feedback + gradients])
            memory, sums, sent = memory + gradients - now, sums + gradients, sent + now
            before, x = x, x - 0.02 * now.mean(axis=0)
            assert np.allclose(sent + memory, sums)  # what was sent, and what is kept
            if not feedback:
                assert np.allclose(x, before * (1 + 11 * 0.02 / 6))
        assert (np.linalg.norm(x) < 0.01) == feedback
