"""What the rooms draw their objects with.

`picture` shows the diagrams of lectures, `explore` models with sliders.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from labkit.kinds import LabError

if TYPE_CHECKING:
    from labkit.views.embed import Player
    from labkit.views.figure import Picture

FOLDER = Path(__file__).resolve().parents[2] / "images"


def picture(name: str) -> Picture:
    """Returns a picture of the course with its alt text.

    >>> labkit.picture("kinds")                     # doctest: +SKIP
    Three cards. Measured: on this machine, just now; ...
    """
    return _loaded(FOLDER, name)


def explore(name: str) -> Player:
    """Returns a model that answers to sliders in the page, without a kernel.

    >>> labkit.explore("all_reduce")                # doctest: +SKIP
    Which all-reduce is the fastest? ...
    """
    from labkit.views.embed import Player, embedded

    still = _loaded(FOLDER / "explorers", name)

    def html() -> str:
        import io

        from PIL import Image

        from labkit.views.figure import finished

        whole = Image.open(io.BytesIO(still.png)).convert("RGB")
        png = finished(whole, still.alt, small=True).png
        page, alt = f"explore_{name}", still.alt
        return embedded(page, {"alt": alt}, key=f"explore {name}", alt=alt, png=png)

    return Player(name, still.alt, lambda: still, html)


def _loaded(folder: Path, name: str) -> Picture:
    """Returns a picture whose file holds its alt text."""
    from PIL import Image

    from labkit.views.figure import Picture

    path = folder / f"{name}.png"
    if not path.is_file():
        names = ", ".join(sorted(one.stem for one in folder.glob("*.png")))
        raise LabError(
            f"There is no picture {name!r}. "
            + (f"Choose one of: {names}." if names else "Run this in a clone of the course.")
        )
    with Image.open(path) as file:
        alt = file.info["Description"]
    return Picture(path.read_bytes(), alt)
