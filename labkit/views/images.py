"""The pictures of the lectures: files in images/ that say in words what they show."""

from __future__ import annotations

from pathlib import Path

from labkit.kinds import LabError
from labkit.views.figure import Picture

FOLDER = Path(__file__).resolve().parents[2] / "images"


def picture(name: str) -> Picture:
    """A picture of the course with its alt text.

    >>> labkit.picture("kinds")                     # doctest: +SKIP
    Three cards. Measured: on this machine, just now; ...
    """
    from PIL import Image

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
