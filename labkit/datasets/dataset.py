"""A data set in memory, with its name and origin."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from labkit.arguments import whole

if TYPE_CHECKING:
    from labkit.views.figure import Picture

Bytes = NDArray[np.uint8]
Origin = Literal["cache", "download", "synthetic"]
ORIGINS = {
    "cache": "the published files, from this machine",
    "download": "the published files, just downloaded",
    "synthetic": "synthetic data, because the published files could not be had",
}


@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """Images and labels for training and testing; unpacks as Keras' `load_data()` does.

    >>> (x_train, y_train), (x_test, y_test) = labkit.datasets.mnist()    # doctest: +SKIP

    The arrays have Keras' shapes and are read-only.
    """

    name: str
    origin: Origin
    x_train: Bytes
    y_train: Bytes
    x_test: Bytes
    y_test: Bytes
    classes: int = 10
    note: str = ""

    @property
    def synthetic(self) -> bool:
        """Whether labkit generated these images."""
        return self.origin == "synthetic"

    @property
    def label(self) -> str:
        """The name for tables and plots, which says whether the images are synthetic."""
        return f"{self.name}-like synthetic data" if self.synthetic else self.name

    def __iter__(self) -> Iterator[tuple[Bytes, Bytes]]:
        yield self.x_train, self.y_train
        yield self.x_test, self.y_test

    def __repr__(self) -> str:
        size = "×".join(map(str, self.x_train.shape[1:]))
        return (
            f"{self.label}: {len(self.x_train):,} train, {len(self.x_test):,} test, "
            f"{size}, {self.classes} classes"
        )

    def picture(self, rows: int = 4, columns: int = 10) -> Picture:
        """Returns a picture of the first training images in a grid, each with its label above.

        >>> labkit.datasets.mnist().picture(rows=2)    # doctest: +SKIP
        """
        from labkit.views import figure

        rows = whole("rows", rows, at_least=1, at_most=20)
        columns = whole("columns", columns, at_least=1, at_most=20)
        labels = [str(label) for label in self.y_train[: rows * columns].ravel()]
        with figure.style():
            chart = figure.figure(0.9 * columns, 1.1 * rows + 0.4)
            chart.suptitle(self.label)
            grid = chart.subplots(rows, columns, squeeze=False)
            for axes in grid.flat:
                axes.set_axis_off()
            for axes, image, label in zip(grid.flat, self.x_train, labels, strict=False):
                axes.imshow(image, cmap="gray_r", vmin=0, vmax=255)
                axes.set_title(label, fontsize=9, pad=2, loc="center", fontweight="normal")
            alt = f"{self.label}: the first {len(labels)} training images. Their labels: "
            made = figure.picture(chart, alt=f"{alt}{', '.join(labels)}.")
        return replace(made, photograph=True)

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        from labkit.views.table import table

        # The note is this machine's: it stays out of repr, which notebooks keep and compare.
        rows = [("data", repr(self)), ("origin", ORIGINS[self.origin]), ("note", self.note)]
        html = table((), [row for row in rows if row[1]], prose=True)
        return {"text/plain": repr(self), "text/html": html}
