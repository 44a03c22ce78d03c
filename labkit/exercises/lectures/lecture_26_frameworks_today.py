"""The tasks of lecture 26: frameworks today."""

from typing import Any

import numpy as np

from labkit.exercises.judges.answers import function_task, number
from labkit.exercises.judges.model_parallel import PACKED, Case, Piece, is_packed, on_ranks
from labkit.exercises.task import Task, Wrong
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
}
BY_ROWS = [one for one in PRODUCTS if one[1] != COLUMNS]

NEEDS = {
    "none": "Each rank has what its piece of C needs.",
    "all-reduce": "k is divided, so each rank has a partial sum; C is wanted whole.",
    "reduce-scatter": "k is divided, so each rank has a partial sum; C is wanted in shards.",
    "all-gather": "B, or C, is in shards and must be whole.",
}

FINISHED = {"Alpa", "BytePS", "FairScale", "Horovod", "Mesh-TensorFlow", "MXNet"}
RELEASED = {"DeepSpeed", "Flower", "JAX", "Megatron-Core", "NVFlare", "torchtitan"}


def _letters(name: Any) -> str:
    """A name without case, hyphens and spaces."""
    return "".join(filter(str.isalnum, str(name).casefold()))


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


def _retired(answer: Any) -> None:
    known = {_letters(name): name for name in FINISHED | RELEASED}
    given = {_letters(name): str(name) for name in answer}
    if unknown := sorted(name for one, name in given.items() if one not in known):
        raise Wrong(f"{unknown[0]!r} is not one of the twelve names in `projects`.")
    for name in sorted(known[one] for one in given):
        if name in RELEASED:
            raise Wrong(f"{name} has a release after 2023. Look at its row of the table.")
    if len(given) < len(FINISHED):
        raise Wrong(f"All of these are right, and {len(FINISHED) - len(given)} more are missing.")


TASKS = {
    "26.retired": Task(
        "Which of the twelve projects have no release after 2023? Write a set of names.",
        _retired,
        ("Look at the column 'last release' of the table.", "There are six of them."),
        'retired = {"Alpa", "BytePS", "FairScale", "Horovod", "Mesh-TensorFlow", "MXNet"}',
        "Some of it lives on: FairScale's FSDP in PyTorch, Alpa's search in XLA.",
    ),
    "26.collective": function_task(
        "Write my_collective(a, b, c): the shardings of A, B and of the result C = A @ B are "
        'tuples such as ("x", None). Return the collective that a compiler must insert: "none", '
        '"all-reduce", "reduce-scatter" or "all-gather".',
        PRODUCTS,
        (
            "Look at the contraction dimension first: a[1] and b[0]. If both are sharded, each "
            "rank has a part of the sum for all of C.",
            "If both are sharded, is C wanted whole or in shards? One is an all-reduce.",
            "Otherwise the product has the sharding (a[0], b[1]). Compare it with c. One case is "
            "left: b[0] is sharded and a[1] is not, so the ranks need all of B.",
        ),
        """
def my_collective(a, b, c):
    if a[1] and b[0]:  # partial sums
        return "reduce-scatter" if any(c) else "all-reduce"
    if b[0] or (a[0], b[1]) != c:
        return "all-gather"
    return "none"
""",
        "This is the rule of Mesh-TensorFlow (2018) for einsum. FSDP is the case in which A (the "
        "batch) and B (the weights) are both sharded by rows.",
        slips=[
            ('"reduce-scatter" if any(c) else ', "", "C is wanted in shards: reduce-scatter."),
            ("if b[0] or ", "if ", "B is in shards, and the ranks need all of it."),
        ],
        difficulty=2,
    ),
    "26.partitioner": Task(
        "Write my_matmul(comm, a, b, a_spec, b_spec, c_spec): a and b are this rank's shards. "
        "Return this rank's piece of A @ B, with the cheapest collective. B and C are whole or "
        "sharded by rows.",
        on_ranks(
            sharded_product,
            *((ranks, kind) for ranks in (2, 3, 4, 1) for kind in range(len(BY_ROWS))),
        ),
        (
            "Four cases: partial sums with C whole, partial sums with C by rows, B to be gathered, "
            "C to be gathered. In all others a @ b is the answer.",
            "all_gather and reduce_scatter of labkit.collectives.programs work in place: chunk "
            "number rank of np.split(whole, ranks) is this rank's.",
            "After reduce_scatter(comm, part), return np.split(part, ranks)[rank].",
        ),
        """
def my_matmul(comm, a, b, a_spec, b_spec, c_spec):
    rank, ranks = comm.Get_rank(), comm.Get_size()

    def gather(rows):
        whole = np.zeros((ranks * len(rows), rows.shape[1]))
        np.split(whole, ranks)[rank][:] = rows
        programs.all_gather(comm, whole)
        return whole

    if b_spec[0] and not a_spec[1]:
        b = gather(b)
    c = a @ b
    if a_spec[1] and b_spec[0] and c_spec[0]:
        programs.reduce_scatter(comm, c)
        c = np.split(c, ranks)[rank]
    elif a_spec[1] and b_spec[0]:
        programs.ring_all_reduce(comm, c)
    elif a_spec[0] and not c_spec[0]:
        c = gather(c)
    return c
""",
        "A partitioner does this for every operation of a program, and chooses the shardings "
        "that you did not write.",
        difficulty=3,
    ),
    "26.warm_up": Task(
        "Megatron-Core, 1F1B without interleaving, 8 stages, 16 micro-batches: how large is "
        "num_warmup_microbatches on stage 5, counted from 0?",
        number(2),
        ("total_stages - current_stage - 1, and at most the number of micro-batches.",),
        "answer = min(8 - 5 - 1, 16)",
        "Your 1F1B of lecture 18 calls it ahead. PyTorch's Schedule1F1B counts one more, "
        "warmup_chunks = 3, and takes that one out of its steady phase: the order is the same.",
        slips={3: "That is PyTorch's.", 7: "Stage 0's."},
    ),
    "26.nccl_sends": Task(
        "NCCL's ring all-reduce on 8 GPUs: how many chunks does a GPU send in one round of the "
        "loop in runRing?",
        number(14),
        ("The first part has k - 1 sends.", "The second part has as many."),
        "answer = 2 * (8 - 1)",
        "2 (k - 1), as in your ring of lecture 10.",
        slips={7: "That is its first part."},
    ),
    "26.groups": function_task(
        "Write my_groups(rank, tensor, data, pipeline): the ranks of this rank's tensor, data and "
        "pipeline group, as three sorted lists, in the order of Megatron-Core (tp-dp-pp).",
        [
            (rank, tensor, data, pipeline)
            for tensor, data, pipeline in ((2, 2, 4), (4, 2, 1), (1, 3, 2), (2, 3, 4))
            for rank in range(tensor * data * pipeline)
        ],
        (
            "rank = t + tensor * (d + data * p). Compute t, d and p from rank with % and //.",
            "Ranks of one tensor group differ in t only: they are neighbours.",
            "Ranks of one pipeline group are tensor * data apart.",
        ),
        """
def my_groups(rank, tensor, data, pipeline):
    t = rank % tensor
    d = rank // tensor % data
    p = rank // (tensor * data)

    def number(t, d, p):
        return t + tensor * (d + data * p)

    groups = (
        [number(i, d, p) for i in range(tensor)],
        [number(t, i, p) for i in range(data)],
        [number(t, d, i) for i in range(pipeline)],
    )
    return groups
""",
        "torchtitan and DeepSpeed number the ranks in the same order.",
        slips=[("        [number(t, i, p) for i in range(data)],\n", "", "Return three lists.")],
        difficulty=2,
    ),
    "26.accumulation": Task(
        "Which gradient_accumulation_steps makes the configuration fit?",
        number(16),
        (
            "64 GPUs are divided by 4 parts and 2 stages first. How many replicas are left?",
            "512 = 4 × accumulation × 8.",
        ),
        "answer = 512 / 4 / (64 / (4 * 2))",
        "The documentation multiplies with the number of GPUs; the program multiplies with the "
        "data-parallel size. Without model parallelism both are equal.",
        slips={2: "Not 64 GPUs: 8 replicas.", 128: "Divide by the 8 replicas, too."},
    ),
}
