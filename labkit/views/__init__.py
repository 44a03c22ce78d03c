"""Pictures of the objects that the other rooms make. `picture` shows the diagrams of lectures."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from labkit.kinds import LabError

if TYPE_CHECKING:
    from labkit.views.figure import Picture

FOLDER = Path(__file__).resolve().parents[2] / "images"


def picture(name: str) -> Picture:
    """A picture of the course with its alt text.

    >>> labkit.picture("kinds")                     # doctest: +SKIP
    Three cards. Measured: on this machine, just now; ...
    """
    from PIL import Image

    from labkit.views.figure import Picture

    path = FOLDER / f"{name}.png"
    if not path.is_file():
        names = ", ".join(sorted(one.stem for one in FOLDER.glob("*.png")))
        raise LabError(
            f"There is no picture {name!r}. "
            + (f"Choose one of: {names}." if names else "Run this in a clone of the course.")
        )
    with Image.open(path) as file:
        alt = file.info["Description"]
    return Picture(path.read_bytes(), alt)
