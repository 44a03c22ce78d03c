"""Expert parallelism."""

from __future__ import annotations

from labkit.views.sketch import Sketch

ALT = (
    "Expert parallelism on two ranks. Rank 0 has the tokens a, b, c and expert 0, rank 1 has the "
    "tokens d, e and expert 1. A first all-to-all takes each token to its expert: a, c and d to "
    "expert 0, b and e to expert 1. The results travel back by a second all-to-all, each to the "
    "place of its token, where it is multiplied with its gate."
)

CHOICES = {"a": 0, "b": 1, "c": 0, "d": 0, "e": 1}  # the expert of each token
HOMES = {0: "abc", 1: "de"}


def draw() -> Sketch:
    board = Sketch(
        "Expert parallelism",
        420,
        "Tokens travel to the rank of their expert, and results travel back to their tokens.",
    )
    experts, places = {}, {}
    for rank, tokens in HOMES.items():
        y = 106 + 156 * rank
        board.frame(24, y, 752, 136, f"rank {rank}")
        place = (320, y + 42, 150, 64)
        experts[rank] = board.box(*place, f"expert {rank}", series=rank, hatch=rank == 1)
        for n, token in enumerate(tokens):
            level = y + 24 + 35 * n + 16 * (len(tokens) == 2)
            kind = {"series": CHOICES[token], "hatch": CHOICES[token] == 1}
            start = board.box(110, level, 80, 28, f"token {token}", size=9, **kind)
            end = board.box(604, level, 80, 28, f"gate · {token}", size=9, **kind)
            places[token] = start, end
    for number, expert in experts.items():
        mine = [token for token, one in CHOICES.items() if one == number]
        for n, token in enumerate(mine):
            share = (n + 1) / (len(mine) + 1)
            start, end = places[token]
            board.arrow(start.right, expert.at(0, share))
            board.arrow(expert.at(1, share), end.left)
    board.text(255, 90, "first all-to-all", size=9.5, align="center", bold=True)
    board.text(537, 90, "second all-to-all", size=9.5, align="center", bold=True)
    return board
