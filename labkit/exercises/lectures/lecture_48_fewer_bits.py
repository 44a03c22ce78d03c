"""What answers of lecture 48 are judged by: rounding, sums of few bits, and what is kept back."""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from labkit.exercises.judges.answers import numbers_in
from labkit.exercises.judges.model_parallel import PACKED, Array, Case, Piece, is_packed
from labkit.exercises.task import Wrong
from labkit.kinds import bytes_text


def to_bits(x: Any) -> Array:
    """The bits of the nearest bfloat16 numbers, of two the even one; x is float32 without NaN."""
    bits = np.asarray(x, np.float32).view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def to_float32(bits: Any) -> Array:
    """The numbers with these bits in bfloat16."""
    return (np.asarray(bits, np.uint16).astype(np.uint32) << 16).view(np.float32)


def e4m3(x: Any) -> Array:
    """The nearest numbers of E4M3, of two the even one, and NaN above 464, as in ml_dtypes."""
    x = np.asarray(x, float)
    step = np.ldexp(1.0, np.maximum(np.frexp(x)[1] - 1, -6) - 3)
    near = np.round(x / step) * step
    return np.where(np.abs(near) <= 448, near, np.nan)


# Stochastic rounding.

COPIES = 6000  # of a number in each of three rows, in four calls
# Between two numbers of bfloat16.
BETWEEN = (1 + 11 * 2**-11, 100 + 2**-3, 2 - 2**-9, 3e-5, -1 - 2**-10, -301.5)

TOWARD_ZERO = " A negative number must also be able to move away from zero."


def examine_stochastic(mine: Callable[..., Any]) -> None:
    """Numbers of bfloat16 stay, others become a neighbour, with the probability of its distance."""

    def called(x: Array, seed: int) -> Array:
        found = mine(x.copy(), np.random.default_rng(seed))
        if np.shape(found) != x.shape:
            raise Wrong(f"x has the shape {x.shape}, and it returned {reprlib.repr(found)}.")
        return np.reshape(numbers_in(np.ravel(found), "an array"), x.shape)

    for value in BETWEEN:
        x = np.full((3, COPIES), value, np.float32)
        low = to_float32(x[0, :1].view(np.uint32) >> 16)[0]
        high = to_float32((x[0, :1].view(np.uint32) >> 16) + 1)[0]
        up = float((x[0, 0] - low) / (high - low))
        found = [called(x, seed) for seed in (1, 2, 3, 4)]
        is_high = [np.abs(one - high) < np.abs(one - low) for one in found]
        for one, at in zip(found, is_high, strict=True):
            if not (odd := one != np.where(at, high, low)).any():
                continue
            if np.isin(one, (x.view(np.uint32)[0, 0] >> 16) + np.array([0, 1])).all():
                raise Wrong("It returned bits. Return numbers: shift back and view as float32.")
            raise Wrong(
                f"{value:.8g} became {one[odd][0]:.8g}. Its neighbours in bfloat16 are "
                f"{low:.8g} and {high:.8g}.{TOWARD_ZERO * (value < 0)}"
            )
        if fault := _not_random(is_high, [called(x, 1) == found[0]], value, up):
            raise Wrong(fault)
    exact = to_float32(to_bits([0, 1, -1.5, 3e38, 1e-30, -100.0]))
    for seed in range(8):
        if (changed := called(exact, seed) != exact).any():
            one = exact[changed][0]
            raise Wrong(f"{one:g} is a number of bfloat16, and must stay as it is.")


def _not_random(is_high: Sequence[Array], again: Sequence[Array], value: float, up: float) -> str:
    """What is wrong with the choices of some calls, each of three rows of equal numbers."""
    shares = [one.mean() for one in is_high]
    if all(share in (0, 1) for share in shares):
        if len(set(shares)) == 1:
            return (
                f"{value:.8g} became the same number every time. Compare its distance from the "
                "neighbour with a random number."
            )
        return "All elements of an array moved the same way. Draw a random number for each element."
    if all((one == one[0]).all() or (one.T[0] == one.T).all() for one in is_high):
        return "Whole rows or columns moved the same way. Draw a random number for each element."
    if not np.all(again):
        return "Two calls with equal generators gave different results. Draw only from rng."
    if all((one == is_high[0]).all() for one in is_high):
        return "Generators with different seeds gave the same result. Draw from rng."
    share, limit = float(np.mean(shares)), 3 / np.sqrt(12 * COPIES)  # six deviations
    if abs(share - up) <= limit:
        return ""
    away = (
        f"{value:.8g} is {up:.3g} of the way to the neighbour that is farther from zero, and moved "
        f"there in {share:.1%} of all cases. "
    )
    if share == 0 and value < 0:
        return away.rstrip() + TOWARD_ZERO
    if abs(share - (1 - up)) <= limit:
        return away + "The probabilities are the wrong way round."
    if abs(share - 0.5) <= limit:
        return away + "The probability is the distance, and not one half."
    return away + "Its mean must be the number itself."


# Error feedback.

_Rule = tuple[Callable[..., Any], Callable[..., Any]]
RIGHT: _Rule = (lambda m, g: m + g, lambda m, g, wanted, sent: wanted - sent)
MISTAKES: dict[str, _Rule] = {
    "It keeps nothing. What is not sent now must be sent later.": (lambda m, g: g, RIGHT[1]),
    "It keeps what it has sent, too. Subtract that from the memory.": (
        RIGHT[0], lambda m, g, wanted, sent: wanted),
    "The memory counts twice. memory + gradient holds it already.": (
        RIGHT[0], lambda m, g, wanted, sent: m + wanted - sent),
    "The memory is added twice.": (lambda m, g: 2 * m + g, RIGHT[1]),
    "It forgets the older memory: subtract from memory + gradient.": (
        RIGHT[0], lambda m, g, wanted, sent: g - sent),
    "It keeps what it has sent, and must keep the rest.": (
        RIGHT[0], lambda m, g, wanted, sent: sent),
    "The memory is subtracted, and must be added.": (lambda m, g: g - m, RIGHT[1]),
}  # fmt: skip


def largest(x: Array) -> Array:
    """What top-1 sends of an array."""
    return np.where(np.arange(x.size) == np.abs(x).argmax(), x, 0)


def signs(x: Array) -> Array:
    """What one bit for each number sends, and the mean of their sizes."""
    found: Array = np.abs(x).mean() * np.where(x < 0, -1.0, 1.0)
    return found


def examine_feedback(mine: Callable[..., Any]) -> None:
    """Two senders in turns: each must send what its own memory and its gradient give."""
    for name, compress in (("the largest element", largest), ("the signs", signs)):
        gradients = np.random.default_rng(48).normal(size=(6, 2, 5))
        senders = [mine(compress) for _ in range(2)]
        for one in senders:
            if not callable(one):
                raise Wrong(f"It returned {reprlib.repr(one)}: return the function send.")
        found = np.empty_like(gradients)
        for step, at in np.ndindex(6, 2):
            sent = senders[at](gradients[step, at].copy())
            if np.shape(sent) != (5,):
                raise Wrong(f"send(gradient) returned {reprlib.repr(sent)}: return what is sent.")
            found[step, at] = numbers_in(sent, "what is sent")
        right = _sent(gradients, compress, RIGHT)
        near = np.isclose(found, right).all(axis=2)
        if near.all():
            continue
        step, at = np.argwhere(~near)[0]
        text = (
            f"With compress = {name}, rank {at} sends {found[step, at].round(3)} in step "
            f"{step + 1}, and should send {right[step, at].round(3)}."
        )
        wrong = {why: _sent(gradients, compress, rule) for why, rule in MISTAKES.items()}
        shared = _sent(gradients.reshape(12, 1, 5), compress, RIGHT).reshape(right.shape)
        wrong["Two ranks share one memory. Make one in each call of my_sender."] = shared
        wrong["It sends memory + gradient whole: compress it."] = gradients + np.concatenate(
            [np.zeros((1, 2, 5)), np.cumsum(gradients - right, axis=0)[:-1]])  # fmt: skip
        wrong["It sends the gradient whole: compress memory + gradient."] = gradients
        late = np.array([[compress(one) for one in each] for each in gradients])
        late[1:] += (gradients - late)[:-1]
        wrong["Add the memory before you compress, not after it."] = late
        reasons = (f" {why}" for why, one in wrong.items() if np.allclose(found, one))
        raise Wrong(text + next(reasons, ""))


def _sent(gradients: Array, compress: Callable[[Array], Array], rule: _Rule) -> Array:
    """What ranks send in each step: the sum of gradients is what they sent and still keep."""
    memory, sent = np.zeros_like(gradients[0]), np.zeros_like(gradients)
    for step, at in np.ndindex(gradients.shape[:2]):
        wanted = rule[0](memory[at], gradients[step, at])
        sent[step, at] = compress(wanted)
        memory[at] = rule[1](memory[at], gradients[step, at], wanted, sent[step, at])
    return sent


# Sums over ranks.


def _case(given: Sequence[Sequence[Any]], piece: Piece, most: float, saving: str) -> Case:
    """Every rank returns the same piece, and sends at most so many bytes."""

    def too_much(trace: Any) -> str:
        sent, enough = max(trace.bytes_sent), most
        if is_packed(trace):  # comm.allgather sends all through one rank, half as much again
            sent = sum(trace.bytes_sent) / trace.ranks
            enough = 1.5 * most + PACKED * max(trace.messages_sent)
        if sent <= enough:
            return ""
        return f"one sends {bytes_text(sent)}; {bytes_text(most)} are enough. {saving}"

    return Case(given, [[piece]] * len(given), too_much=too_much)


@dataclass(frozen=True)
class Rounded(Piece):
    """The bits of a sum that was rounded once."""

    wrong: Mapping[str, Array] = field(default_factory=dict)

    def fault(self, found: Any) -> str:
        """What is wrong with an array, or nothing; a near one was rounded on its way."""
        if not (text := super().fault(found)) or "shape" in text or "array" in text:
            return text
        found, right = np.asarray(found, float), self.parts["sum"]
        for why, one in self.wrong.items():
            if ((found == one) | (found == right)).all():
                return f"{self.name} are wrong: {why}"
        off = np.abs(to_float32(np.nan_to_num(found) % 65536) - to_float32(right))
        if off.max() <= 64:  # a few steps of the largest sums
            return (
                f"{self.name} are wrong by rounding. Add in float32, and round once, when all "
                "ranks' numbers are in the sum."
            )
        return f"{self.name} are wrong. {self.advice}"


def bf16_sum(ranks: int) -> Case:
    """(comm, bits, to_float32, to_bits) → the bits of the sum, rounded once, on every rank."""
    rng, size = np.random.default_rng(ranks), 20_003
    # Eight bits each, so that float32 adds them exactly, in any order.
    x = rng.integers(128, 256, (ranks, size)) * rng.choice([-1, 1, 2, 4, 8], (ranks, size))
    bits, total = to_bits(x), x.sum(axis=0)
    wrong = {
        f"the numbers of rank {r} are missing. Add those of all.": to_bits(total - one)
        for r, one in enumerate(x)
    }
    wrong["they are those of the mean. Return the sum."] = to_bits(total / ranks)
    wrong["uint16 arrays were added. Convert them with to_float32 first."] = bits.sum(
        axis=0, dtype=np.uint16)  # fmt: skip
    advice = "Exchange bits, add what to_float32 gives, and return to_bits of the sum."
    piece = Rounded("bits", {"sum": to_bits(total).astype(float)}, advice, wrong=wrong)
    most = 2 * (ranks - 1) * -(-size // ranks) * 2  # two bytes: a reduce-scatter and an all-gather
    saving = "Each rank adds up one piece. Numbers travel as two bytes, before and after the sum."
    return _case([(one, to_float32, to_bits) for one in bits], piece, most, saving)


def int8_sum(ranks: int) -> Case:
    """(comm, gradient) → the sum of what all ranks' codes stand for."""
    rng, size = np.random.default_rng(ranks), 2000
    given = rng.normal(size=(ranks, size)) * 3.0 ** rng.permutation(ranks)[:, None]
    scales = np.abs(given).max(axis=1, keepdims=True) / 127
    parts = {f"rank {r}": one for r, one in enumerate(np.round(given / scales) * scales)}
    advice = {
        "missing": "Gather the codes of all ranks.",
        "times": "Each rank has a scale of its own. Multiply its codes by that before you add.",
        "": "scale = np.abs(gradient).max() / 127; the codes are np.round(gradient / scale) as "
        "int8. Sums of codes do not fit in int8.",
    }
    most = (ranks - 1) * (size + 8)
    saving = "A code has one byte. A rank also sends its scale."
    return _case([(one,) for one in given], Piece("sum", parts, advice), most, saving)


def top_k_sum(ranks: int) -> Case:
    """(comm, gradient, k) → the sum of the k largest elements of every rank, in their places."""
    rng, size, k = np.random.default_rng(ranks), 4001, 50
    given, places = rng.uniform(-1, 1, (ranks, size)), rng.permutation(size)
    large = rng.uniform(2, 9, (ranks, k)) * rng.choice([-1, 1], (ranks, k))
    for r, one in enumerate(given):  # the first half of the large ones has the same places
        one[[*places[: k // 2], *places[k // 2 * (r + 1) :][: k // 2]]] = large[r]
    kept = np.zeros_like(given)
    for row, one in zip(kept, given, strict=True):
        row[:] = one * (np.abs(one) > 1)
    advice = {
        "missing": "Several ranks may send the same place: add, do not overwrite.",
        "times": "Add what each rank has sent once.",
        "": "Each rank sends its k elements of largest absolute value and their places.",
    }
    parts = {f"rank {r}": one for r, one in enumerate(kept)}
    most = (ranks - 1) * k * 16  # a place and a number
    saving = "A rank sends k numbers and k places."
    return _case([(one, k) for one in given], Piece("sum", parts, advice), most, saving)
