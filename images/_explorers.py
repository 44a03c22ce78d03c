"""Draw the still pictures of the explorers, in Chromium: `python images/_explorers.py [NAME ...]`.

Each is what its page shows on paper, and holds `code` of the page: by that a test finds a picture
that is out of date.
"""

from __future__ import annotations

import io
import sys
from hashlib import sha256
from pathlib import Path

from PIL import Image, PngImagePlugin

from labkit.views.embed import HOUSE, document, embedded, joined, modules
from labkit.views.figure import SCALE, finished

FOLDER = Path(__file__).resolve().parent
NAMES = sorted(one.stem.removeprefix("explore_") for one in HOUSE.glob("*/*/explore_*.mjs"))


def code(name: str) -> str:
    """What draws an explorer: another code, another picture."""
    *_, shared, own = modules(f"explore_{name}")
    sheet = shared.with_suffix(".css").read_text(encoding="utf-8")
    return sha256(f"{joined((shared, own))}{sheet}".encode()).hexdigest()[:16]


def main(names: list[str]) -> None:
    sys.path.insert(0, str(FOLDER.parent))  # for the tests, which know the browser
    from playwright.sync_api import sync_playwright

    from tests.browser.lab import chromium

    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=str(chromium()), args=["--no-sandbox"])
        shown = browser.new_page(viewport={"width": 832, "height": 900}, device_scale_factor=SCALE)
        for name in names:
            page = embedded(f"explore_{name}", {"alt": name}, key=name, alt=name)
            shown.set_content(document(page, name))
            shown.emulate_media(media="print")
            box = shown.locator(".explorer")
            box.wait_for()
            words = (box.locator(one).inner_text() for one in ("header b", "header span", ".says"))
            alt = " ".join(words).replace("\u00a0", " ")
            drawn = Image.open(io.BytesIO(box.screenshot())).convert("RGB")
            stamp = PngImagePlugin.PngInfo()
            stamp.add_itxt("Description", alt)
            stamp.add_text("Code", code(name))
            still = Image.open(io.BytesIO(finished(drawn, alt).png))
            still.save(FOLDER / "explorers" / f"{name}.png", compress_level=9, pnginfo=stamp)
        browser.close()


if __name__ == "__main__":
    main(sys.argv[1:] or NAMES)
