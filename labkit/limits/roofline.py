"""The roofline: how fast a layer can be, given the bytes that it moves for each operation.

A device that computes R FLOP/s and moves W bytes/s can do at most min(R, W·I) FLOP/s in a layer
of arithmetic intensity I, in FLOP per byte (Williams, Waterman and Patterson, 2009). FLOPs and
bytes are counted from shapes: each array is read or written once, as if a cache held the rest.

>>> layer = dense(32, 784, 128)
>>> layer.flops, layer.nbytes, round(layer.intensity, 2)
(6422528, 518144, 12.4)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from labkit.kinds import Kind, LabError

if TYPE_CHECKING:
    from labkit.views.figure import Picture


class Work(NamedTuple):
    """What one layer does: FLOPs, and bytes that have to come from memory or go there."""

    name: str
    flops: float
    nbytes: float

    @property
    def intensity(self) -> float:
        """FLOP per byte."""
        return self.flops / self.nbytes


def dense(batch: int, inputs: int, outputs: int, each: int = 4) -> Work:
    """The forward product of a dense layer, without bias. `each` is the bytes of a number."""
    numbers = batch * inputs + inputs * outputs + batch * outputs
    return Work("dense", 2 * batch * inputs * outputs, each * numbers)


def convolution(
    batch: int, height: int, width: int, inputs: int, outputs: int, kernel: int, each: int = 4
) -> Work:
    """The forward pass of a convolution without padding, of `height` × `width` inputs."""
    high, wide = height - kernel + 1, width - kernel + 1
    weights = kernel * kernel * inputs * outputs
    numbers = batch * (height * width * inputs + high * wide * outputs) + weights
    return Work("convolution", 2 * batch * high * wide * weights, each * numbers)


def attention(
    batch: int, heads: int, sequence: int, width: int, *, fused: bool = False, each: int = 4
) -> Work:
    """Scores, softmax and weighted sum; `fused` keeps the scores out of memory, as Flash does."""
    scores = batch * heads * sequence * sequence
    numbers = 4 * batch * heads * sequence * width + (0 if fused else 4 * scores)
    return Work("attention", 4 * scores * width + 5 * scores, each * numbers)


def normalisation(rows: int, width: int, each: int = 4) -> Work:
    """Layer normalisation: mean, variance, and a scaled and shifted value for each number."""
    return Work("normalisation", 8 * rows * width, each * (2 * rows * width + 2 * width))


def adam(parameters: int, each: int = 4) -> Work:
    """An update by Adam: it reads weight, gradient and two moments, and writes all but one."""
    return Work("Adam", 12 * parameters, 7 * each * parameters)


def all_reduce(numbers: int, ranks: int, each: int = 4) -> Work:
    """A ring all-reduce, on one rank: its sums, and the bytes that it *sends over its link*."""
    sums = numbers * (ranks - 1) / ranks
    return Work("all-reduce", sums, 2 * each * sums)


@dataclass(frozen=True)
class Roofline:
    """Roofs of one device: FLOP/s, and bytes per second of each memory by its name."""

    flops: float
    bandwidths: Mapping[str, float]
    kind: Kind

    def ridge(self, memory: str | None = None) -> float:
        """The intensity at which the roofs meet: of a memory by name, or of the slowest."""
        return self.flops / (self.bandwidths[memory] if memory else min(self.bandwidths.values()))

    def attainable(self, intensity: float, memory: str | None = None) -> float:
        """FLOP/s at most."""
        return self.flops * min(1.0, intensity / self.ridge(memory))

    def seconds(self, work: Work, memory: str | None = None) -> float:
        """Seconds at least: those of its arithmetic or of its bytes, whichever are more."""
        return work.flops / self.attainable(work.intensity, memory)

    def picture(self, layers: Mapping[str, tuple[Work, float]] | None = None) -> Picture:
        """The roofs, and measured layers below them: a name, its work, and its seconds."""
        from labkit.views.figure import figure, legend_below, look, picture, style

        points = {
            name: (work.intensity, work.flops / seconds)
            for name, (work, seconds) in (layers or {}).items()
        }
        ridge, words = self.ridge(), []
        low = min([ridge / 50, *(at / 2 for at, _ in points.values())])
        high = max([ridge * 20, *(at * 2 for at, _ in points.values())])
        with style():
            chart = figure(7.5, 4.4)
            axes = chart.add_subplot(
                xlabel="FLOP per byte", ylabel="GFLOP/s", xscale="log", yscale="log"
            )
            for number, (name, width) in enumerate(self.bandwidths.items()):
                corner = min(high, max(low, self.flops / width))
                xs = (low, corner, high)
                ys = [min(self.flops, width * x) / 1e9 for x in xs]
                axes.plot(xs, ys, color=look(number).color, linestyle=look(number).dash, marker="",
                          label=f"{name}, {width / 1e9:.3g} GB/s")  # fmt: skip
            for number, (name, (at, reached)) in enumerate(
                points.items(), start=len(self.bandwidths)
            ):
                share = reached / self.attainable(at)
                axes.plot(at, reached / 1e9, **look(number).line | {"linestyle": ""}, markersize=9,
                          label=f"{name}: {100 * share:.0f} % of its roof")  # fmt: skip
                words.append(f"{name} {reached / 1e9:.3g} GFLOP/s at {at:.3g} FLOP per byte")
            legend_below(chart, axes)
        alt = f"A roof at {self.flops / 1e9:.3g} GFLOP/s from {ridge:.3g} FLOP per byte on"
        return picture(chart, "; ".join([alt, *words]) + ".", self.kind)


def of_gpu(name: str) -> Roofline:
    """The roofline of a known GPU, from its data sheet."""
    from labkit.known_hardware import GPUS

    if name not in GPUS:
        raise LabError(f"No GPU {name!r} is known. Known are {', '.join(GPUS)}.")
    gpu = GPUS[name]
    return Roofline(gpu.flops, {"memory": gpu.bandwidth}, gpu.kind)


def here() -> Roofline:
    """The roofline of one core of this machine, measured now; it takes about five seconds."""
    from labkit.limits.rates import COPIES, copy_rate, gemm_rate

    copies = {place: copy_rate(size, windows=3).value for place, size in COPIES.items()}
    product = gemm_rate(windows=3)
    return Roofline(product.value, copies, product.kind)


def mfu(flops: float, seconds: float, peak: float) -> float:
    """Returns the model FLOPs utilisation: FLOPs that the model needs, over those that could be."""
    return flops / (seconds * peak)
