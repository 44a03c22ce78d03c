"""Judges of attention over long sequences: in blocks, round a ring, and by heads.

Arrays have the shape (heads, positions, size). `places` are the positions of each rank.

>>> [one.tolist() for one in zigzag(2, 9)]
[[0, 1, 2, 7, 8], [3, 4, 5, 6]]
"""

import math
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from labkit.collectives.records import listed
from labkit.exercises.judges.model_parallel import Case, Piece
from labkit.exercises.task import Wrong

Array: TypeAlias = npt.NDArray[Any]
Places: TypeAlias = Sequence[Array]
SIZE = 4  # of a head
NAN = "−inf − (−inf) is NaN: a row of a block may have nothing but −inf."


def zigzag(ranks: int, positions: int) -> list[Array]:
    """Of 2p chunks rank r has number r, and number r counted from the end."""
    chunks = np.array_split(np.arange(positions), 2 * ranks)
    return [np.concatenate([chunks[r], chunks[-1 - r]]) for r in range(ranks)]


def attention(q: Array, k: Array, v: Array, seen: Any = True) -> tuple[Array, Array]:
    """The serial program: outputs, and weights of all keys; rows that see no key give zeros."""
    k, v = (np.repeat(one, len(q) // len(one), axis=0) for one in (k, v))
    scores = np.where(seen, q @ k.swapaxes(1, 2) / math.sqrt(q.shape[-1]), -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True, initial=-1e300))
    weights = weights / np.maximum(weights.sum(-1, keepdims=True), 1e-30)
    return weights @ v, weights


def gradients(q: Array, k: Array, v: Array, dout: Array, seen: Any = True) -> list[Array]:
    """Of q, and of k and v for each pair of a query's head and a key: dq, dk, dv of each row."""
    out, weights = attention(q, k, v, seen)
    return from_weights(q, k, v, weights, dout, (dout * out).sum(-1, keepdims=True))


def from_weights(q: Array, k: Array, v: Array, p: Array, dout: Array, dot: Array) -> list[Array]:
    """dq, dk and dv by the weights; dot is each row's dout · out."""
    groups = len(k), len(q) // len(k)
    wide_k, wide_v = (np.repeat(one, groups[1], axis=0) for one in (k, v))
    ds = p * (dout @ wide_v.swapaxes(1, 2) - dot) / math.sqrt(q.shape[-1])
    of_keys = (ds.swapaxes(1, 2) @ q, p.swapaxes(1, 2) @ dout)
    return [ds @ wide_k, *(one.reshape(*groups, *k.shape[1:]).sum(1) for one in of_keys)]


def add_block(state: Any, q: Array, k: Array, v: Array, hidden: Any = False) -> Any:
    """Continue a softmax with a block of keys; `hidden` is True where a query sees no key."""
    hidden, wanted = np.asarray(hidden), (q.shape[1], k.shape[1])
    if hidden.shape not in ((), wanted):
        got = f"add_block got hidden of the shape {hidden.shape}, and q and k have"
        raise ValueError(f"{got} {wanted[0]} and {wanted[1]} positions: it must be {wanted}")
    out, top, total = state or (0.0, -np.inf, 0.0)
    k, v = (np.repeat(one, len(q) // len(one), axis=0) for one in (k, v))
    scores = np.where(hidden, -np.inf, q @ k.swapaxes(1, 2) / math.sqrt(q.shape[-1]))
    new = np.maximum(top, scores.max(-1, keepdims=True, initial=-np.inf))
    finite = np.where(np.isinf(new), 0, new)
    weights, factor = np.exp(scores - finite), np.exp(top - finite)
    return out * factor + weights @ v, new, total * factor + weights.sum(-1, keepdims=True)


def _finished(state: Any) -> Array:
    if not (isinstance(state, tuple) and len(state) == 3):
        raise Wrong("Return the state that the last add_block gave: out, top and total.")
    out, _, total = state
    return np.asarray(out / np.maximum(total, 1e-30))


class Attended(Piece):
    """A piece of attention; `known` are wrong results, by what is wrong."""

    def fault(self, found: Any) -> str:
        """What is wrong with an array, or nothing."""
        right = np.sum(list(self.parts.values()), axis=0)
        if text := named(found, right, self.known, 1e-6):
            return f"{self.name} is wrong: {text}"
        return super().fault(found).replace(" in row", " in head")


def named(found: Any, right: Array, known: Mapping[str, Array], tolerance: float) -> str:
    """Which of the known wrong results this is."""
    try:
        array = np.asarray(found, dtype=float)
    except (TypeError, ValueError):
        return ""
    if array.dtype == float and found is not None and np.isnan(array).any():
        return NAN
    for text, one in known.items():
        other = np.isfinite(one).all() and not _near(one, right, tolerance)
        if other and _near(array, one, 10 * tolerance):
            return text
    return ""


def _near(found: Array, right: Array, tolerance: float) -> bool:
    if np.shape(found) != np.shape(right):
        return False
    return bool((np.abs(found - right) <= tolerance * max(np.abs(right).max(), 1e-30)).all())


def _numbers(seed: int, *shapes: tuple[int, ...]) -> list[Array]:
    random = np.random.default_rng(seed)
    return [random.normal(size=shape) for shape in shapes]


# On one device.


def softmax_blocks(my_attention: Callable[..., Any]) -> None:
    """(blocks) → outputs: blocks gives (scores, v) block after block, in float32."""
    random = np.random.default_rng(46)
    for keys, blocks, spread in ((12, 3, 1), (10, 4, 3), (6, 1, 1), (12, 3, 300), (12, 4, 8)):
        scores = random.normal(size=(5, keys)).astype(np.float32) * np.float32(spread)
        v = random.normal(size=(keys, 3)).astype(np.float32)
        if blocks == 4:  # a row sees nothing in the first block, another nothing in the second
            scores[1, :4] = scores[2, 3:6] = -np.inf
        cut = np.array_split(np.arange(keys), blocks)
        right, largest = attention_of(scores, v), max(1, np.abs(scores[np.isfinite(scores)]).max())
        given = _Blocks([(scores[:, one].copy(), v[one].copy()) for one in cut])
        found = my_attention(iter(given))
        on = f"With {blocks} block{'s' * (blocks > 1)} and scores up to {largest:.0f}"
        wrong = _wrong_softmax(scores, v, cut)
        if text := named(found, right, wrong, 1e-6 * largest):
            raise Wrong(f"{on} the output is wrong: {text}")
        if np.shape(found) != right.shape:
            shape = f"{np.shape(found)}; it must be {right.shape}"
            raise Wrong(f"{on} the output has the shape {shape}.")
        if not _near(np.asarray(found, float), right, 1e-6 * largest):
            far = np.abs(np.asarray(found, float) - right).max() / np.abs(right).max()
            raise Wrong(f"{on} the output is {far:.0e} of the largest number from the serial one.")
        if (dtype := np.asarray(found).dtype) != right.dtype:
            text = f"its dtype is {dtype}, and that of the scores is {right.dtype}"
            raise Wrong(f"It is correct. But {text}: keep it.")
        if given.most > 2:
            text = f"{given.most} blocks of scores are in memory at the same time"
            raise Wrong(f"It is correct. But {text}: use each block, and drop it.")


class _Blocks:
    """Blocks, given one after another; how many of them were alive at most."""

    def __init__(self, blocks: list[tuple[Array, Array]]) -> None:
        self._blocks, self._given, self.most = blocks, list[Any](), 0

    def __iter__(self) -> Iterator[tuple[Array, Array]]:
        while self._blocks:
            scores, v = self._blocks.pop(0)
            self._given.append(weakref.ref(scores))
            self.most = max(self.most, sum(one() is not None for one in self._given))
            yield scores, v
            del scores


def attention_of(scores: Array, v: Array) -> Array:
    """The serial softmax of scores, times v, in their dtype."""
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return np.asarray(weights / weights.sum(-1, keepdims=True) @ v)


def _wrong_softmax(scores: Array, v: Array, cut: list[Array]) -> dict[str, Array]:
    """What usual mistakes give."""
    first = np.where(np.isinf(scores), -1e300, scores.astype(float))
    tops = [first[:, one].max(-1, keepdims=True) for one in cut]
    running = list(np.maximum.accumulate(np.array(tops)))
    sums: dict[str, list[Any]] = {"block": [0, 0], "out": [0, 0], "mean": [0, 1], "none": [0, 0]}
    rescaled: Array | float = 0.0
    before = running[0]
    for one, own, top in zip(cut, tops, running, strict=True):
        of_own, of_top = np.exp(first[:, one] - own), np.exp(first[:, one] - top)
        factor, before = np.exp(before - top), top
        rescaled = rescaled * factor + of_top.sum(-1, keepdims=True)
        for name, weights in (("block", of_own), ("none", of_top)):
            sums[name][0] += weights @ v[one]
            sums[name][1] += weights.sum(-1, keepdims=True)
        sums["out"][0] = sums["out"][0] * factor + of_top @ v[one]
        sums["out"][1] += of_top.sum(-1, keepdims=True)
        sums["mean"][0] += of_own / of_own.sum(-1, keepdims=True) @ v[one] / len(cut)
    wrong = {name: out / total for name, (out, total) in sums.items()}
    return {
        "what was summed before must be multiplied by exp(old maximum − new maximum) when the "
        "maximum grows. Here neither sum is.": wrong["none"],
        "each block has its own maximum here. All weights need the maximum of all scores so far."
        "": wrong["block"],
        "the sum of the weights must be multiplied by exp(old maximum − new maximum), too."
        "": wrong["out"],
        "the sum of weights · v must be multiplied by exp(old maximum − new maximum), too."
        "": sums["none"][0] / rescaled,
        "it is the mean of the blocks' own softmaxes. A block counts by its share of the sum of "
        "all weights.": wrong["mean"],
    }  # fmt: skip


def merged(my_merge: Callable[..., Any]) -> None:
    """(out1, lse1, out2, lse2) → out, lse of the keys of both."""
    for spread, offset, empty in ((1, 0, False), (3, 0, True), (1, 900, False), (1, -900, True)):
        random = np.random.default_rng(7)
        scores, v = random.normal(size=(4, 6)) * spread + offset, random.normal(size=(6, 3))
        if empty:
            scores[1, :2] = scores[2, 2:] = -np.inf
        parts = [(scores[:, one], v[one]) for one in (slice(2), slice(2, 6))]
        given: list[Array] = []
        for one, values in parts:
            top = np.maximum(one.max(-1, keepdims=True), -1e300)
            weights = np.exp(one - top)
            total = weights.sum(-1, keepdims=True)
            with np.errstate(divide="ignore"):
                given += [weights @ values / np.maximum(total, 1e-30), top + np.log(total)]
        top = scores.max(-1, keepdims=True)
        right = top + np.log(np.exp(scores - top).sum(-1, keepdims=True))
        on = f"With log-sums near {offset}" + " and a row that sees no key of one part" * empty
        found = my_merge(*(one.copy() for one in given))
        if not (isinstance(found, (tuple, list)) and len(found) == 2):
            raise Wrong(f"{on}: return out and lse.")
        means = {
            "it is the plain mean. The part with the larger lse counts more.": (given[0] + given[2])
            / 2,
            "it is a sum of softmaxes that were not divided by the sum of both.": given[0]
            + given[2],
        }
        if not np.isfinite(np.asarray(found[1], float)).all():
            text = "Take exp of differences only: lse − the larger of the two"
            raise Wrong(f"{on} exp(lse) overflows or underflows. {text}.")
        sums = {"it is lse1 + lse2. exp(lse) is what is added.": given[1] + given[3]}
        for name, one, wanted, known in (
            ("out", found[0], attention_of(scores, v), means),
            ("lse", found[1], right, sums),
        ):
            if text := named(one, wanted, known, 1e-9):
                raise Wrong(f"{on} {name} is wrong: {text}")
            if not _near(np.asarray(one, float), wanted, 1e-9):
                raise Wrong(f"{on} {name} is wrong: the numbers are not those of one softmax.")


def causal_blocks(my_causal: Callable[..., Any]) -> None:
    """(q, k, v, size, add_block) → the state after all blocks of at most `size` keys."""
    for positions, size in ((12, 4), (11, 4), (5, 8), (6, 1)):
        q, k, v = _numbers(positions, *[(2, positions, SIZE)] * 3)
        at, taken = np.arange(positions), list[int]()

        def continued(state: Any, q: Array, k: Array, v: Array, hidden: Any = False,
                      taken: list[int] = taken) -> Any:  # fmt: skip
            taken.append(k.shape[1])
            return add_block(state, q, k, v, hidden)

        found = _finished(my_causal(q, k, v, size, continued))
        on = f"With {positions} positions in blocks of {size}"
        if max(taken, default=0) > size:
            raise Wrong(f"{on}, a block has {max(taken)} keys, and may have {size}.")

        def seen(of_key: Array, q: Array = q, k: Array = k, v: Array = v, at: Array = at) -> Array:
            return attention(q, k, v, of_key[None] <= at[:, None])[0]

        whole = positions - positions % size
        short = attention(q, k[:, :whole], v[:, :whole], at[None, :whole] <= at[:, None])[0]
        # A query that sees no key at all gives zeros.
        known = {
            "the mask is missing: a position sees itself and those before it.": seen(0 * at),
            "a position must see its own key: hidden is where the key's position is larger than "
            "the query's.": seen(at + 1),
            "the mask must know where the block begins in the sequence: its first key has the "
            "position start, and not 0.": seen(at % size),
            "the mask is shifted by one block: it hides keys that the query must see.": seen(
                at + size
            ),
            "the mask is shifted by one block: it shows keys that come after the query.": seen(
                at - size
            ),
            "the keys of the last block, which is smaller, are missing.": short,
        }
        right = seen(at)
        if text := named(found, right, known, 1e-9):
            raise Wrong(f"{on} the output is wrong: {text}")
        if not _near(found, right, 1e-9):
            raise Wrong(f"{on} the output is not that of the serial program.")


def block_gradients(my_gradients: Callable[..., Any]) -> None:
    """(q, k, v, out, lse, dout, hidden) → dq, dk, dv of one block of a longer sequence."""
    for queries, keys, first in ((5, 4, 3), (3, 6, 0), (4, 4, 8)):
        q, dout, k, v = _numbers(queries, *[(2, queries, SIZE)] * 2, *[(2, 12, SIZE)] * 2)
        at = np.arange(12 - queries, 12)
        seen = np.arange(12)[None] <= at[:, None]
        out, weights = attention(q, k, v, seen)
        raw = np.where(seen, q @ k.swapaxes(1, 2) / math.sqrt(SIZE), -np.inf)
        lse = np.log(np.exp(raw).sum(-1, keepdims=True))
        block = slice(first, first + keys)
        k, v, seen, dot = k[:, block], v[:, block], seen[:, block], (dout * out).sum(-1)[..., None]
        found = my_gradients(*(one.copy() for one in (q, k, v, out, lse, dout)), ~seen)
        if not (isinstance(found, (tuple, list)) and len(found) == 3):
            raise Wrong("Return dq, dk and dv.")
        p = weights[:, :, block]
        own, alone = attention(q, k, v, seen)[::-1]
        unmasked = np.exp(np.where(seen, raw[:, :, block], q @ k.swapaxes(1, 2) / 2) - lse)
        known = {
            "the weights are those of a softmax over this block alone. exp(scores − lse) has the "
            "sum over all keys in it.": from_weights(q, k, v, own, dout, dot),
            "it is the gradient of a softmax over this block alone. Use lse, and out of all keys."
            "": from_weights(q, k, v, own, dout, (dout * alone).sum(-1, keepdims=True)),
            "the softmax's gradient is p * (dp − sum of dout * out in each row). The sum is "
            "missing.": from_weights(q, k, v, p, dout, 0 * dot),
            "the sum of p * dp must be over all keys, and this block has only some of them. "
            "dout * out, summed in each row, is that sum.": from_weights(
                q, k, v, p, dout, (p * (dout @ v.swapaxes(1, 2))).sum(-1, keepdims=True)),
            "keys that are hidden have a gradient here. Their weight is 0.": from_weights(
                q, k, v, unmasked, dout, dot),
            "scores are q · k divided by the root of the head's size, and so is their gradient."
            "": [one * factor for one, factor in zip(
                from_weights(q, k, v, p, dout, dot), (2, 2, 1), strict=True)],
        }  # fmt: skip
        right = from_weights(q, k, v, p, dout, dot)
        for n, (name, one) in enumerate(zip(("dq", "dk", "dv"), found, strict=True)):
            if text := named(one, right[n], {why: bad[n] for why, bad in known.items()}, 1e-9):
                raise Wrong(f"{name} is wrong: {text}")
            if not _near(np.asarray(one, float), right[n], 1e-9):
                raise Wrong(f"{name} is not the gradient of the serial program.")


# On ranks.


def _placed(ranks: int, kind: str) -> Places:
    """Positions of each rank: equal zigzag chunks, or unequal parts in no order."""
    if kind == "zigzag":
        return zigzag(ranks, 6 * ranks)
    count = sum(lengths := [2 + 3 * rank % 7 for rank in range(ranks)])
    order = np.random.default_rng(ranks).permutation(count)
    return [np.sort(one) for one in np.split(order, np.cumsum(lengths)[:-1])]


def _most(places: Places, k: Array) -> int:
    """Bytes of keys and values of all ranks but the one with the fewest."""
    lengths = [len(one) for one in places]
    return 2 * (sum(lengths) - min(lengths)) * len(k) * SIZE * 8


def ring(ranks: int, kind: str, heads: int, key_heads: int) -> Case:
    """(comm, q, k, v, places, add_block) → the state of this rank's queries."""
    places = _placed(ranks, kind)
    total = sum(map(len, places))
    q, k, v = _numbers(ranks, (heads, total, SIZE), *[(key_heads, total, SIZE)] * 2)
    at, owner = np.arange(total), np.empty(total, int)
    for rank, one in enumerate(places):
        owner[one] = rank
    order = np.argsort(np.concatenate(places))  # where a position is in its rank's part
    order = order - np.cumsum([0, *map(len, places)])[owner]
    _, weights = attention(q, k, v, at[None] <= at[:, None])
    given, pieces = [], []
    for rank, mine in enumerate(places):
        parts = {}
        for other, theirs in enumerate(places):
            part = weights[:, mine][..., theirs] @ np.repeat(v, heads // key_heads, 0)[:, theirs]
            parts[f"rank {other}'s keys"] = part
        by_rank = (owner[None] < rank) | ((owner == rank)[None] & (order <= order[mine][:, None]))
        last = (owner != (rank + 1) % ranks)[None] if ranks > 1 else True
        causal = at[None] <= mine[:, None]
        masks = {
            "every query sees every key. Hide keys whose position is larger than the query's."
            "": np.ones_like(causal),
            f"the keys of rank {(rank + 1) % ranks}, which come last, are missing: {ranks} ranks "
            f"have {ranks} blocks.": causal & last,
            "only this rank's own keys are in it. Use the blocks of all ranks, and compare "
            "positions, not ranks.": causal & (owner == rank)[None],
            "the mask compares ranks. A rank's positions are places[rank], and the ones of a rank "
            "with a larger number may come before them.": by_rank,
        }
        if len({len(one) for one in places}) == 1:
            turned, of_mine = np.empty(total, int), np.empty(total, int)
            for other, theirs in enumerate(places):
                turned[theirs], of_mine[theirs] = places[(2 * rank - other) % ranks], mine
            text = "the mask takes this rank's positions for the keys of every block."
            masks[text] = of_mine[None] <= mine[:, None]
            text = (
                "a block is taken for that of another rank. What comes from the left neighbour in "
                "hop i began at rank (rank − i) % ranks."
            )
            masks[text] = turned[None] <= mine[:, None]
        known = {text: attention(q[:, mine], k, v, one)[0] for text, one in masks.items()}
        pieces.append([Attended("output", parts, "", known)])
        given.append((*(one.take(mine, 1) for one in (q, k, v)), places))

    def one_block(state: Any, q: Array, k: Array, v: Array, hidden: Any = False) -> Any:
        if k.shape[1] > max(map(len, places)):
            text = "in a ring a rank holds one block and the one that comes"
            raise ValueError(f"add_block got {k.shape[1]} keys, of more than one rank: {text}")
        return add_block(state, q, k, v, hidden)

    def call(answer: Any, comm: Any, *mine: Any) -> Array:
        return _finished(answer(comm, *mine, one_block))

    saving = (
        "Each block of keys and values makes p − 1 hops, with the heads of k and v: add_block "
        "repeats them for the heads of q."
    )
    return Case(given, pieces, _most(places, k), saving, call=call)


def ring_backward(ranks: int, kind: str, heads: int, key_heads: int) -> Case:
    """(comm, k, v, places, block) → dq, dk, dv; block(k, v, hidden) gives those of one block."""
    places = _placed(ranks, kind)
    total = sum(map(len, places))
    q, dout, k, v = _numbers(ranks, *[(heads, total, SIZE)] * 2, *[(key_heads, total, SIZE)] * 2)
    at = np.arange(total)
    out, weights = attention(q, k, v, at[None] <= at[:, None])
    dot = (dout * out).sum(-1, keepdims=True)

    def of(rank: int, k: Array, v: Array, keys: Array, hidden: Any = None) -> list[Array]:
        """From the queries of a rank and some keys; `hidden` are those that its mask hides."""
        mine = places[rank]
        p = weights[:, mine][..., keys]
        if hidden is not None:
            p = np.where(hidden, 0, p)
        return from_weights(q[:, mine], k, v, p, dout[:, mine], dot[:, mine])

    found = [[of(r, k[:, o], v[:, o], o) for o in places] for r in range(ranks)]
    given, pieces = [], []
    advice = {
        "missing": "The gradients travel with their keys, and each rank on the way adds its part.",
        "": "dk and dv belong to the rank that owns the keys.",
    }
    for rank, mine in enumerate(places):
        of_queries = {f"rank {other}'s keys": found[rank][other][0] for other in range(ranks)}
        row = [Attended("dq", of_queries, "It stays on its rank, which adds up all blocks.")]
        for n, name in ((1, "dk"), (2, "dv")):
            parts = {f"rank {other}'s queries": found[other][rank][n] for other in range(ranks)}
            sums = [sum(found[one][other][n] for one in range(ranks)) for other in range(ranks)]
            known = {
                f"it is the gradient of rank {other}'s keys. It has to travel on to rank {other}: "
                "the last hop is missing, or goes the wrong way.": np.asarray(one)
                for other, one in enumerate(sums)
                if other != rank
            }
            row.append(Attended(name, parts, advice, known))
        pieces.append(row)
        given.append((rank, k.take(mine, 1), v.take(mine, 1), places))

    def call(answer: Any, comm: Any, rank: int, *mine: Any) -> Any:
        def block(block_k: Array, block_v: Array, hidden: Any) -> list[Array]:
            keys = next((one for one in places if np.array_equal(block_k, k[:, one])), None)
            if keys is None or not np.array_equal(block_v, v[:, keys]):
                raise ValueError("block got k and v that are not those of one rank")
            wanted, hidden = (len(places[rank]), len(keys)), np.asarray(hidden)
            if hidden.shape != wanted:
                got = f"block got hidden of the shape {hidden.shape}: it must be {wanted}"
                raise ValueError(f"{got}, this rank's queries by the keys of the block")
            if not np.array_equal(hidden, keys[None] > places[rank][:, None]):
                text = "keys whose position is larger than the query's, and the keys are those of"
                owner = next(n for n, one in enumerate(places) if one is keys)
                raise ValueError(f"block got a wrong mask: hide {text} rank {owner}")
            return of(rank, block_k, block_v, keys)

        return answer(comm, *mine, block)

    most = _most(places, k) + 2 * total * len(k) * SIZE * 8
    saving = "Keys and values make p − 1 hops, their gradients p: then they are at home."
    return Case(given, pieces, most, saving, call=call)


def ulysses(ranks: int, heads: int, key_heads: int) -> Case:
    """(comm, q, k, v, lengths, attention) → the output of this rank's positions, all heads."""
    lengths = [2 + 3 * rank % 7 for rank in range(ranks)]
    cuts, total = np.split(np.arange(sum(lengths)), np.cumsum(lengths)[:-1]), sum(lengths)
    q, k, v = _numbers(heads, (heads, total, SIZE), *[(key_heads, total, SIZE)] * 2)
    out, _ = attention(q, k, v, np.tri(total, dtype=bool))

    def causal(q: Array, k: Array, v: Array) -> Array:
        shapes = [(heads // ranks, total, SIZE), *[(key_heads // ranks, total, SIZE)] * 2]
        for name, one, shape in zip("qkv", (q, k, v), shapes, strict=True):
            if np.shape(one) != shape:
                got = f"attention got {name} of the shape {np.shape(one)}, and it must be {shape}"
                raise ValueError(f"{got}: this rank's heads, with the positions of all ranks")
        return attention(q, k, v, np.tri(total, dtype=bool))[0]

    rows = {f"position {n} of head {h}": out[h, n] for h, n in np.ndindex(heads, total)}
    advice = "The second all-to-all gives each rank its positions, of all heads in their order."
    given, pieces = [], []
    for mine in cuts:
        flat = np.reshape(out[:, mine], (-1, SIZE))
        pieces.append([Piece("output (head after head)", {"": flat}, advice, rows)])
        given.append((*(one.take(mine, 1) for one in (q, k, v)), lengths))

    def call(answer: Any, comm: Any, *mine: Any) -> Any:
        found = np.asarray(answer(comm, *mine, causal))
        wanted = (heads, mine[0].shape[1], SIZE)
        if found.shape != wanted:
            raise ValueError(f"return an array of the shape {wanted}, got {found.shape}")
        return found.reshape(-1, SIZE)

    q_bytes, k_bytes = (one * SIZE * 8 // ranks for one in (heads, key_heads))
    most = max(
        one * (ranks - 1) * (q_bytes + 2 * k_bytes) + (total - one) * q_bytes for one in lengths
    )
    saving = (
        "A rank gives each other rank that rank's heads of its own positions, and gets its own "
        "heads of theirs."
    )
    return Case(given, pieces, most, saving, call=call)


def balanced_places(my_places: Callable[..., Any]) -> None:
    """(ranks, positions) → the positions of each rank, all with the same work in each hop."""
    for ranks, positions in ((3, 24), (2, 8), (4, 40), (8, 64), (1, 6), (5, 30)):
        parts = my_places(ranks, positions)
        on = f"For {ranks} rank{'s' * (ranks > 1)} and {positions} positions"
        if not isinstance(parts, (list, tuple, np.ndarray)):
            raise Wrong(f"{on}: return a list with the positions of each rank.")
        found = [np.asarray(one) for one in parts]
        if len(found) != ranks:
            raise Wrong(f"{on} it returned {len(found)} parts.")
        everything = np.sort(np.concatenate([one.ravel() for one in found]))
        if not np.array_equal(everything, np.arange(positions)):
            lost = set(range(positions)) - {*everything.tolist()}
            text = f"no rank has {listed(sorted(lost)[:4])}" if lost else "some are there twice"
            raise Wrong(f"{on} each position belongs to one rank: {text}.")
        for hop in range(ranks):
            work = [visible(found[r], found[(r - hop) % ranks]) for r in range(ranks)]
            if len(set(work)) > 1:
                raise Wrong(
                    f"{on}, in hop {hop} rank {work.index(max(work))} has {max(work)} pairs of a "
                    f"query and a key that it sees, and rank {work.index(min(work))} has "
                    f"{min(work)}: the others wait for the slowest."
                )


def visible(queries: Array, keys: Array) -> int:
    """Pairs of a query and a key that it may see.

    >>> visible(np.array([0, 3]), np.array([1, 2]))
    2
    """
    return int((np.asarray(keys)[None] <= np.asarray(queries)[:, None]).sum())
