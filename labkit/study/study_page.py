"""The page of a study, and its table: what scales, what limits what, and what cannot be told."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import TYPE_CHECKING

from labkit.kinds import bytes_text, percent_text, ratio_text, seconds_text
from labkit.limits import Roofline, amdahl
from labkit.limits.roofline import Work
from labkit.study.measuring import FLOPS, PARAMETERS
from labkit.timing.intervals import Interval
from labkit.views.embed import document
from labkit.views.figure import SHEET, Picture, figure, look, picture, style
from labkit.views.table import Table

if TYPE_CHECKING:
    from labkit.study.study_file import Study, StudyPart


def summary(study: Study) -> Table:
    """Returns a line for each part: what was found, or why it was not."""
    rows = [(part.name, "; ".join(findings(study, part))) for part in study.parts]
    return Table(
        ("part, framework, devices", "found"), rows, "A study", str(study.kind), prose=True
    )


def serial_shares(study: Study) -> Iterator[str]:
    """Yields what Amdahl's law says of each model's strong scaling."""
    for framework, model in dict.fromkeys((one.framework, one.key) for one in study.done("step")):
        if fitted := study.amdahl(framework, model):
            yield f"{model}, {framework}: {fitted.verdict}"


def findings(study: Study, part: StudyPart) -> Iterator[str]:
    """Yields sentences about one part."""
    if part.outcome != "done":
        yield f"{part.outcome}: {part.says}"
        return
    for name in study.contenders(part):
        if part.part == "gemm":
            yield f"{name}: {study.rate(part, name).value / 1e9:.3g} GFLOP/s"
        elif part.part == "copy":
            yield f"{name}: {study.rate(part, name).value / 1e9:.3g} GB/s"
        elif part.part == "all-reduce":
            yield f"{bytes_text(int(name))}: {seconds_text(study.seconds(part, name).value)}"
        elif part.part == "loss":
            steps = study.of(part, name)
            yield (
                f"batch {name}: {_span(study.seconds(part, name, whole=True))}, "
                f"{steps[len(steps) // 2].count} steps"
            )
    if part.part == "step":
        yield from _of_steps(study, part)
    if noise := study.cannot_tell(part):
        yield f"cannot tell more: {noise}"
    if part.says:
        yield part.says


def _of_steps(study: Study, part: StudyPart) -> Iterator[str]:
    have = [name for name in ("strong", "weak") if study.of(part, name)]
    for name in have if study.of(part, "alone") else ():
        yield str(study.verdict(part, name))
    if not have:
        yield "cannot tell: there was time for one device alone"
        return
    yield limit(study, part)
    for name in ("alone", *have):
        if (joules := study.joules(part, name)) is not None:
            yield f"{name}: {joules:.3g} J for each image"


def limit(study: Study, part: StudyPart) -> str:
    """Returns what a strong step spends its time on, as far as the rounds can tell."""
    found, whole = study.breakdown(part), study.seconds(part, "strong").value
    words = [
        f"{name} {percent_text(max(0.0, piece.value) / whole)}" if piece.low > 0
        else f"{name} not measurable" for name, piece in found.items()
    ]  # fmt: skip
    sure = {name: piece.value for name, piece in found.items() if piece.low > 0}
    if len(found) < 2 or study.cannot_tell(part) or not sure:
        return f"cannot tell what limits it; of a step of {seconds_text(whole)}: {', '.join(words)}"
    most = max(sure, key=sure.__getitem__)
    return f"limited by {most}; of a step of {seconds_text(whole)}: {', '.join(words)}"


def _span(found: Interval) -> str:
    low, high = seconds_text(found.low), seconds_text(found.high)
    return f"{seconds_text(found.value)} ({low} to {high})"


def page(study: Study) -> str:
    """Returns the page as HTML that needs nothing else."""
    pictures = [draw(study) for draw in (scaling, bandwidth, roofline, parts_of_a_step)]
    machine = ", ".join(f"{k}: {v}" for k, v in study.machine.items())
    software = "; ".join(
        ", ".join(f"{k} {v}" for k, v in one.items() if k != "environment")
        for one in study.software
    )  # fmt: skip
    text = f"<style>{SHEET.read_text(encoding='utf-8')}</style>"
    text += f"<h1>How this machine scales</h1><p>{escape(str(study.kind))}.</p>"
    text += f"<p>{escape(machine)}.</p><p>{escape(software)}.</p>"
    text += "".join(f"<p>{one.html}</p>" for one in pictures if one)
    text += "".join(f"<p>{escape(one)}</p>" for one in serial_shares(study))
    text += str(summary(study)._repr_mimebundle_()["text/html"])
    text += (
        "<p>An interval holds the true value in 95 of 100 cases, if the machine stays as it is. "
        "A speed-up compares calls of the same round. A rate is the best of short calls, on a CPU "
        "by the CPU time of one thread. Bus bandwidth is that of nccl-tests: S/t·2(n−1)/n.</p>"
    )
    return document(text, "A study of labkit")


def scaling(study: Study) -> Picture | None:
    """Draws the speed-up by the number of devices, with Amdahl's fit of strong scaling."""
    found: dict[tuple[str, str, str], dict[int, Interval]] = {}
    for part in study.done("step"):
        for name in ("strong", "weak"):
            if study.of(part, "alone") and study.of(part, name):
                one = study.verdict(part, name).estimate
                curve = found.setdefault((part.framework, part.key, name), {})
                curve[part.devices] = Interval(one.value, one.low, one.high, 0.95)
    if not found:
        return None
    from matplotlib.ticker import MaxNLocator

    said = []
    with style():
        chart = figure(8.6, 3.8)
        for number, scale in enumerate(("strong", "weak")):
            axes = chart.add_subplot(1, 2, number + 1, xlabel="devices", ylabel="times one device")
            axes.set_title(f"{scale.capitalize()} scaling")
            most = 1
            for index, ((framework, model, name), curve) in enumerate(found.items()):
                if name != scale:
                    continue
                xs = [1, *sorted(curve)]
                ys = [1.0, *(curve[n].value for n in xs[1:])]
                off = [[0.0, *(curve[n].value - curve[n].low for n in xs[1:])],
                       [0.0, *(curve[n].high - curve[n].value for n in xs[1:])]]  # fmt: skip
                label = f"{model}, {framework}"
                axes.errorbar(xs, ys, yerr=off, capsize=3, label=label, **look(index // 2).line)
                most = max(most, *xs)
                said.append(f"{label}, {name}: {', '.join(ratio_text(y) for y in ys[1:])}")
                fitted = study.amdahl(framework, model) if name == "strong" else None
                if fitted and 0 <= fitted.share.value <= 1:
                    upto = [1 + (most - 1) * step / 20 for step in range(21)]
                    axes.plot(upto, [amdahl(fitted.share.value, n) for n in upto], marker="",
                              color=look(index // 2).color, linewidth=1, alpha=0.6)  # fmt: skip
            axes.plot([1, most], [1, most], color="#888888", linewidth=1, marker="", linestyle=":")
            axes.set_ylim(bottom=0)
            axes.xaxis.set_major_locator(MaxNLocator(integer=True))
            if most > 1:
                axes.legend(fontsize=8)
        return picture(chart, f"Speed-up by devices. {'; '.join(said)}.", study.kind)


def bandwidth(study: Study) -> Picture | None:
    """Draws the bus bandwidth of an all-reduce by its size."""
    if not (parts := study.done("all-reduce")):
        return None
    said = []
    with style():
        chart = figure(8.0, 3.6)
        axes = chart.add_subplot(xlabel="bytes of each device", ylabel="bus bandwidth, GB/s")
        axes.set_title("All-reduce")
        for index, part in enumerate(parts):
            sizes = sorted(map(int, study.contenders(part)))
            found = [study.busbw(part, str(size)).value / 1e9 for size in sizes]
            label = f"{part.framework}, {part.devices} devices"
            axes.loglog(sizes, found, label=label, **look(index).line)
            said.append(f"{label}: {', '.join(f'{one:.3g}' for one in found)} GB/s")
        axes.legend(fontsize=8)
        return picture(chart, f"Bus bandwidth by size. {'; '.join(said)}.", study.kind)


def roofline(study: Study) -> Picture | None:
    """Draws a step of each model under the roof of one thread, or of one GPU."""
    gemms, copies = study.done("gemm", 1), study.done("copy", 1)
    if not gemms or not copies:
        return None
    top = max(study.rate(gemms[0], name).value for name in study.contenders(gemms[0]))
    memory = max(study.rate(copies[0], name).value for name in study.contenders(copies[0]))
    layers = {}
    for part in study.done("step", 1):
        if calls := study.of(part, "strong"):
            # Weights are read twice, and Adam reads and writes them with two moments.
            images = calls[0].work / calls[0].count
            work = Work("step", FLOPS[part.key] * images, 4 * 9 * PARAMETERS[part.key])
            layers[f"{part.key}, {part.framework}"] = work, study.seconds(part, "strong").value
    return Roofline(top, {"memory": memory}, study.kind).picture(layers)


def parts_of_a_step(study: Study) -> Picture | None:
    """Draws where a strong step goes."""
    from labkit.views.bars import stacked

    names = ("compute, overhead", "input", "gradient reduction")
    rows = {}
    for part in study.done("step"):
        if study.of(part, "no reduction") or (part.devices == 1 and study.of(part, "same images")):
            found = study.breakdown(part)
            label = f"{part.key}, {part.framework}, {part.devices} × "
            rows[label.rstrip(" ×")] = {
                name: found[name].value if name in found and found[name].low > 0 else 0.0
                for name in names
            }
    if not rows:
        return None
    said = "; ".join(
        f"{label}: {', '.join(f'{k} {seconds_text(v)}' for k, v in row.items() if v)}"
        for label, row in rows.items()
    )
    board = stacked("Where a step goes", "strong scaling", rows, seconds_text, study.kind)
    return board.picture(f"The parts of a step. {said}.")
