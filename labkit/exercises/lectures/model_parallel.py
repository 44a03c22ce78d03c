"""The tasks of tensor, sequence, spatial and hybrid parallelism: lectures 19 and 20."""

from __future__ import annotations

from labkit.exercises import model_parallel
from labkit.exercises.judges import number
from labkit.exercises.model_parallel import on_ranks
from labkit.exercises.task import Task

MISSING = """
def my_backward(comm, dy, blocks):
    gradients = []
    for block in reversed(blocks):
        part, of_weights = block(dy)
        gradients.insert(0, of_weights)
        dy = dy + part
    return dy, gradients
"""

LECTURE_19 = {
    "19.column_parallel": Task(
        "Write my_column(comm, x, w, dy) for a linear layer whose matrix is cut into blocks of "
        "columns. w and dy are this rank's columns; x is the same on all ranks. Return y (this "
        "rank's columns), dx (the same on all ranks) and dw (of this rank's columns).",
        on_ranks(model_parallel.column_parallel),
        (
            "Write the serial layer first: y = x @ w, dx = dy @ w.T, dw = x.T @ dy. Which of the "
            "three products runs over columns that other ranks hold?",
            "dy @ w.T is a sum over all columns. Each rank computes the part of its own columns.",
            "total = np.array(part); programs.ring_all_reduce(comm, total) sums in place.",
        ),
        """
def my_column(comm, x, w, dy):
    dx = dy @ w.T  # the part of this rank's columns
    programs.ring_all_reduce(comm, dx)
    return x @ w, dx, x.T @ dy
""",
        "Forward needs no communication, backward one all-reduce: every rank used the same x.",
    ),
    "19.row_parallel": Task(
        "Write my_row(comm, x, w, dy) for a linear layer whose matrix is cut into blocks of rows. "
        "x holds this rank's columns and w the rows that belong to them; dy is the same on all "
        "ranks. Return y (the same on all ranks), and this rank's dx and dw.",
        on_ranks(model_parallel.row_parallel),
        (
            "Which of the products x @ w, dy @ w.T and x.T @ dy is a sum over all ranks now?",
            "y is. The columns of dx and the rows of dw belong to one rank each.",
        ),
        """
def my_row(comm, x, w, dy):
    y = x @ w  # the part of this rank's rows
    programs.ring_all_reduce(comm, y)
    return y, dy @ w.T, x.T @ dy
""",
        "The mirror image of the columns: one all-reduce forward, none backward.",
    ),
    "19.attention_heads": Task(
        "Many programs keep the weights of all queries, keys and values in one matrix qkv with a "
        "row for each output: first all rows of q, then of k, then of v, and in each of the three "
        "head after head. Write my_shard(comm, qkv, heads): the rows of this rank's heads, in the "
        "same order.",
        on_ranks(model_parallel.attention_heads, ((2, 4), (3, 6), (4, 4), (1, 2))),
        (
            "A block of neighbouring rows of qkv would give rank 0 queries and no values.",
            "q, k, v = np.split(qkv, 3). Cut each of them into one block for each rank.",
        ),
        """
def my_shard(comm, qkv, heads):
    rank, ranks = comm.Get_rank(), comm.Get_size()
    return np.concatenate([np.split(one, ranks)[rank] for one in np.split(qkv, 3)])
""",
        "A head needs its own q, k and v. A checkpoint that is loaded on another number of ranks "
        "is cut again in this way.",
        difficulty=2,
    ),
    "19.backward": Task(
        "Fix my_backward(comm, dy, blocks), the backward pass of layers x = x + all_reduce("
        "block(x)). Each of blocks is a function: dy → this rank's part of dx, and the gradient of "
        "its own weights. Return dx and the list of gradients.",
        on_ranks(model_parallel.backward),
        (
            "Which ranks hold a part of the gradient of the block's input?",
            "all_reduce(part) belongs to dy. If dy is inside the all-reduce, it counts once for "
            "each rank.",
        ),
        """
def my_backward(comm, dy, blocks):
    gradients = []
    for block in reversed(blocks):
        part, of_weights = block(dy)
        gradients.insert(0, of_weights)
        programs.ring_all_reduce(comm, part)
        dy = dy + part
    return dy, gradients
""",
        "The forward pass was right without it, and the shapes are, too: only the numbers differ. "
        "Compare the gradients with those of a serial program.",
        difficulty=2,
        given=MISSING,
    ),
    "19.layer_bytes": Task(
        "A transformer layer of GPT-3: hidden size 12,288, sequence 2,048, micro-batch 1, 2 bytes "
        "per element, on 8 ranks with ring all-reduces. How many MB does each rank send for this "
        "layer in one step?",
        number(352.32, "MB", within=0.01),
        (
            "An all-reduce sums b · s · h elements, and the layer has four of them.",
            "In a ring all-reduce each rank sends 2 (t - 1) / t times the array.",
        ),
        """
b, s, h, t = 1, 2048, 12288, 8
elements = 4 * 2 * (t - 1) / t * b * s * h
answer = 2 * elements / 1e6  # 2 bytes each
""",
        "352 MB, and GPT-3 has 96 such layers: 34 GB in each step, which no link between machines "
        "carries in time.",
    ),
    "19.sequence_parallel": Task(
        "Write my_layer(comm, x, block) with sequence parallelism. x holds this rank's positions, "
        "in the order of the ranks. block(whole) takes all positions and gives this rank's part "
        "of a sum. Return this rank's positions of x + sum, with no more bytes than one "
        "all-reduce.",
        on_ranks(model_parallel.sequence_parallel),
        (
            "Before the block: an all-gather of the positions. After it: each rank needs only its "
            "own positions of the sum.",
            "programs.all_gather(comm, whole): put x into its place in an array of all positions "
            "first.",
            "programs.reduce_scatter(comm, part) leaves the sum of chunk r on rank r; the other "
            "chunks are not finished.",
        ),
        """
def my_layer(comm, x, block):
    rank, ranks = comm.Get_rank(), comm.Get_size()
    whole = np.empty((ranks * len(x), x.shape[1]))
    np.split(whole, ranks)[rank][:] = x
    programs.all_gather(comm, whole)
    part = block(whole)
    programs.reduce_scatter(comm, part)
    return x + np.split(part, ranks)[rank]
""",
        "An all-gather and a reduce-scatter are the two halves of an all-reduce: equal bytes, and "
        "between the blocks each rank keeps 1/t of the positions.",
        difficulty=3,
    ),
}

TASKS = LECTURE_19
