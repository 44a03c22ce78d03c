"""A classic benchmark, and what it printed: the lecture asks what is wrong with it."""

from __future__ import annotations

from labkit.kinds import recorded
from labkit.views.sketch import Sketch

ALT = (
    "An outline of a benchmark: it trains a model on one device, then builds the model in the "
    "scope of a strategy and trains it on two, each between two readings of a clock. Beside it "
    "what it printed: one GPU 15.4 s, accuracy 97.8 %; two GPUs 43.7 s, accuracy 22.0 %. Why?"
)
LINES = """\
one = build(loss=from_logits)
start = process_time()
one.fit(arrays, batch=32, epochs=5)
print(process_time() - start)

global_batch = 32 * replicas
data = inputs(arrays, batch=64)
with strategy.scope():
    two = build(loss='crossentropy')
start = process_time()
two.fit(data, epochs=5)
print(process_time() - start)"""


def draw() -> Sketch:
    board = Sketch(
        "A classic benchmark",
        448,
        "For two devices it prints almost three times as many seconds, and an accuracy "
        "close to guessing.",
        kind=recorded("2 GPUs", "TensorFlow 2.8"),
    )
    board.frame(24, 80, 448, 340, "the program, in outline")
    for index, line in enumerate(LINES.split("\n")):
        board.text(44, 124 + 25 * index, line, size=9, mono=True)
    board.frame(524, 80, 252, 200, "what it printed")
    for column, x in (("seconds", 676), ("accuracy", 760)):
        board.text(x, 130, column, size=9, faint=True, align="right")
    results = (("one GPU", "15.4", "97.8 %"), ("two GPUs", "43.7", "22.0 %"))
    for row, (name, seconds, accuracy) in enumerate(results):
        y = 164 + 38 * row
        board.text(540, y, name)
        board.text(676, y, seconds, bold=True, align="right")
        board.text(760, y, accuracy, bold=True, align="right")
    board.text(540, 248, "Guessing gives 10 %.", size=9, faint=True)
    board.arrow((472, 180), (524, 180))
    board.text(524, 330, "Does MirroredStrategy not work?", bold=True, size=9.5)
    board.text(524, 362, "Which lines would you\nwrite differently?")
    return board
