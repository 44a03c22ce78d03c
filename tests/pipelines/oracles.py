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
