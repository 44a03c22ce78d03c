"""Draw the pictures of the course: `python images/draw.py [NAME ...]`, or `--check` them.

Each picture NAME.png has a script NAME.py beside it: ALT says in words what is seen, and draw()
draws it. A picture that already shows the same is left alone, because another version of the font
renderer would change every byte of it.
"""

from __future__ import annotations

import argparse
import importlib
import io
from collections.abc import Sequence
from pathlib import Path

from PIL import Image, ImageChops

from labkit.views.figure import Picture

FOLDER = Path(__file__).resolve().parent
NAMES = sorted(
    path.stem
    for path in FOLDER.glob("*.py")
    if path.stem != "draw" and not path.stem.startswith("_")
)
# A changed letter moves the mean of some 8 x 8 pixels by far more than this of 255; another version
# of the font renderer moves it by less.
TOLERANCE = 24


def drawn(name: str) -> Picture:
    """The picture that NAME.py draws now."""
    script = importlib.import_module(name)
    return script.draw().picture(script.ALT)


def is_current(path: Path, picture: Picture) -> bool:
    """Whether the file shows this picture, with these words."""
    if not path.exists():
        return False
    with Image.open(path) as file:
        words, before = file.info.get("Description"), file.convert("RGB")
    after = Image.open(io.BytesIO(picture.png)).convert("RGB")
    if words != picture.alt or before.size != after.size:
        return False
    difference = ImageChops.difference(before.reduce(8), after.reduce(8))
    return not difference.point(lambda value: 255 * (value > TOLERANCE)).getbbox()


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Draw the pictures of the course.")
    parser.add_argument("names", nargs="*", help="which pictures (default: all)")
    parser.add_argument("--check", action="store_true", help="only name those that are out of date")
    chosen = parser.parse_args(arguments)
    stale = [path.stem for path in FOLDER.glob("*.png") if path.stem not in NAMES]
    for name in chosen.names or NAMES:
        path, picture = FOLDER / f"{name}.png", drawn(name)
        if not is_current(path, picture):
            stale.append(name)
            if not chosen.check:
                picture.save(path)
    if chosen.check and stale:
        print(f"Out of date: {', '.join(sorted(stale))}. Draw them: make images")
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
