"""A transformer: embedding, layers of attention and MLP, output head."""

from __future__ import annotations

from labkit.views.sketch import Box, Sketch

ALT = (
    "A transformer. Three tokens, the, cat and sat, go through the embedding, which makes a row of "
    "h numbers of each. Then follow L equal layers. In a layer x goes through attention, in which "
    "each position also reads those before it, and the result is added to x; then it goes through "
    "an MLP, for each position alone, and the result is added again. The output head gives, at "
    "each position, a score for each token that may come next. The embedding has V times h "
    "parameters, attention 4 h squared and the MLP 8 h squared in each layer."
)

DATA, ATTENTION, MLP = 2, 0, 1


def draw() -> Sketch:
    board = Sketch(
        "A transformer",
        304,
        "Every position has a row of h numbers. Only attention lets positions read each other.",
    )
    for row, word in enumerate(("the", "cat", "sat")):
        board.box(24, 122 + 46 * row, 56, 34, word, series=DATA, size=9.5)
    board.text(52, 98, "tokens", size=9.5, bold=True, align="center")
    embedding = board.box(
        112, 116, 92, 138, "embedding\n\na row of h\nnumbers for\neach token", size=9
    )
    board.arrow((80, 185), embedding.left)
    board.frame(228, 84, 412, 170, "one of L layers")
    attention = board.box(
        270, 152, 122, 66, "attention\nreads earlier\npositions", series=ATTENTION, size=9
    )
    mlp = board.box(472, 152, 110, 66, "MLP\neach position\nalone", series=MLP, size=9)
    first, second = (board.box(x, 171, 28, 28, "+", series=DATA, size=11) for x in (410, 600))
    board.arrow(embedding.right, attention.left)
    board.arrow(attention.right, first.left)
    board.arrow(first.right, mlp.left)
    board.arrow(mlp.right, second.left)
    _around(board, 248, first, "x")
    _around(board, 455, second, "x")
    head = board.box(664, 140, 112, 90, "output head\n\na score for each\nnext token", size=9)
    board.arrow(second.right, head.left)
    for x, words in ((158, "V · h"), (331, "4 h²"), (527, "8 h²"), (720, "V · h, often shared")):
        board.text(x, 280, words, size=9, align="center", faint=True)
    board.text(24, 280, "parameters", size=9, bold=True, faint=True)
    return board


def _around(board: Sketch, x: float, plus: Box, word: str) -> None:
    """The residual connection: over the block to its sum."""
    board.arrow((x, 185), (x, 130), (plus.at(0.5, 0)[0], 130), plus.top)
    board.text(x + 8, 120, word, size=9, faint=True)
