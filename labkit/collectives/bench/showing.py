"""How measured collectives are shown: text, an HTML table, pictures. Nothing is computed here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from labkit.collectives.bench.fitting import is_program
from labkit.kinds import bytes_text, percent_text, seconds_text

if TYPE_CHECKING:
    from labkit.views.figure import Picture

__all__ = ["bandwidth_picture", "fit_picture", "html", "label", "notes", "text"]


def label(contender: str) -> str:
    """A name for a column: the collective is in the title.

    >>> label("recursive_doubling_all_reduce"), label("mpi")
    ('recursive doubling', 'MPI library')
    """
    if contender == "mpi":
        return "MPI library"
    return contender.removesuffix("_all_reduce").replace("_", " ")


def notes(bench: Any) -> tuple[str, ...]:
    """What a reader must know, most important first."""
    said = [
        f"WRONG: {label(one.contender)} left {one.wrong:,} wrong elements on a rank "
        f"at {bytes_text(one.nbytes)}. Its time says nothing."
        for one in bench.timings
        if one.wrong
    ]
    if bench.ranks > bench.cores:
        said.append(
            f"{bench.ranks} ranks share {bench.cores} cores and take turns: a latency holds the "
            "wait for a turn, and a bandwidth is what the cores can copy. Compare the columns "
            "with each other, not with a cluster."
        )
    said.append("All ranks are on this machine: messages go through its memory, over no network.")
    if any(name.startswith("tensorflow") for name in bench.contenders):
        said.append(
            "TensorFlow's replicas are in one process. All but its ring hand one total to all "
            "replicas, and copy nothing."
        )
    if bench.busy is not None and bench.busy > 0.5 * bench.cores:
        said.append(
            f"The machine was busy at the start (load {bench.busy:.1f} on {bench.cores} cores). "
            "Stop other programs for steadier numbers."
        )
    said += [f"Left out: {label(name)}. {why}" for name, why in bench.left_out.items()]
    return tuple(said)


def text(bench: Any) -> str:
    """The table, the fits, what to know, the kind."""
    head, rows = _cells(bench)
    lines = [head, *rows]
    widths = [max(len(line[at]) for line in lines) for at in range(len(head))]
    table = ["  ".join(f"{cell:>{w}}" for cell, w in zip(line, widths, strict=True)).rstrip()
             for line in lines]  # fmt: skip
    return "\n".join((_caption(bench), *table, *_under(bench)))


def html(bench: Any) -> str:
    """The same for notebooks."""
    from labkit.views.table import table

    head, rows = _cells(bench)
    return table(head, rows, _caption(bench), " ".join(_under(bench)))


def fit_picture(bench: Any) -> Picture:
    """Time by size, measured and modelled."""
    from labkit.views import bench_figure

    fits = {name: bench.fit(name) for name in bench.contenders}
    return bench_figure.times(bench, fits, {name: label(name) for name in fits})


def bandwidth_picture(bench: Any) -> Picture:
    """Bus bandwidth by size."""
    from labkit.views import bench_figure

    return bench_figure.bandwidths(bench, {name: label(name) for name in bench.contenders})


def _caption(bench: Any) -> str:
    return (
        f"{bench.collective}, {bench.ranks} ranks, {bench.dtype}: median time of a call on the "
        "slowest rank, and bus bandwidth in GB/s"
    )


def _cells(bench: Any) -> tuple[Sequence[str], list[Sequence[str]]]:
    names = bench.contenders
    rows: list[Sequence[str]] = []
    for nbytes in bench.sizes:
        row = [bytes_text(nbytes)]
        for name in names:
            speed = bench.busbw(name, nbytes) / 1e9
            words = f"{speed:.2f}" if speed >= 0.1 else f"{speed:.1g}"
            row.append(f"{seconds_text(bench.seconds(name, nbytes))} · {words}")
        rows.append(row)
    if len(bench.sizes) > 1:
        fits = [bench.fit(name) for name in names]
        rows.append(["fitted α", *(seconds_text(fit.latency) for fit in fits)])
        rows.append(["fitted B", *(fit.bandwidth_text for fit in fits)])
        rows.append(["half within", *(percent_text(fit.typical) for fit in fits)])
    return ["buffer", *(label(name) for name in names)], rows


def _under(bench: Any) -> list[str]:
    right = "Every result was checked, and is right." if bench.correct else ""
    fits = []
    if len(bench.sizes) > 1:
        fits.append(
            "α and B are fitted to each column: T = messages·α + bytes·S/B of the program's closed "
            "form; for a library, which does not say how it works, T = α + bus factor·S/B."
        )
        programs = [name for name in bench.contenders if is_program(name)]
        if len(programs) > 1:
            fits.append(f"One link for all programs: {bench.fit(*programs)}")
    return [line for line in (right, *fits, *notes(bench), _kind(bench)) if line]


def _kind(bench: Any) -> str:
    kind = str(bench.kind)
    return f"{kind[0].upper()}{kind[1:]}."
