"""The tasks of lecture 20: spatial and hybrid parallelism."""

from labkit.exercises.judges import model_parallel
from labkit.exercises.judges.answers import function, number, word
from labkit.exercises.judges.model_parallel import on_ranks
from labkit.exercises.task import Task

OWNER = "A row has one owner: its gradient is complete with the neighbours' part."
TASKS = {
    "20.what_is_summed": Task(
        "In the backward pass of spatial parallelism, which gradients need an all-reduce over all "
        'ranks: those of the "kernels", of the "rows", or "both"? One word.',
        word("kernels", "kernel"),
        ("Which array has every rank used as a whole, and of which has it only a part?",),
        'answer = "kernels"  # all ranks use the same kernels, each row has one owner',
        "The gradient of a row is finished after the neighbours' part is added. A kernel was used "
        "at all positions, so its gradient is a sum over all ranks.",
        slips={"both": OWNER, "rows": OWNER, "image": OWNER},
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
        slips={262.144: "It sends to each of two neighbours.", 512: "That is in KiB."},
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
        on_ranks(
            model_parallel.hybrid_step,
            *((1, 1, 2), (1, 2, 1), (2, 1, 1), (2, 2, 2), (1, 3, 2)),
        ),
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
    "20.on_which_link": Task(
        "Eight ranks train two replicas of a model; the tensor groups have four ranks. hosts[r] is "
        "the host of rank r: four ranks are on each of two hosts, in any order. Write "
        "my_groups(rank, hosts): the colors with which the rank calls comm.Split(color, key=rank) "
        "for its tensor group and for its data group. As few bytes as possible shall pass between "
        "the hosts: they are measured. A data group holds the same part of the weights twice.",
        function(model_parallel.on_which_link, seconds=120),
        (
            "Which of the two groups sends more in a step: the one that sums activations, or the "
            "one that sums gradients? That one stays inside a host.",
            "The ranks of a host are [r for r in range(len(hosts)) if hosts[r] == hosts[rank]].",
            "The part of a rank is its place in this list.",
        ),
        """
def my_groups(rank, hosts):
    neighbours = [r for r in range(len(hosts)) if hosts[r] == hosts[rank]]
    return hosts[rank], neighbours.index(rank)
""",
        "The color of a tensor group is its host, whatever numbers the ranks have. Launchers give "
        "the rank within a host as LOCAL_RANK.",
        difficulty=2,
    ),
}
