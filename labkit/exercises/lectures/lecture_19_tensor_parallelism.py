"""The tasks of lecture 19: tensor parallelism."""

from labkit.exercises.judges import model_parallel
from labkit.exercises.judges.answers import number
from labkit.exercises.judges.model_parallel import on_ranks
from labkit.exercises.task import Task

TASKS = {
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
    "19.gated_mlp": Task(
        "The MLP of many language models has a gate: y = (relu(x @ gate) * (x @ up)) @ down. Write "
        "my_gated(comm, x, gate, up, down, dy). gate and up are this rank's columns, down its "
        "rows; x and dy are the same on all ranks. Return y and dx, with two all-reduces.",
        on_ranks(model_parallel.gated_mlp),
        (
            "Forward: the product with the gate is computed element by element, so each rank "
            "needs only its own columns.",
            "Serial backward: d_active = dy @ down.T. With a = x @ gate and b = x @ up, the "
            "gradient of a is d_active * b * (a > 0), and that of b is d_active * relu(a).",
            "x is used twice, so dx is the sum of two products. Add them, then all-reduce.",
        ),
        """
def my_gated(comm, x, gate, up, down, dy):
    a, b = x @ gate, x @ up
    active = np.maximum(a, 0)
    y = (active * b) @ down
    programs.ring_all_reduce(comm, y)
    d_active = dy @ down.T
    dx = (d_active * b * (a > 0)) @ gate.T + (d_active * active) @ up.T
    programs.ring_all_reduce(comm, dx)
    return y, dx
""",
        "Any number of matrices by columns needs one all-reduce backward: sum on the rank first. "
        "The MLP of Llama has this form, with another activation.",
        difficulty=2,
    ),
    "19.attention_heads": Task(
        "Many programs keep the weights of all queries, keys and values in one matrix qkv with a "
        "row for each output: first all rows of q, then of k, then of v, and in each of the three "
        "head after head. Write my_shard(comm, qkv, heads): the rows of this rank's heads, in the "
        "same order.",
        on_ranks(model_parallel.attention_heads, (2, 4), (3, 6), (4, 4), (1, 2)),
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
        slips={176.16: "That is two all-reduces.", 201.33: "A ring sends 2 (t - 1) / t arrays."},
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
