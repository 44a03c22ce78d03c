"""Every drawn picture of the course by name: draw one, draw all, find those that are stale.

>>> sorted(diagrams())[:3]
['batches', 'course_map', 'data_parallelism']
>>> picture("kinds").alt[:12]
'Three cards.'
"""

from __future__ import annotations

import importlib
from pathlib import Path

from labkit.kinds import LabError
from labkit.views.figure import Picture
from labkit.views.sketch import Diagram

__all__ = ["check_all", "diagrams", "draw_all", "picture"]

# By name and only when asked for: a room may draw with views, and views imports no room.
_DRAWERS = (
    "labkit.views.course",
    "labkit.views.parallelism",
    "labkit.views.steps",
    "labkit.views.speed",
    "labkit.views.gauges",
    "labkit.memory.pictures",
    "labkit.collectives.pictures",
    "labkit.cluster.pictures",
    "labkit.updates.pictures",
)
# A changed letter moves the mean of some 8 × 8 pixels by far more than this of 255; another
# version of the font renderer moves it by less.
TOLERANCE = 24


def diagrams() -> dict[str, Diagram]:
    """All diagrams by name; the name is also that of the file in images/."""
    found: dict[str, Diagram] = {}
    for drawer in _DRAWERS:
        found.update(importlib.import_module(drawer).diagrams())
    return found


def picture(name: str) -> Picture:
    """One diagram, drawn now."""
    known = diagrams()
    if name not in known:
        raise LabError(f"There is no diagram {name!r}. Choose one of: {', '.join(sorted(known))}.")
    return known[name].picture()


def draw_all(folder: str | Path) -> list[Path]:
    """Write every diagram to folder/NAME.png and return the paths.

    A file that already shows the same picture is left alone, so that drawing on another machine
    does not change every byte of it.
    """
    place = Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, diagram in diagrams().items():
        path = place / f"{name}.png"
        drawn = diagram.picture()
        if not (path.exists() and _same(path, drawn)):
            drawn.save(path)
        paths.append(path)
    return paths


def check_all(folder: str | Path) -> list[str]:
    """Names of diagrams whose file is missing or shows something else, and of files without one."""
    place, known = Path(folder), diagrams()
    stale = [
        name
        for name, diagram in known.items()
        if not (place / f"{name}.png").exists()
        or not _same(place / f"{name}.png", diagram.picture())
    ]
    strays = [path.stem for path in sorted(place.glob("*.png")) if path.stem not in known]
    return sorted(stale) + strays


def _same(path: Path, drawn: Picture) -> bool:
    import io

    from PIL import Image, ImageChops, UnidentifiedImageError

    try:
        with Image.open(path) as file:
            before = file.convert("RGB")
    except (OSError, UnidentifiedImageError):
        return False
    after = Image.open(io.BytesIO(drawn.png)).convert("RGB")
    if before.size != after.size:
        return False
    difference = ImageChops.difference(before.reduce(8), after.reduce(8))
    return not difference.point(lambda value: 255 * (value > TOLERANCE)).getbbox()
