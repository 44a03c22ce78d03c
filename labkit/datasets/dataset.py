"""A data set in memory that says what it is and where it came from."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from labkit.kinds import LabError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from labkit.views.figure import Picture

__all__ = ["Dataset"]

_ORIGINS = {
    "cache": "the published files, from the cache of this machine",
    "download": "the published files, just downloaded",
    "stand-in": "drawn by labkit, because the published files could not be had",
}


@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """Images and labels for training and testing; unpacks as Keras' `load_data()` does.

    >>> (x_train, y_train), (x_test, y_test) = labkit.datasets.mnist()    # doctest: +SKIP

    The arrays are read-only. Labels are one number for each image.
    """

    name: str
    origin: Literal["cache", "download", "stand-in"]
    x_train: NDArray[np.uint8]
    y_train: NDArray[np.uint8]
    x_test: NDArray[np.uint8]
    y_test: NDArray[np.uint8]
    classes: int
    notes: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """What a table or a plot made from these data must call them."""
        drawn = self.origin == "stand-in"
        return f"{self.name} stand-in (drawn by labkit)" if drawn else self.name

    def __iter__(self) -> Iterator[tuple[NDArray[np.uint8], NDArray[np.uint8]]]:
        yield self.x_train, self.y_train
        yield self.x_test, self.y_test

    def __repr__(self) -> str:
        real = "" if self.origin == "stand-in" else ", the published files"
        return (
            f"{self.label}{real}: {len(self.x_train):,} train, {len(self.x_test):,} test, "
            f"{self._size()}, {self.classes} classes"
        )

    def _size(self) -> str:
        return "×".join(str(length) for length in self.x_train.shape[1:])

    def __str__(self) -> str:
        # The notes are this machine's: they stay out of repr, which notebooks keep and compare.
        return "\n".join((repr(self), *self.notes))

    def picture(self, rows: int = 4, columns: int = 10) -> Picture:
        """The first training images in a grid, each with its label above.

        >>> labkit.datasets.mnist().picture(rows=2)    # doctest: +SKIP
        """
        from labkit.views import figure

        for what, number, most in (("rows", rows, 20), ("columns", columns, 20)):
            if type(number) is not int or not 1 <= number <= most:
                raise LabError(
                    f"{what}={number!r} cannot be drawn. Give a whole number from 1 to {most}."
                )
        count = min(rows * columns, len(self.x_train))
        with figure.style():
            width, height = 0.9 * columns, 1.1 * rows + 0.4
            chart = figure.figure(width, height)
            # Every image has its fixed place; an automatic layout would only shrink them.
            chart.set_layout_engine("none")
            chart.suptitle(self.label, y=1 - 0.12 / height, verticalalignment="top")
            for i in range(count):
                row, column = divmod(i, columns)
                across = (0.9 * column + 0.08) / width
                up = (height - 0.4 - 1.1 * (row + 1) + 0.06) / height
                axes = chart.add_axes((across, up, 0.74 / width, 0.74 / height))
                axes.imshow(self.x_train[i], cmap="gray_r", vmin=0, vmax=255)
                axes.set_title(
                    str(self.y_train[i]), fontsize=9, pad=2, loc="center", fontweight="normal"
                )
                axes.set_axis_off()
            labels = ", ".join(str(label) for label in self.y_train[:count])
            alt = f"{self.label}: the first {count} training images. Their labels: {labels}."
            return figure.picture(chart, alt=alt, kind=None)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
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
        html = table((), rows, prose=True)
        return {"text/plain": repr(self), "text/html": html}
