"""The published formulas, and a second clock: the longest path through what needs what."""


def bubble(name, p, m, v, forward, backward, weight):
    """Huang 2019; Narayanan 2021, section 2.2; Qi 2023, table 2."""
    whole = forward + backward + weight
    return {
        "naive": m * (p - 1) * whole,
        "gpipe": (p - 1) * whole,
        "1f1b": (p - 1) * whole,
        "interleaved": (p - 1) * whole / v,
        "zb-h1": (p - 1) * (forward + backward - weight),
        "zb-h2": (p - 1) * (forward + backward - 2 * weight),
    }[name]


def peak(name, p, m, v, rank):
    """Micro-batches of a full stage; Narayanan 2021 and Qi 2023 for enough micro-batches."""
    return {
        "naive": 1,
        "gpipe": m,
        "1f1b": min(m, p - rank),
        "interleaved": min(m * v, 2 * (p - 1 - rank) + (v - 1) * p + 1) / v,
        "zb-h1": min(m, p),
        "zb-h2": min(m, 2 * p - 1),
    }[name]


def longest_path(rows, paths, seconds, hop):
    """Starts by (rank, place): raised until every piece is late enough for all that it needs."""
    places = {
        (kind, m, paths[m % len(paths)].index((rank, chunk[0] if chunk else 0))): (rank, place)
        for rank, row in enumerate(rows)
        for place, (kind, m, *chunk) in enumerate(row)
    }
    edges = []
    for (kind, m, stage), (rank, place) in places.items():
        edges += [((rank, place - 1), (rank, place))] * (place > 0)
        before = {"F": ("F", m, stage - 1), "B": ("B", m, stage + 1), "W": ("B", m, stage)}[kind]
        if kind == "B" and stage == len(paths[0]) - 1:
            before = ("F", m, stage)
        edges += [(places[before], (rank, place))] if before in places else []
    starts = dict.fromkeys(places.values(), 0.0)
    changed = True
    while changed:
        changed = False
        for (a, i), (b, j) in edges:
            after = starts[a, i] + seconds[rows[a][i][0]][a] + hop * (a != b)
            if after > starts[b, j] + 1e-12:
                starts[b, j], changed = after, True
    return starts


# Recorded from PyTorch 2.13's ScheduleZBVZeroBubble with F = B = W = 1 a chunk and free messages:
# what its longest rank's end exceeds 6 m by, for m = 2, 3, …. From m = 2p - 1 on it is p - 1.
# ScheduleDualPipeV, which takes m >= 2p, has p - 1 everywhere.
TORCH_ZBV = {
    2: [2],
    3: [6, 4, 2],
    4: [10, 8, 6, 4, 3],
    5: [14, 12, 10, 8, 6, 4, 4],
    6: [18, 16, 14, 12, 10, 8, 6, 5, 5],
    7: [22, 20, 18, 16, 14, 12, 10, 8, 6, 6, 6],
    8: [26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 7, 7, 7],
}


def torch_on_a_v(name, p, m):
    """Its ticks beyond 6 m, and the chunks that its fullest rank holds; None where it refuses m."""
    if name == "dualpipe-v":
        return (p - 1, 2 * p + 1) if m >= 2 * p else None
    return TORCH_ZBV[p][m - 2] if m < 2 * p - 1 else p - 1, 2 * min(m, p)


# By (p, m): ticks beyond 6 m and chunks held at most, of the authors' own program (Qi et al. 2024).
V_HALF = {
    (2, 8): (1, 4), (3, 8): (5, 4), (4, 8): (5, 6), (5, 10): (11, 6), (6, 16): (11, 8),
    (7, 16): (17, 8), (8, 16): (17, 10), (4, 16): (5, 6), (8, 32): (17, 10),
}  # fmt: skip
V_MIN = {
    (2, 8): (3, 4), (3, 8): (5, 4), (4, 8): (11, 4), (5, 10): (15, 6), (6, 16): (17, 6),
    (7, 16): (23, 6), (8, 16): (27, 8), (4, 16): (11, 4), (8, 32): (27, 8),
}  # fmt: skip
