"""Which frameworks came from which, and which of them still get releases."""

from __future__ import annotations

from labkit.views.sketch import Box, Sketch

# First year, last year (None: it goes on), and the lane that took the idea over. Sources and exact
# dates are in docs/frameworks.md.
LANES = {
    "Parameter\nservers": {
        "DistBelief": (2012.9, 2015, "TensorFlow"),
        "TensorFlow": (2015.9, None, None),
        "MXNet": (2015.3, 2022, None),
        "BytePS": (2019.2, 2022, None),
    },
    "All-reduce": {
        "NCCL": (2015.9, None, "Horovod"),
        "Horovod": (2017.6, 2023, None),
    },
    "Libraries for\nlarge models\nin PyTorch": {
        "Megatron-LM": (2019.2, None, None),
        "DeepSpeed": (2020.1, None, None),
        "FairScale": (2020.5, 2022, "PyTorch FSDP"),
        "PyTorch FSDP": (2021.7, None, "torchtitan"),
        "torchtitan": (2024.0, None, None),
        "Accelerate": (2020.8, None, None),
        "Colossal-AI": (2021.8, None, None),
    },
    "A compiler\ninserts the\ncollectives": {
        "Mesh-TensorFlow": (2018.8, 2022, None),
        "JAX": (2018.9, None, None),
        "Alpa": (2021.1, 2023, "XLA: GSPMD"),
        "XLA: GSPMD": (2021.4, None, "Shardy"),
        "Shardy": (2024.5, None, None),
    },
    "Federated\nlearning": {
        "TF Federated": (2018.7, None, None),
        "Flower": (2020.1, None, None),
        "NVIDIA FLARE": (2021.6, None, None),
    },
}
TODAY = 2026.9
LEFT, YEAR, TOP, LANE, TALL = 122.0, 43.0, 104.0, 28.0, 18.0

ALT = (
    "Timeline of 2012 to November 2026. It goes on, with a release after 2023: TensorFlow, NCCL, "
    "Megatron-LM, DeepSpeed, PyTorch FSDP, torchtitan, Accelerate, Colossal-AI, JAX, XLA with "
    "GSPMD, Shardy, TensorFlow Federated, Flower, NVIDIA FLARE. Ended, with the year of the last "
    "release or of the successor: DistBelief 2015, MXNet 2022, BytePS 2022, Horovod 2023, "
    "FairScale 2022, Mesh-TensorFlow 2022, Alpa 2023. Arrows show what was taken over or used: "
    "DistBelief by TensorFlow, NCCL by Horovod, FairScale by PyTorch FSDP and that by torchtitan, "
    "Alpa by XLA, GSPMD by Shardy."
)


def draw() -> Sketch:
    lanes = sum(map(len, LANES.values()))
    bottom = TOP + LANE * lanes + 10 * len(LANES)
    board = Sketch(
        "Frameworks of distributed training, 2012 to November 2026",
        bottom + 46,
        "Solid, ▶: a release after 2023. Dashed, ×: year of the last release, or of the successor.",
    )
    for year in range(2012, 2028, 2):
        x = _x(year)
        board.line((x, TOP - 14), (x, bottom), dashed=True, color="#D5D9DD")
        board.text(x, TOP - 22, str(year), size=9, align="center", faint=True)
    bars: dict[str, Box] = {}
    y = TOP
    for group, members in LANES.items():
        lines = 1 + group.count("\n")
        board.text(24, y + TALL / 2 + 8.6 * (lines - 1), group, size=9, bold=True)
        for name, (first, last, _) in members.items():
            bars[name] = _bar(board, name, first, last, y)
            y += LANE
        y += 10
    for members in LANES.values():
        for name, (_, last, heir) in members.items():
            if heir:
                _inherit(board, bars[name], bars[heir], last)
    words = "An arrow: the next one took the idea or the program over, or is built on it."
    board.text(24, bottom + 14, words, size=9, faint=True)
    words = "A bar begins with the first commit or paper. Sources and dates: docs/frameworks.md."
    board.text(24, bottom + 31, words, size=9, faint=True)
    return board


def _x(year: float) -> float:
    return LEFT + YEAR * (year - 2012)


def _bar(board: Sketch, name: str, first: float, last: int | None, y: float) -> Box:
    start, end = _x(first), _x(TODAY if last is None else last + 1)
    ended = last is not None
    box = board.box(start, y, end - start, TALL, name, dashed=ended, size=9, corner=2,
                    series=None if ended else 0, bold=not ended)  # fmt: skip
    if ended:
        board.text(end + 6, y + TALL / 2, f"× {last}", size=9, faint=True)
    else:
        tip, middle = end + 11, y + TALL / 2
        board.shape(((end + 3, middle - 6), (tip, middle), (end + 3, middle + 6)), "#0072B2", 3)
    return box


def _inherit(board: Sketch, old: Box, new: Box, last: int | None) -> None:
    """Down from the end of the old bar, or to the start of the new one."""
    x = max(_x(last + 1) - 9, new.x + 3) if last else new.x + 12
    board.arrow((x, old.y + TALL), (x, new.y))
