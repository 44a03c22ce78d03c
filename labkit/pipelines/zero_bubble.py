"""Schedules on a V, and the place of each W: where a rank would wait, or where memory ends.

On a V of p ranks the model has 2p stages: rank r holds stage r as its chunk 0 on the way down and
stage 2p - 1 - r as its chunk 1 on the way up, so the first and the last stage share rank 0.

>>> v_path(3)
((0, 0), (1, 0), (2, 0), (2, 1), (1, 1), (0, 1))
"""

from collections import deque
from typing import TypeAlias

from labkit.pipelines.rows import KINDS, Piece, Rows, StagePath

PERIOD = 6  # ticks of F, B and W of two chunks
Windows: TypeAlias = list[tuple[int, int]] | None


def v_path(ranks: int) -> StagePath:
    """The stages of a V, from the first rank to the last one and back."""
    return (*((r, 0) for r in range(ranks)), *((r, 1) for r in reversed(range(ranks))))


def zb_v(p: int, micro_batches: int) -> Rows:
    """ZB-V (Qi et al. 2023, section 6): 1F1B on each chunk, in the memory of 1F1B."""
    rows: Rows = []
    for rank in range(p):
        up = p - rank  # stages from here to the last rank
        steady = max(micro_batches, 2 * p - 1) - 2 * p + 1 + rank
        rows.append(_row(
            ["F0"] * (2 * up - 1) + ["F1", "F0"] * rank + ["F1", "B1"] * up
            + ["F0", "B0", "F1", "B1"] * steady
            + ["B0", "F1", "B1"] * (up - 1) + ["B0", "B1"] * rank + ["B0"] * up, micro_batches
        ))  # fmt: skip
    return with_weights(rows, v_path(p), 2 * p)


def dualpipe_v(p: int, micro_batches: int) -> Rows:
    """DualPipe-V (DeepSeek 2025): F of one chunk beside the whole backward pass of the other.

    In the steady state a rank alternates between the two pairs, whose communication a real program
    hides behind the other's computation. W leaves its B only once no F is left.
    """
    rows: Rows = []
    for rank in range(p):
        up = p - 1 - rank
        steady = max(micro_batches, 2 * p) - 2 * p + 1 + rank
        rows.append(_row(
            ["F0"] * 2 * up + ["F0", "F1"] * (rank + 1) + ["B1", "F1"] * up
            + ["F0", "B1", "F1", "B0"] * steady
            + ["B1", "F1", "B0"] * up + ["B1", "B0"] * (rank + 1) + ["B0"] * up, micro_batches
        ))  # fmt: skip
    return with_weights(rows, v_path(p), 2 * p + 1, whole=True)


def _row(turns: list[str], micro_batches: int) -> list[Piece]:
    """The turns with the next micro-batch each, without those that are too many."""
    count = dict.fromkeys(turns, 0)
    row: list[Piece] = []
    for turn in turns:
        if count[turn] < micro_batches:
            row.append((turn[0], count[turn], int(turn[1])))
        count[turn] += 1
    return row


def v_half(p: int, micro_batches: int) -> Rows:
    """V-half (Qi et al. 2024): about half the memory of ZB-V, for a part of the bubble."""
    even = p % 2 == 0
    block = v_block(p, down=2, up=1, late=3 * even, gap=2)
    most = p + 1 + even
    upper = [min(rank + 1, most // 2) for rank in range(p)]
    return _repeated(block, micro_batches, most, [(most - one, one) for one in upper])


def v_min(p: int, micro_batches: int) -> Rows:
    """V-min (Qi et al. 2024): about a third of the memory of ZB-V, for a larger bubble."""
    late = 2 * (p % 3 == 0)
    block = v_block(p, down=1, up=1, late=late, gap=1)
    windows = [((b0 - f0 + 1) // PERIOD + 1, (b1 - f1 + 1) // PERIOD + 1)
               for f0, f1, b1, b0 in block]  # fmt: skip
    return _repeated(block, micro_batches, 2 * ((p + 1) // 3 + 1), windows if late else None)


def v_block(p: int, down: int, up: int, late: int, gap: int) -> list[list[int]]:
    """A building block: when each rank begins F and F of chunk 1, B of chunk 1 and B of chunk 0.

    It is repeated every 6 ticks, one block a micro-batch. `down` and `up` are the ticks from one
    rank to the next: they set how long activations live, and so how many are held (Qi et al. 2024,
    "Pipeline parallelism with controllable memory"). `late` keeps pieces of a rank apart.
    """
    first = down * (p - 1) + 1  # F of chunk 1 on the last rank
    loss = first + up * (p - 1) + 1 + late  # B of chunk 1 on rank 0
    turn = loss + down * (p - 1) + gap  # B of chunk 0 on the last rank
    return [[down * r, first + up * (p - 1 - r), loss + down * r, turn + up * (p - 1 - r)]
            for r in range(p)]  # fmt: skip


def _repeated(
    block: list[list[int]], micro_batches: int, most: int, windows: Windows = None
) -> Rows:
    kinds = (("F", 0), ("F", 1), ("B", 1), ("B", 0))
    rows: Rows = []
    for times in block:
        pieces = [(time + PERIOD * m, kind, m, chunk)
                  for m in range(micro_batches)
                  for time, (kind, chunk) in zip(times, kinds, strict=True)]  # fmt: skip
        rows.append([piece[1:] for piece in sorted(pieces)])
    return with_weights(rows, v_path(len(block)), most, windows)


def with_weights(
    rows: Rows, path: StagePath, most: int, windows: Windows = None, whole: bool = False
) -> Rows:
    """Returns rows of F and B with each W where its rank would wait, or holds `most` chunks.

    Found on a clock on which F, B and W take one tick each. With `windows`, which limit what a rank
    holds of each chunk, pieces that are ready may overtake until a rank's first B of chunk 0, and
    after its last F of chunk 0. `whole` keeps each W behind its B while the rank has an F left.
    """
    stage = {at: number for number, at in enumerate(path)}
    ended: dict[tuple[str, int, int], int] = {}
    ranks = [_Rank(row, stage, rank, windows[rank] if windows else None, most, whole)
             for rank, row in enumerate(rows)]  # fmt: skip
    tick = 0
    while any(one.rest or one.due for one in ranks):
        for one in ranks:
            one.advance(tick, ended)
        tick += 1
    return [one.row for one in ranks]


class _Rank:
    """One rank on the clock: its row so far, what is left, and the Bs whose W is due."""

    def __init__(
        self, pieces: list[Piece], stage: dict[tuple[int, int], int], rank: int,
        window: tuple[int, int] | None, most: int, whole: bool,
    ) -> None:  # fmt: skip
        self.rest = [(str(kind), int(m), int(chunk)) for kind, m, chunk in pieces]
        self.row: list[Piece] = []
        self.due: deque[tuple[int, int]] = deque()
        self.held = [0, 0]
        self.stage = [stage.get((rank, chunk), 0) for chunk in (0, 1)]
        self.last = max(stage.values())
        self.window, self.most, self.whole = window, most, whole
        self.left = {kind: sum(one[0] == kind for one in self.rest) for kind in KINDS}
        self.first = {kind: sum(one[::2] == (kind, 0) for one in self.rest) for kind in KINDS}
        self.turned = False  # whether it has run a B of chunk 0

    def advance(self, tick: int, ended: dict[tuple[str, int, int], int]) -> None:
        """Runs the next piece that is ready, or a W that is due."""
        place = self._next(tick, ended)
        if place is not None:
            kind, m, chunk = piece = self.rest.pop(place)
            ended[kind, m, self.stage[chunk]] = tick + 1
            self.left[kind] -= 1
            self.first[kind] -= chunk == 0
            if kind == "F":
                self.held[chunk] += 1
            else:
                self.due.append((m, chunk))
                self.turned |= chunk == 0
            self.row.append(piece)
        elif self.due:
            m, chunk = self.due.popleft()
            self.held[chunk] -= 1
            self.row.append(("W", m, chunk))

    def _next(self, tick: int, ended: dict[tuple[str, int, int], int]) -> int | None:
        if self.whole and self.due and self.left["F"]:
            return None
        overtakes = self.window is not None and (not self.turned or not self.first["F"])
        seen = set()
        for place, (kind, m, chunk) in enumerate(self.rest):
            if (kind, chunk) in seen:
                continue
            seen.add((kind, chunk))
            if self._fits(kind, chunk, place) and self._ready(kind, m, chunk, tick, ended):
                return place
            if not overtakes or len(seen) == 4:
                return None
        return None

    def _fits(self, kind: str, chunk: int, place: int) -> bool:
        if kind == "B" or (place == 0 and not self.due):
            return True
        window = self.window[chunk] if self.window else self.most
        return self.held[chunk] < window and sum(self.held) < self.most

    def _ready(
        self, kind: str, m: int, chunk: int, tick: int, ended: dict[tuple[str, int, int], int]
    ) -> bool:
        stage = self.stage[chunk]
        if kind == "F":
            return stage == 0 or ended.get(("F", m, stage - 1), tick + 1) <= tick
        needs = ("F", m, stage) if stage == self.last else ("B", m, stage + 1)
        return ended.get(needs, tick + 1) <= tick
