"""The tasks of tensor, sequence, spatial and hybrid parallelism: lectures 19 and 20."""

from __future__ import annotations

from labkit.exercises.judges import model_parallel
from labkit.exercises.judges.answers import function, number, word
from labkit.exercises.judges.model_parallel import on_ranks
from labkit.exercises.task import Task

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

LECTURE_20 = {
    "20.what_is_summed": Task(
        "In the backward pass of spatial parallelism, which gradients need an all-reduce over all "
        'ranks: those of the "kernels", of the "rows", or "both"? One word.',
        word("kernels"),
        ("Which array has every rank used as a whole, and of which has it only a part?",),
        'answer = "kernels"  # all ranks use the same kernels, each row has one owner',
        "The gradient of a row is finished after the neighbours' part is added. A kernel was used "
        "at all positions, so its gradient is a sum over all ranks.",
    ),
    "20.halo": Task(
        "Write my_halo(comm, rows, width). rows, of shape (n, w, c), are this rank's rows of an "
        "image that is divided from top to bottom. Return an array of n + 2 * width rows: width "
        "rows of the rank above, its own, width rows of the rank below; zeros outside the image.",
        on_ranks(model_parallel.halo, (2, 1), (3, 1), (4, 2), (1, 1)),
        (
            "Begin with zeros of n + 2 * width rows, and copy rows into the middle.",
            "The last rows go to the rank below, which receives them above its own; the first "
            "rows go to the rank above.",
            "Without a rank above or below leave out the messages, or name MPI.PROC_NULL.",
        ),
        """
def my_halo(comm, rows, width):
    rank, last = comm.Get_rank(), comm.Get_size() - 1
    padded = np.zeros((len(rows) + 2 * width, *rows.shape[1:]))
    padded[width:-width] = rows
    requests = []
    if rank > 0:
        requests.append(comm.Isend(rows[:width], dest=rank - 1))
        requests.append(comm.Irecv(padded[:width], source=rank - 1))
    if rank < last:
        requests.append(comm.Isend(rows[-width:], dest=rank + 1))
        requests.append(comm.Irecv(padded[-width:], source=rank + 1))
    for request in requests:
        request.Wait()
    return padded
""",
        "A kernel of 2 · width + 1 rows needs no more than that of the neighbours.",
        difficulty=2,
    ),
    "20.halo_backward": Task(
        "Write my_halo_backward(comm, d_padded, width), the backward pass of the exchange: "
        "d_padded is the gradient of the padded rows of this rank. Return the gradient of its own "
        "rows.",
        on_ranks(model_parallel.halo_backward, (2, 1), (3, 1), (4, 2), (1, 1)),
        (
            "Forward a row was copied to a neighbour. What does backward do with the gradients of "
            "two copies?",
            "Send the gradient of the halo above to the rank above. It adds it to its last rows.",
        ),
        """
def my_halo_backward(comm, d_padded, width):
    rank, last = comm.Get_rank(), comm.Get_size() - 1
    d_rows = d_padded[width:-width].copy()
    above, below = np.zeros_like(d_rows[:width]), np.zeros_like(d_rows[:width])
    requests = []
    if rank > 0:
        requests.append(comm.Isend(d_padded[:width], dest=rank - 1))
        requests.append(comm.Irecv(above, source=rank - 1))
    if rank < last:
        requests.append(comm.Isend(d_padded[-width:], dest=rank + 1))
        requests.append(comm.Irecv(below, source=rank + 1))
    for request in requests:
        request.Wait()
    d_rows[:width] += above
    d_rows[-width:] += below
    return d_rows
""",
        "The same messages in the other direction, and an addition where forward was a copy.",
        difficulty=3,
    ),
    "20.halo_bytes": Task(
        "An image of 8,192 × 8,192 positions with 16 channels of 2 bytes is divided by rows on 8 "
        "ranks. How many kB does rank 3 send before a convolution with a 3 × 3 kernel?",
        number(524.288, "kB", within=0.01),
        ("How many rows does a rank in the middle send?", "A row has 8,192 · 16 numbers."),
        """
rows = 2  # one to the rank above, one to the rank below
answer = rows * 8192 * 16 * 2 / 1000
""",
        "The rank holds 268 MB of this image and sends 0.2 % of it. On 64 ranks each holds an "
        "eighth of that, and sends the same.",
    ),
    "20.groups": Task(
        "Write my_colors(rank, tensor, stages): the colors with which a rank calls comm.Split for "
        "its tensor, its pipeline and its data group. Ranks with the same replica and stage are "
        "neighbours: rank = (replica * stages + stage) * tensor + part.",
        function(model_parallel.check_colors),
        (
            "Compute part, stage and replica from the rank with % and //.",
            "Two ranks of one tensor group differ in their part only: the color is made of replica "
            "and stage.",
            "replica * stages + stage is another number for each pair.",
        ),
        """
def my_colors(rank, tensor, stages):
    part = rank % tensor
    stage = rank // tensor % stages
    replica = rank // (tensor * stages)
    return replica * stages + stage, replica * tensor + part, stage * tensor + part
""",
        "The color of a group is made of the two numbers that all its ranks have in common.",
        difficulty=2,
    ),
    "20.hybrid_step": Task(
        "Write my_step(tensor, pipeline, data, micro_batches, targets, w1, w2), the step of this "
        "lecture with several micro-batches: all forward, then all backward. The first stage "
        "takes the micro-batches, the last one the targets. Return the gradients of this rank's w1 "
        "and w2: of half the squared error, the mean over all examples of the global batch.",
        on_ranks(model_parallel.hybrid_step, (1, 1, 2), (1, 2, 1), (2, 1, 1), (2, 2, 2), (1, 3, 2)),
        (
            "One loop for the forward passes, which keeps x and hidden of each micro-batch; "
            "another one for the backward passes, which adds up the gradients.",
            "The number of examples is targets.shape[0] * targets.shape[1] * data.Get_size().",
            "The weights are updated once: all-reduce their gradients over the data group after "
            "both loops.",
        ),
        """
def my_step(tensor, pipeline, data, micro_batches, targets, w1, w2):
    stage, last = pipeline.Get_rank(), pipeline.Get_size() - 1
    examples = targets.shape[0] * targets.shape[1] * data.Get_size()
    dw1, dw2, kept = np.zeros_like(w1), np.zeros_like(w2), []
    for x in micro_batches:
        if stage > 0:
            x = np.empty_like(x)
            pipeline.Recv(x, source=stage - 1)
        hidden = np.maximum(x @ w1, 0)
        part = hidden @ w2
        programs.ring_all_reduce(tensor, part)
        kept.append((x, hidden, x + part))
        if stage < last:
            pipeline.Send(x + part, dest=stage + 1)
    for (x, hidden, y), target in zip(kept, targets):
        dy = (y - target) / examples
        if stage < last:
            pipeline.Recv(dy, source=stage + 1)
        d_hidden = (dy @ w2.T) * (hidden > 0)
        dw1 += x.T @ d_hidden
        dw2 += hidden.T @ dy
        part = d_hidden @ w1.T
        programs.ring_all_reduce(tensor, part)
        if stage > 0:
            pipeline.Send(dy + part, dest=stage - 1)
    programs.ring_all_reduce(data, dw1)
    programs.ring_all_reduce(data, dw2)
    return dw1, dw2
""",
        "Three kinds of communication in one step, each in its own group: sums of activations, "
        "activations between stages, sums of gradients.",
        difficulty=3,
    ),
}

TASKS = LECTURE_19 | LECTURE_20
