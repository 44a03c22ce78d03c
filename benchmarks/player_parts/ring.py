"""The animation of a ring all-reduce on 8 ranks, made by labkit or by matplotlib, as one page.

`python ring.py labkit FILE` prints the seconds from the finished run to the written page, imports
of what draws included: a notebook that has run a program waits so long for its picture.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from labkit import collectives
from labkit.collectives.contributions import contributions

RANKS = 8
FRAMES_A_STEP = 8  # so that a message is seen moving: 113 pictures in all


def by_labkit(trace: collectives.Trace) -> str:
    """What a notebook is sent."""
    from labkit.views.embed import document

    data, _ = trace.player()._repr_mimebundle_()
    return document(data["text/html"], "ring")


def by_matplotlib(trace: collectives.Trace) -> str:
    """The same grid and the same messages, in the way of matplotlib's own examples."""
    import matplotlib as mpl
    import numpy as np

    mpl.use("agg")
    import matplotlib.pyplot as plt
    from matplotlib.animation import FuncAnimation

    held = contributions(trace)
    cells, ranks = len(held.cells), trace.ranks
    palette = np.array([mpl.colors.to_rgb(f"C{rank}") for rank in range(ranks)])
    figure, axes = plt.subplots(figsize=(6.4, 4.8), dpi=72)
    axes.set(xlabel="piece", ylabel="rank")
    extent = (-0.5, cells - 0.5, ranks - 0.5, -0.5)
    image = axes.imshow(np.ones((ranks, cells * ranks, 3)), aspect="auto", extent=extent)
    flying = [axes.add_patch(plt.Rectangle((0, 0), 0.9, 0.5)) for _ in range(ranks)]
    title = axes.set_title("")
    # One picture of an image and few patches: the quick way. The values, which labkit shows, and
    # 512 bars, as in its cells, would take ten times as long and as much room.
    grids = []
    for step in range(trace.steps + 1):
        counts = np.array([[change.counts for change in row] for row in held.at(step)]) > 0
        grids.append(np.where(counts[..., None], palette, 0.93).reshape(ranks, -1, 3))

    def show(frame: int) -> None:
        step, part = divmod(frame, FRAMES_A_STEP)
        title.set_text(f"step {step} of {trace.steps}")
        image.set_data(grids[step])
        moving = [one for one in trace.messages if one.step == step + 1]
        for patch, message in zip(flying, moving, strict=False):
            share = part / FRAMES_A_STEP
            row = message.source + share * (message.dest - message.source)
            column = (message.sent_from or message.into or (0, 0))[0]
            patch.set_xy((column - 0.45, row - 0.25))
        for patch in flying:
            patch.set_visible(part > 0 and bool(moving))

    frames = trace.steps * FRAMES_A_STEP + 1
    made = FuncAnimation(figure, show, frames=frames, interval=1000 / FRAMES_A_STEP)
    return f"<!doctype html><meta charset='utf-8'>{made.to_jshtml()}"


MAKERS = {"labkit": by_labkit, "matplotlib": by_matplotlib}

if __name__ == "__main__":
    run = collectives.run(collectives.programs.ring_all_reduce, ranks=RANKS)
    began = time.perf_counter()
    page = MAKERS[sys.argv[1]](run)
    Path(sys.argv[2]).write_text(page, encoding="utf-8")
    print(time.perf_counter() - began)
