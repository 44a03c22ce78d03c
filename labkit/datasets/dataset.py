"""A data set in memory that says what it is and where it came from."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from labkit.arguments import whole

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from labkit.views.figure import Picture

__all__ = ["Dataset"]

_ORIGINS = {
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
    origin: Literal["cache", "download", "synthetic"]
    x_train: NDArray[np.uint8]
    y_train: NDArray[np.uint8]
    x_test: NDArray[np.uint8]
    y_test: NDArray[np.uint8]
    classes: int
    notes: tuple[str, ...] = ()

    @property
    def synthetic(self) -> bool:
        """Whether labkit generated these images."""
        return self.origin == "synthetic"

    @property
    def label(self) -> str:
        """What a table or a plot made from these data must call them."""
        return f"{self.name}-like synthetic data" if self.synthetic else self.name

    def __iter__(self) -> Iterator[tuple[NDArray[np.uint8], NDArray[np.uint8]]]:
        yield self.x_train, self.y_train
        yield self.x_test, self.y_test

    def __repr__(self) -> str:
        return (
            f"{self.label}: {len(self.x_train):,} train, {len(self.x_test):,} test, "
            f"{self._size()}, {self.classes} classes"
        )

    def _size(self) -> str:
        return "×".join(map(str, self.x_train.shape[1:]))

    def __str__(self) -> str:
        # The notes are this machine's: they stay out of repr, which notebooks keep and compare.
        return "\n".join((repr(self), *self.notes))

    def picture(self, rows: int = 4, columns: int = 10) -> Picture:
        """The first training images in a grid, each with its label above.

        >>> labkit.datasets.mnist().picture(rows=2)    # doctest: +SKIP
        """
        from labkit.views import figure

        whole("rows", rows, at_least=1, at_most=20)
        whole("columns", columns, at_least=1, at_most=20)
        count = min(rows * columns, len(self.x_train))
        labels = [str(label) for label in self.y_train[:count].ravel()]
        with figure.style():
            width, height = 0.9 * columns, 1.1 * rows + 0.4
            chart = figure.figure(width, height)
            # Every image has its fixed place; an automatic layout would only shrink them.
            chart.set_layout_engine("none")
            chart.suptitle(self.label, y=1 - 0.12 / height, verticalalignment="top")
            for i, label in enumerate(labels):
                row, column = divmod(i, columns)
                left = (0.9 * column + 0.08) / width
                bottom = (height - 0.4 - 1.1 * (row + 1) + 0.06) / height
                axes = chart.add_axes((left, bottom, 0.74 / width, 0.74 / height))
                axes.imshow(self.x_train[i], cmap="gray_r", vmin=0, vmax=255)
                axes.set_title(label, fontsize=9, pad=2, loc="center", fontweight="normal")
                axes.set_axis_off()
            alt = f"{self.label}: the first {count} training images. Their labels: "
            return figure.picture(chart, alt=f"{alt}{', '.join(labels)}.", kind=None)

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        from labkit.views.table import table

        rows = [
            ("data", self.label),
            ("origin", _ORIGINS[self.origin]),
            ("training images", f"{len(self.x_train):,}"),
            ("test images", f"{len(self.x_test):,}"),
            ("one image", f"{self._size()}, whole numbers 0 to 255"),
            ("classes", f"{self.classes}"),
            *(("note", note) for note in self.notes),
        ]  # fmt: skip
        return {"text/plain": repr(self), "text/html": table((), rows, prose=True)}
