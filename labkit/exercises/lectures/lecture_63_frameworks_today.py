"""What answers of lecture 63 are judged by: frameworks today."""

from typing import Any

import numpy as np

from labkit.exercises.judges.model_parallel import PACKED, Case, Piece, is_packed
from labkit.kinds import bytes_text

Spec = tuple[str | None, str | None]
WHOLE: Spec = (None, None)
ROWS: Spec = ("x", None)
COLUMNS: Spec = (None, "x")
# Shardings of A, B and the result, as JAX writes them, and the collective that they need.
PRODUCTS: dict[tuple[Spec, Spec, Spec], str] = {
    (ROWS, WHOLE, ROWS): "none",
    (WHOLE, COLUMNS, COLUMNS): "none",
    (COLUMNS, ROWS, WHOLE): "all-reduce",
    (COLUMNS, ROWS, ROWS): "reduce-scatter",
    (ROWS, WHOLE, WHOLE): "all-gather",
    (WHOLE, COLUMNS, WHOLE): "all-gather",
    (ROWS, ROWS, ROWS): "all-gather",
    (WHOLE, WHOLE, WHOLE): "none",
    (COLUMNS, ROWS, COLUMNS): "reduce-scatter",
    (COLUMNS, COLUMNS, COLUMNS): "all-gather",
    (ROWS, COLUMNS, ROWS): "all-gather",
    (ROWS, COLUMNS, COLUMNS): "all-gather",
}
BY_ROWS = [one for one in PRODUCTS if COLUMNS not in one[1:]]

NEEDS = {
    "none": "Each rank has what its piece of C needs.",
    "all-reduce": "k is divided, so each rank has a partial sum; C is wanted whole.",
    "reduce-scatter": "k is divided, so each rank has a partial sum; C is wanted in shards.",
    "all-gather": "B, or C, is in shards and must be whole.",
}


def _words(specs: tuple[Spec, Spec, Spec]) -> str:
    return "A {}, B {}, C {}".format(*("P({!r}, {!r})".format(*one) for one in specs))


def sharded_product(ranks: int, kind: int) -> Case:
    """(comm, a, b, a_spec, b_spec, c_spec) → this rank's piece of a @ b."""
    from labkit.collectives.library import MEANING

    random = np.random.default_rng(kind)
    specs = BY_ROWS[kind]
    whole = random.normal(size=(12, 36)), random.normal(size=(36, 12))
    a, b = (_shards(one, spec, ranks) for one, spec in zip(whole, specs, strict=False))
    if specs[:2] == (COLUMNS, ROWS):
        parts = {f"rank {rank}": a[rank] @ b[rank] for rank in range(ranks)}
    else:
        parts = {"the product": whole[0] @ whole[1]}
    pieces = [
        [Piece(f"C for {_words(specs)}", {who: c[rank] for who, c in sharded.items()})]
        for sharded in [{who: _shards(c, specs[2], ranks) for who, c in parts.items()}]
        for rank in range(ranks)
    ]
    needed, share = PRODUCTS[specs], (ranks - 1) / ranks
    gathered = whole[1] if specs[1] == specs[0] == ROWS else whole[0] @ whole[1]
    times = {"none": 0.0, "all-reduce": 2 * share, "reduce-scatter": share, "all-gather": share}
    enough = times[needed] * gathered.nbytes

    def too_much(trace: Any) -> str:
        """MPI's own collective may send more than a ring: it need only be the right one."""
        first = [c for c in trace.calls if c.library and c.rank == 0 and c.barrier is not None]
        made = [MEANING[call.library[0]].replace("_", "-") for call in first]
        sent = max(trace.bytes_sent) - PACKED * max(trace.messages_sent) * is_packed(trace)
        if made == [needed] or ("all-reduce" not in made and sent <= enough):
            return ""
        sizes = f"{bytes_text(max(trace.bytes_sent))}; {bytes_text(enough)} are enough"
        return f"one sends {sizes}. {_words(specs)}: {NEEDS[needed]}"

    given = [(a[rank], b[rank], *specs) for rank in range(ranks)]
    return Case(given, pieces, too_much=too_much)


def _shards(array: Any, spec: Spec, ranks: int) -> list[Any]:
    return np.split(array, ranks, axis=spec.index("x")) if "x" in spec else [array] * ranks
