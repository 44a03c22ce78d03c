"""Judges of programs in which every rank holds a piece of a layer, an image or a training step.

What a rank returns is compared, piece by piece, with the serial program. A piece is a sum of
contributions, so a wrong one shows which of them are missing or counted twice:

>>> Piece("dx", {"rank 0": np.eye(2), "rank 1": np.ones((2, 2))}).fault(np.eye(2))
'dx is wrong: the contribution of rank 1 is missing.'
"""

import copy
import itertools
import reprlib
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from labkit import collectives
from labkit.collectives.messages import PROC_NULL
from labkit.collectives.programs import ring_all_reduce
from labkit.collectives.records import listed
from labkit.exercises.judges.answers import TIME_LIMIT, function, judged, numbers_in
from labkit.exercises.task import Wrong
from labkit.kinds import LabError, bytes_text

Array: TypeAlias = npt.NDArray[Any]
CLOSE = 1e-6  # of the largest number of a piece
PACKED = 512  # bytes; pickle adds fewer to an array


@dataclass(frozen=True)
class Piece:
    """An array that a rank must return: a sum of contributions."""

    name: str
    parts: Mapping[str, Array]
    advice: str | Mapping[str, str] = ""
    """What to do; or by words of the reason, the first that it has."""
    known: Mapping[str, Array] = field(default_factory=dict)
    """Rows that may stand in the wrong place, and what they are called."""

    def fault(self, found: Any) -> str:
        """What is wrong with an array, or nothing."""
        right = np.sum(list(self.parts.values()), axis=0)
        if found is None:
            return (
                f"{self.name} must be an array, and is None. Is a `return` missing? Programs "
                "change their array in place, and return None."
            )
        try:
            array = np.asarray(found, dtype=float)
        except (TypeError, ValueError):
            return f"{self.name} must be an array, and is {reprlib.repr(found)}."
        if array.shape != right.shape:
            return f"{self.name} has the shape {array.shape}; it must have {right.shape}."
        near = np.abs(array - right) <= CLOSE * np.abs(right).max()  # false for NaN
        wrong = np.flatnonzero(~near.reshape(len(near), -1).all(axis=1))
        if not wrong.size:
            return ""
        rows = f" in row{'s' * (len(wrong) > 1)} {listed(wrong.tolist())}"
        where = rows if len(wrong) < min(len(right), 20) else ""  # more are no help
        parts = {who: part[wrong].ravel() for who, part in self.parts.items()}
        reason = _reason(np.nan_to_num(array[wrong].ravel()), parts)
        row, wanted = (self._called(one[wrong[0]]) for one in (array, right))
        if row and wanted:
            reason = f"row {wrong[0]} is {row}, and should be {wanted}"
        if isinstance(advice := self.advice, Mapping):
            advice = next(text for words, text in advice.items() if words in reason)
        return f"{self.name} is wrong{where}: {reason}. {advice}".strip()

    def _called(self, row: Array) -> str:
        return next((who for who, one in self.known.items() if np.array_equal(one, row)), "")


def _reason(found: Array, parts: Mapping[str, Array]) -> str:
    """Which contributions are missing or counted twice in these numbers."""
    parts = {who: part for who, part in parts.items() if part.any()}
    matrix = np.stack([np.zeros_like(found), *parts.values()], axis=1)
    factors = np.linalg.lstsq(matrix, found)[0].round(3)
    close = np.allclose(matrix @ factors, found, atol=1e-3 * np.abs(matrix).max())
    if len(found) < len(parts) or not close:
        return "the numbers are not those of the serial program"
    wrong = [(who, one) for who, one in zip(parts, factors[1:], strict=True) if one != 1]
    words = [(who, f"counts {one:g} times" if one else "is missing") for who, one in wrong]
    if len({what for _, what in words}) == 1 < len(words) == len(parts):
        return f"each contribution {words[0][1]}"
    reasons = [f"the contribution of {who} {what}" for who, what in words]
    return ", and ".join(reasons) or "it differs by rounding: keep the dtype of what is given"


@dataclass(frozen=True)
class Case:
    """One run: what each rank is given, and what it must return."""

    given: Sequence[Sequence[Any]]  # after the communicator
    pieces: Sequence[Sequence[Piece]]
    most_bytes: float = np.inf  # that a rank may send
    saving: str = ""  # how fewer bytes would do
    too_much: Callable[[Any], str] = lambda trace: ""  # what is wrong with how it was done
    colors: Sequence[Sequence[int]] = ()  # of each rank: a communicator for each color
    call: Callable[..., Any] = lambda answer, *given: answer(*given)
    mistakes: Mapping[str, Sequence[Sequence[Array]]] = field(default_factory=dict)
    """What each rank returns by a usual mistake, and the sentences that name it."""

    def mistake(self, returned: Sequence[Sequence[Any]]) -> str:
        """The sentence about what all ranks have returned, or nothing."""

        def alike(one: Any, other: Array) -> bool:
            return np.shape(one) == other.shape and np.allclose(one, other, CLOSE, 1e-9)

        for text, wrong in self.mistakes.items():
            ranks = zip(returned, wrong, strict=True)
            if all(alike(*pair) for rank in ranks for pair in zip(*rank, strict=False)):
                return text
        return ""


def on_ranks(case: Callable[..., Case], *cases: tuple[int, ...]) -> Callable[[Any], None]:
    """The judge of a program that must return its pieces in each of these cases."""

    def examine(answer: Any) -> None:
        for one in cases or ((2,), (3,), (5,), (8,), (1,)):
            _prove(answer, case(*one))

    return judged(examine, 6 * TIME_LIMIT)


def _run(answer: Callable[..., Any], case: Case) -> tuple[list[list[Any]], Any]:
    """What each rank returned, and the trace."""
    returned: list[list[Any]] = [[]] * len(case.given)

    def program(comm: Any, buffer: Array) -> None:
        rank = comm.Get_rank()
        comms = [comm.Split(color) for color in case.colors[rank]] if case.colors else [comm]
        result = case.call(answer, *comms, *copy.deepcopy(case.given[rank]))
        several = len(case.pieces[rank]) > 1
        stacked = isinstance(result, np.ndarray) and several and result.ndim
        rows = isinstance(result, (tuple, list)) and not several and len(result) > 1
        returned[rank] = [result] if rows else _flat(list(result) if stacked else result)

    program.func = answer  # type: ignore[attr-defined]  # the lines that are named are its own
    try:
        trace = collectives.run(program, ranks=len(case.given), timeout=TIME_LIMIT)
    except LabError as fault:
        raise Wrong(f"{_on(case)}: {fault}") from None
    return returned, trace


def is_packed(trace: Any) -> bool:
    """Whether lowercase calls such as comm.send have packed arrays by pickle."""
    return any(call.name.islower() for call in trace.calls)


def _on(case: Case) -> str:
    ranks = len(case.given)
    return f"On {ranks} rank{'s' * (ranks > 1)}"


def _prove(answer: Callable[..., Any], case: Case) -> None:
    returned, trace = _run(answer, case)
    on = _on(case)
    for rank, (pieces, results) in enumerate(zip(case.pieces, returned, strict=True)):
        if len(results) != len(pieces):
            names = ", ".join(one.name for one in pieces)
            raise Wrong(f"{on}, rank {rank} returned {reprlib.repr(results)}: return {names}.")
        for one, found in zip(pieces, results, strict=True):
            if text := one.fault(found):
                why = case.mistake(returned)
                raise Wrong(f"{on}, rank {rank}'s {f'{one.name} is wrong. {why}' if why else text}")
    extra = PACKED * max(trace.messages_sent) * is_packed(trace)
    if (most := max(trace.bytes_sent)) > case.most_bytes + extra:
        enough = f"{bytes_text(case.most_bytes)} are enough"
        sent = f"{on.lower()} one sends {bytes_text(most)}"
        raise Wrong(f"It is correct. But {sent}; {enough}. {case.saving}".rstrip())
    if text := case.too_much(trace):
        raise Wrong(f"It is correct. But {on.lower()} {text}")


def _flat(result: Any) -> list[Any]:
    """Returns the arrays that a rank returned, also those inside a list or tuple."""
    many = isinstance(result, (tuple, list))
    return [one for each in result for one in _flat(each)] if many else [result]


def _numbers(seed: int, *shapes: tuple[int, ...]) -> list[Array]:
    random = np.random.default_rng(seed)
    return [random.normal(size=shape) for shape in shapes]


def _sum(name: str, parts: Iterable[Array], advice: str = "All-reduce the parts.") -> Piece:
    """A sum over the ranks."""
    return Piece(name, {f"rank {rank}": part for rank, part in enumerate(parts)}, advice)


def column_parallel(ranks: int) -> Case:
    """(comm, x, w, dy) → y, dx, dw of a linear layer whose columns are sharded."""
    x, *whole = _numbers(ranks, (5, 7), (7, 3 * ranks), (5, 3 * ranks))
    w, dy = (np.split(one, ranks, axis=1) for one in whole)
    own, each = "It needs no communication.", range(ranks)
    y = [Piece("y", {"this rank": x @ w[n]}, own) for n in each]
    dx = _sum("dx", [dy[n] @ w[n].T for n in each])
    dw = [Piece("dw", {"this rank": x.T @ dy[n]}, own) for n in each]
    given = [(x, w[n], dy[n]) for n in each]
    enough, saving = (ranks - 1) * x.nbytes, "One all-reduce, of dx, is all that it needs."
    return Case(given, [(y[n], dx, dw[n]) for n in each], enough, saving)


def gated_mlp(ranks: int) -> Case:
    """(comm, x, gate, up, down, dy) → y and dx of (relu(x @ gate) * (x @ up)) @ down."""
    width = 3 * ranks
    shapes = (5, 4), (5, 4), (4, width), (4, width), (width, 4)
    x, dy, gate, up, down = _numbers(ranks, *shapes)
    a, b, d_active = np.maximum(x @ gate, 0), x @ up, dy @ down.T
    columns = (gate, up, down.T, a * b, d_active * b * (a > 0), d_active * a)
    shards = list(zip(*(np.split(one, ranks, axis=1) for one in columns), strict=True))
    y = _sum(
        "y",
        [active @ w.T for _, _, w, active, _, _ in shards],
        "y = (relu(x @ gate) * (x @ up)) @ down; all-reduce the parts.",
    )
    dx = _sum(
        "dx",
        [d_a @ w_a.T + d_b @ w_b.T for w_a, w_b, _, _, d_a, d_b in shards],
        "It is the gradient of x through the gate and through up: all-reduce the sum of both. relu "
        "passes a gradient only where its input is above 0.",
    )
    given = [(x, w_a, w_b, w.T, dy) for w_a, w_b, w, *_ in shards]
    saving = "Add what belongs to dx on each rank, before the all-reduce."
    return Case(given, [(y, dx)] * ranks, 2 * (ranks - 1) * x.nbytes, saving)  # two all-reduces


def attention_heads(ranks: int, heads: int) -> Case:
    """(comm, qkv, heads) → the rows of this rank's heads: first of q, then of k, then of v."""
    [qkv] = _numbers(ranks, (3, heads, 2, size := 6 * heads))
    shards = [{"this rank": one.reshape(-1, size)} for one in np.split(qkv, ranks, axis=1)]
    advice = "It has the same heads of q, k and v."
    pieces = [[Piece("shard", one, advice)] for one in shards]
    return Case([(qkv.reshape(-1, size), heads)] * ranks, pieces)


def sequence_parallel(ranks: int) -> Case:
    """(comm, x, block) → this rank's positions of x + (the sum of all ranks' block(whole x))."""
    size = 3 * ranks
    # Rows so long that what pickle adds to packed arrays hides no second array.
    x, weights = _numbers(ranks, (size, 128), (ranks, 128, 128))
    positions = np.split(np.arange(size), ranks)
    parts = {"x": x}
    for one, two in np.ndindex(ranks, ranks):
        of_two = x * np.isin(np.arange(size), positions[two])[:, None]
        parts[f"rank {two}'s positions in rank {one}'s block"] = np.cumsum(of_two @ weights[one], 0)

    def block(w: Array, whole: Array) -> Array:
        if np.shape(whole) != x.shape:
            what = f"block(whole) got the shape {np.shape(whole)}, and whole has {x.shape}"
            raise ValueError(f"{what}: all-gather the positions of all ranks first")
        return np.cumsum(whole @ w, axis=0)

    blocks = [partial(block, w) for w in weights]
    advice = "All-gather x in front of the block, sum its results over the ranks, and add x."
    pieces = [[Piece("y", {w: p[mine] for w, p in parts.items()}, advice)] for mine in positions]
    given = [(x[mine], block) for mine, block in zip(positions, blocks, strict=True)]
    saving = "A rank needs its own positions of the sum. A reduce-scatter is half an all-reduce."
    return Case(given, pieces, 2 * (ranks - 1) / ranks * x.nbytes, saving)  # a ring all-reduce


ROWS, ROW = 17, (7, 6)  # of an image; the ranks' shares are not equal


def _placed(arrays: Sequence[Array], width: int, first: int) -> Array:
    """For each rank its rows at their place in the image, with `width` rows above and below it."""
    cuts = np.array_split(np.arange(ROWS), len(arrays))
    whole = np.zeros((len(arrays), ROWS + 2 * width, *ROW))
    for rank, rows in enumerate(arrays):
        whole[rank, first + cuts[rank][0] :][: len(rows)] = rows
    return whole


def halo(ranks: int, width: int) -> Case:
    """(comm, rows, width) → this rank's rows of an image with `width` more above and below."""
    [image] = _numbers(ranks, (ROWS, *ROW))
    shares = np.array_split(image, ranks)
    whole, firsts = _placed(shares, width, width), np.array_split(np.arange(ROWS), ranks)
    windows = [whole[:, cut[0] : cut[-1] + 1 + 2 * width] for cut in firsts]
    advice = "Neighbours exchange their outer rows; outside the image are zeros."
    known = {
        f"row {n} of rank {r}": row for r, rows in enumerate(shares) for n, row in enumerate(rows)
    }
    known["zeros"] = np.zeros(ROW)
    pieces = [[replace(_sum("padded", window, advice), known=known)] for window in windows]
    most = 2 * width * image[0].nbytes  # to two neighbours
    saving = "Only the outer rows go to the neighbours."
    return Case([(rows, width) for rows in shares], pieces, most, saving)


def halo_backward(ranks: int, width: int) -> Case:
    """(comm, d_padded, width) → the gradient of this rank's rows."""
    cuts = np.array_split(np.arange(ROWS), ranks)
    given = _numbers(ranks, *[(len(cut) + 2 * width, *ROW) for cut in cuts])
    inside = _placed(given, width, 0)[:, width:-width]
    advice = "The gradient of a halo row belongs to the rank that owns the row, which adds it."
    most = 2 * width * given[0][0].nbytes
    saving = "Only the gradients of the halo go to the neighbours."
    pieces = [[_sum("d_rows", inside[:, cut], advice)] for cut in cuts]
    return Case([(one, width) for one in given], pieces, most, saving)


def _colors(shape: tuple[int, ...]) -> list[tuple[int, int, int]]:
    """Colors of each rank's tensor, pipeline and data group: the first rank of the group."""
    first = np.arange(np.prod(shape)).reshape(shape).tolist()
    return [(first[r][s][0], first[r][0][p], first[0][s][p]) for r, s, p in np.ndindex(shape)]


Colors: TypeAlias = Sequence[Sequence[int]]  # of each rank


def _colors_from(answer: Callable[..., Any], kinds: Sequence[str], on: str, *given: Any) -> Colors:
    """What a student's function gives to each of so many ranks."""
    ranks, *others = given
    colors = []
    for rank in range(ranks):
        found = answer(rank, *others)
        if len(numbers_in(found, f"{len(kinds)} colors")) != len(kinds):
            names = ", ".join(kinds)
            raise Wrong(f"{on}: for rank {rank} it returned {found}: return colors for {names}.")
        if not all(hasattr(color, "__index__") and color >= 0 for color in found):
            text = f"for rank {rank} it returned {found}"
            raise Wrong(f"{on}: {text}. Split needs whole numbers ≥ 0, so divide with //.")
        colors.append(found)
    return colors


def _group(colors: Colors, rank: int, n: int) -> list[int]:
    """The ranks that give the same color as this one."""
    return [other for other, one in enumerate(colors) if one[n] == colors[rank][n]]


def check_colors(my_colors: Callable[..., Any]) -> None:
    """(rank, tensor, stages) → the colors of a rank's tensor, pipeline and data group."""
    kinds = "tensor", "pipeline", "data"
    # Large sizes: 10 * replica + part is one color for several groups only there.
    for shape in ((2, 2, 2), (2, 3, 1), (2, 2, 3), (3, 1, 4), (1, 4, 2), (2, 2, 33), (2, 33, 2)):
        right, (_, stages, tensor) = _colors(shape), shape
        on = f"On {len(right)} ranks, tensor={tensor}, stages={stages}"
        colors = _colors_from(my_colors, kinds, on, len(right), tensor, stages)
        for rank, (n, kind) in itertools.product(range(len(right)), enumerate(kinds)):
            found, wanted = (listed(_group(one, rank, n)) for one in (colors, right))
            if found != wanted:
                raise Wrong(f"{on}: rank {rank}'s {kind} group is {found}, and must be {wanted}.")


# Eight ranks, four on each of two hosts: tensor groups of four, data groups of two.

HOSTS = [0, 0, 0, 0, 1, 1, 1, 1], [0, 1, 0, 1, 0, 1, 0, 1], [0, 0, 1, 1, 0, 0, 1, 1]
EXAMPLES, WIDTH, HIDDEN = 512, 64, 128


def on_which_link(told: Callable[..., None], my_groups: Callable[..., Any]) -> Any:
    """(rank, hosts) → the colors of a rank's tensor and data group, judged by the hosts' bytes."""
    from labkit.exercises.judges.over_links import over_links

    found: list[Colors] = []

    def tell(hosts: list[int], colors: Colors, shown: Any = None, count: str = "") -> None:
        tensor, data = ([_group(colors, rank, n) for rank in range(8)] for n in (0, 1))
        parts = [tensor[rank].index(rank) for rank in range(8)]
        told(shown, hosts=hosts, tensor=tensor, data=data, parts=parts, count=count)

    def examine(mine: Callable[..., Any]) -> None:
        for hosts in HOSTS:
            on = f"With hosts={hosts}"
            found.append(_colors_from(mine, ["tensor", "data"], on, 8, [*hosts]))
            tell(hosts, found[-1])

    function(examine)(my_groups)
    programs = {str(n): partial(_placed_step, n) for n in range(len(HOSTS))}
    # The kernel has ranks 0 to 3 on host 0; each case numbers the ranks in its own way.
    order = [sorted(range(8), key=hosts.__getitem__) for hosts in HOSTS]
    given = [[(one[at], colors) for one, colors in zip(order, found, strict=True)]
             for at in range(8)]  # fmt: skip
    runs = over_links(programs, given, rounds=1, hosts=2, link="1 Gbit/s")
    traffics = [run.traffic for run in runs.values()]
    for hosts, colors, traffic in zip(HOSTS, found, traffics, strict=True):
        tell(hosts, colors, traffic.picture(), bytes_text(sum(traffic.bytes("host 0"))))
    return traffics[0].picture()


def _placed_step(case: int, world: Any, given: Sequence[Any]) -> int:
    """On a rank: the messages of one step of an MLP, for y, dx and two matrices' gradients."""
    number, colors = given[case]
    tensor, data = (world.Split(color, number) for color in colors[number])
    for _ in range(2):
        ring_all_reduce(tensor, np.zeros((EXAMPLES, WIDTH)))
    for _ in range(2):
        ring_all_reduce(data, np.zeros((WIDTH, HIDDEN // 4)))
    return int(number)


MICRO = 3  # micro-batches


def hybrid_step(replicas: int, stages: int, tensor: int) -> Case:
    """(tensor, pipeline, data, micro_batches, targets, w1, w2) → the gradients of w1 and w2."""
    xs, targets = _numbers(1, *[(replicas, MICRO, 5, 4)] * 2)  # micro-batches of five examples
    w1, w2 = _numbers(2, (stages, 4, 12), (stages, 12, 4))
    x, kept, found = xs, [], {}
    for stage in range(stages):
        kept.append((x, active := np.maximum(x @ w1[stage], 0)))
        x = x + active @ w2[stage]
    dy = (x - targets) / (replicas * MICRO * 5)
    for stage in reversed(range(stages)):
        x, active = kept[stage]
        d_hidden = dy @ w2[stage].T * (active > 0)
        dw1, dw2 = x.swapaxes(-1, -2) @ d_hidden, active.swapaxes(-1, -2) @ dy
        found[stage] = ("dw1", np.split(dw1, tensor, -1)), ("dw2", np.split(dw2, tensor, -2))
        dy = dy + d_hidden @ w1[stage].T
    advice = {
        "missing": "Add up all micro-batches, and all-reduce the sum over the data group.",
        "times": "Divide by the number of all examples: of all micro-batches and all replicas. Sum "
        "over the data group once.",
        "": "Forward and backward, the parts of a layer are summed over the tensor group, those of "
        "gradients over the data group. The next stage gets x + part, the one before dy + part.",
    }
    names = {f"micro-batch {n} of replica {r}": (r, n) for r, n in np.ndindex(replicas, MICRO)}
    given, pieces = [], []
    for replica, stage, part in np.ndindex(replicas, stages, tensor):
        x, target = xs[replica] * (stage == 0), targets[replica] * (stage == stages - 1)
        shards = np.split(w1[stage], tensor, axis=1)[part], np.split(w2[stage], tensor)[part]
        given.append((x, target, *shards))
        sums = {name: {who: dw[part][n] for who, n in names.items()} for name, dw in found[stage]}
        pieces.append([Piece(name, parts, advice) for name, parts in sums.items()])

    def too_late(trace: Any) -> str:
        faults = (_no_overlap(trace, rank, tensor, stages) for rank in range(len(given)))
        return next(filter(None, faults), "")

    colors = _colors((replicas, stages, tensor))
    return Case(given, pieces, colors=colors, too_much=too_late)


def _no_overlap(trace: Any, rank: int, tensor: int, stages: int) -> str:
    """What lets other stages wait for this rank: one micro-batch at a time, or all at once."""
    stage = rank // tensor % stages
    if stage == stages - 1:
        return ""
    ahead = sends_before(trace, rank, rank + tensor)
    early = sends_before(trace, rank, rank + tensor, source=rank - tensor) if stage else []
    if len(ahead) < MICRO:
        return (
            f"rank {rank} receives {len(ahead)} gradients: one for each of {MICRO} micro-batches."
        )
    if stage and not early[-1]:
        return f"rank {rank} sends nothing before it has received all {MICRO} micro-batches."
    for n, sent in enumerate(ahead):
        if sent < (enough := min(MICRO, n + stages - stage)):
            text = f"{sent} micro-batches before it waits for gradient {n}; {enough} can be"
            return f"rank {rank} sends {text} under way. All forward, then all backward."
    return ""


def sends_before(trace: Any, rank: int, dest: int, source: int | None = None) -> list[int]:
    """How many messages a rank has sent to `dest` when it has each of those from `source`."""
    source = dest if source is None else source
    sent = [one.sent_by for one in trace.messages if (one.source, one.dest) == (rank, dest)]
    wanted = {one.number for one in trace.messages if (one.source, one.dest) == (source, rank)}
    calls = [one for one in trace.calls if one.rank == rank]
    done = [call.number for call in calls for one in call.awaits if one in wanted]
    return [sum(by <= number for by in sent) for number in done]


# Sharded state.

RATE, KEPT = 0.25, 0.5
SIZE, LAYERS, LAYER = 29, 3, 24  # a piece has more weights than there are contributions
OWN = {
    "old weights": "Give update() a view of the weights and not a copy. It changes them in place.",
    "missing": "Sum the gradients of all ranks. A reduce-scatter leaves each its part of the sum.",
    "times": "Divide the sum of the gradients by the number of ranks, once.",
    "": "Update your own part, with the mean of all ranks' gradients of that part.",
}


class Momentum:
    """An optimizer that is linear in the gradient: what it was given shows in the weights."""

    def __init__(self) -> None:
        self.state: Array = np.zeros(0)
        self.is_new = True  # the step

    def update(self, weights: Array, gradient: Array) -> None:
        """Change the weights in place; the state is that of the first call's part."""
        if not self.is_new:
            raise ValueError("update() was called twice in one step. Call it once for its part")
        self.is_new = False
        if not self.state.size:
            self.state = np.zeros(np.shape(gradient))
        if not np.shape(weights) == np.shape(gradient) == self.state.shape:
            raise ValueError(
                f"update() got {np.size(weights)} weights, {np.size(gradient)} gradients and has "
                f"the state of {self.state.size}: call it once a step, with the same part of each"
            )
        self.state = KEPT * self.state + gradient
        weights -= RATE * self.state


def _updated(
    name: str, old: Array, gradients: Array, advice: str | Mapping[str, str] = OWN
) -> Piece:
    """The old weights after a step with the mean of the gradients, one of each rank."""
    parts = {f"rank {rank}": -RATE * one / len(gradients) for rank, one in enumerate(gradients)}
    return Piece(name, {"the old weights": old, **parts}, advice)


def zero_1(ranks: int) -> Case:
    """(comm, weights, gradient, optimizer), twice → the weights after both, and its state."""
    rng, cut = np.random.default_rng(ranks), np.array_split(np.arange(SIZE), ranks)
    start, gradients = rng.normal(size=SIZE), rng.normal(size=(2, ranks, SIZE))
    # In the second step the momentum is that of the mean gradient of the first.
    pushes = gradients[0], KEPT * gradients[0].mean(axis=0) + gradients[1]

    def two_steps(my_step: Any, comm: Any, weights: Array, first: Array, second: Array) -> Any:
        optimizer = Momentum()
        my_step(comm, weights, first, optimizer)
        before, optimizer.is_new = weights.copy(), True
        my_step(comm, weights, second, optimizer)
        return [each[piece] for each in (before, weights) for piece in cut] + [optimizer.state]

    def pieces(rank: int) -> list[Piece]:
        found = []
        for step, old in ((0, start), (1, start - RATE * pushes[0].mean(axis=0))):
            for n, piece in enumerate(cut):
                name = f"piece {n} (weights {piece[0]} to {piece[-1]}) after step {step + 1}"
                other = f"Only rank {n} updates it, and sends it to the others."
                advice = OWN if n == rank else other
                found.append(_updated(name, old[piece], pushes[step][:, piece], advice))
        return [*found, Piece("optimizer's state", {"": pushes[1].mean(axis=0)[cut[rank]]}, OWN)]

    most = 2 * 2 * (ranks - 1) * -(-SIZE // ranks) * 8  # a reduce-scatter and an all-gather a step
    given = [(start, *gradients[:, rank]) for rank in range(ranks)]
    saving = "A reduce-scatter of the gradient and an all-gather of the weights are all it needs."
    return Case(given, [pieces(rank) for rank in range(ranks)], most, saving, call=two_steps)


def zero_3(ranks: int) -> Case:
    """(comm, parts, gradient_of, optimizers) → this rank's part of each layer."""
    rng, cut = np.random.default_rng(ranks), np.array_split(np.arange(LAYER), ranks)
    layers, noise = rng.normal(size=(LAYERS, LAYER)), rng.normal(size=(ranks, LAYERS, LAYER))
    own = np.arange(1, ranks + 1)[:, None, None] * layers + noise

    def one_step(my_step: Any, comm: Any, parts: Array) -> Any:
        rank, weights, gradients = comm.Get_rank(), Alive("whole layers"), Alive("whole gradients")

        def gradient_of(n: int, layer: Array) -> Array:
            comm.Send(np.zeros(0), dest=PROC_NULL)  # marks this place in the trace
            if np.shape(layer) != (LAYER,):
                text = f"layer {n} has {LAYER} weights, got shape {np.shape(layer)}"
                raise ValueError(f"{text}: all-gather the parts of all ranks first")
            layer = np.asarray(layer)
            near = [np.allclose(layer[part], layers[n, part]) for part in cut]
            if wrong := [rank for rank, one in enumerate(near) if not one]:
                text = f"where rank {wrong[0]} has its part: all-gather the parts, before updates"
                raise ValueError(f"gradient_of({n}, layer) got wrong weights {text}")
            weights.add(layer)
            found: Array = (rank + 1) * layer + noise[rank, n]
            gradients.add(found)
            return found

        my_step(comm, parts, gradient_of, optimizers := [Momentum() for _ in range(LAYERS)])
        return list(parts), [one.state for one in optimizers]

    def too_much(trace: Any) -> str:
        """A layer may be gathered once or twice: what comes after the first gradient?"""
        unit = (ranks - 1) / ranks * layers[0].nbytes  # of an all-gather or a reduce-scatter
        for rank in range(ranks):
            mine = [c for c in trace.calls if c.rank == rank]
            marks = [c.number for c in mine if c.name == "Send" and not c.begins]
            sent = [m.nbytes for m in trace.messages if m.source == rank and m.sent_by > marks[0]]
            if sum(sent) < (2 * LAYERS - 2) * unit:
                return f"rank {rank} gathers all layers before it computes its first gradient."
            if sum(sent) > (3 * LAYERS - 2) * unit and not is_packed(trace):
                return (
                    f"rank {rank} sends {bytes_text(sum(sent))} from its first gradient on: each "
                    "rank needs the sum of its own part only, a reduce-scatter, not an all-reduce."
                )
        return ""

    pieces = []
    for part in cut:
        each = [(f"layer {n}", layers[n, part], own[:, n, part]) for n in range(LAYERS)]
        found = [_updated(f"part of {name}", old, gradients) for name, old, gradients in each]
        for name, _, gradients in each:
            state = {f"rank {r}": one / ranks for r, one in enumerate(gradients)}
            found.append(Piece(f"optimizer's state of {name}", state, OWN))
        pieces.append(found)
    most = 3 * (ranks - 1) / ranks * layers.nbytes  # two all-gathers and a reduce-scatter a layer
    given = [(np.ascontiguousarray(layers[:, part]),) for part in cut]
    saving = "Gather each layer twice at most, and reduce-scatter its gradient."
    return Case(given, pieces, most, saving, too_much, call=one_step)


class Alive:
    """Arrays of the size of a layer that are in memory at the same time."""

    def __init__(self, what: str) -> None:
        self._what, self._known = what, list[Any]()

    def add(self, array: Any) -> None:
        """Note an array. Three alive are too many: of two, one may be gathered early."""
        while isinstance(getattr(array, "base", None), np.ndarray):
            array = array.base
        self._known.append(weakref.ref(array))
        alive = {id(one): one.nbytes for ref in self._known if (one := ref()) is not None}
        if (count := sum(alive.values()) // (LAYER * 8)) > 2:
            text = f"{count} {self._what} are in memory at the same time, and ZeRO-3 holds one"
            raise Wrong(f"{text}: gather, use and drop layer after layer, and keep your part only.")
