"""A view as a piece of HTML that needs nothing else: its code, its style and its data are inside.

No CDN and no request: the same piece of HTML works in JupyterLab, in an exported notebook and in a
file on a disk. Without JavaScript, or without trust, the picture or the sentence inside it stays.
"""

from __future__ import annotations

import base64
import gzip
import json
import os
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cache
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from labkit.plain import write_text

if TYPE_CHECKING:
    from labkit.views.figure import Picture

HOUSE = Path(__file__).resolve().parents[1]
# A saved notebook holds this once for every view: 32 kB packed, 80 kB as it is. A script element
# asks for no permission that this script has not been given already, unlike a blob or `eval`.
# A frame later, so that the picture inside is seen before the machine is busy with this.
START = """(async () => {
  await new Promise((go) => requestAnimationFrame(() => setTimeout(go)));
  const bytes = Uint8Array.from(atob(CODE), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  const script = document.createElement("script");
  script.textContent = await new Response(stream).text();
  document.head.append(script);
  script.start(OPTIONS);
  script.remove();
})();"""
IMPORT = re.compile(r'^import\s[^;]*"(\.[^"]*)";\n', re.MULTILINE)
EXPORT = re.compile(r"^export (?=(?:async )?(?:function|const|class)\b)", re.MULTILINE)
VIEW = re.compile(r"^export (?:class|const) ([A-Z][a-z]+)\b", re.MULTILINE)
# Comments are for readers of the modules; in every notebook they would only be weight. What a quote
# follows may be in a string, and stays.
COMMENT = re.compile(r"^[ \t]*//.*\n|[ \t]+// [^\"'`\n]*$", re.MULTILINE)


class Fragment(str):
    """A piece of HTML, and what it was made of: a saved notebook keeps that beside the picture."""

    __slots__ = ("state",)
    state: dict[str, Any]


@dataclass(frozen=True)
class Player:
    """A view that plays in the browser. Name it in a cell, or save it as a page.

    `alt` says in words what there is to see, `still` draws the picture that stands for it where
    nothing can play, and `html` is a piece of a page that needs no kernel and no network.
    """

    title: str
    alt: str
    still: Callable[[], Picture] = field(repr=False)
    html: Callable[[], str] = field(repr=False)

    @staticmethod
    def of(
        page: str, title: str, alt: str, still: Callable[[], Picture], data: Callable[[], str],
        small: Callable[[], Picture] | None = None, **options: Any,
    ) -> Player:  # fmt: skip
        """A page with data from `packed` inside, and where nothing plays its `small` picture."""

        def html() -> str:
            text, png = data(), (small or still)().png
            return embedded(page, {"alt": alt, "data": text, **options}, key=text[-16:], alt=alt,
                            png=png)  # fmt: skip

        return Player(title, alt, still, html)

    @staticmethod
    def together(
        page: str, title: str, still: Callable[[], Picture], parts: list[dict[str, Any]], unit: str
    ) -> Player:
        """Players of one kind under one clock, each with the options of its own page."""

        def html() -> str:
            picture, key = still(), parts[0]["data"][-16:] + parts[-1]["data"][-16:]
            return embedded(page, {"alt": picture.alt, "parts": parts, "unit": unit}, key=key,
                            alt=picture.alt, png=picture.png)  # fmt: skip

        return Player(title, still().alt, still, html)

    def save(self, path: str | Path) -> Path:
        """Write it as a page of its own, for a browser, a mail or a web site."""
        return write_text(path, document(self.html(), self.title))

    def __repr__(self) -> str:
        return self.alt

    def _repr_mimebundle_(self, **_: object) -> Any:
        if os.environ.get("LABKIT_PICTURES") == "still":
            return with_state(self.still()._repr_mimebundle_(), self.html())
        # The picture is inside the HTML, and seen there also where no script may run.
        return {"text/plain": self.alt, "text/html": self.html()}, {}


Bundle = tuple[dict[str, str], dict[str, Any]]


def with_state(bundle: Bundle, html: str) -> Bundle:
    """Returns the formats of a picture with the view that plays, without its code, as metadata.

    `labkit.kit.saved_views` makes the view of it again, for the web site and the slides.
    """
    if isinstance(html, Fragment):
        bundle[1]["labkit"] = html.state
    return bundle


def embedded(
    page: str, options: dict[str, Any], *, key: str, alt: str, png: bytes | None = None
) -> Fragment:
    """A piece of HTML in which `mount` of page.mjs starts the page's view with these options."""
    still = f"<p>{escape(alt)}</p>"
    if png is not None:
        source = f"data:image/png;base64,{base64.b64encode(png).decode('ascii')}"
        still = (
            f'<img class="labkit-picture" alt="{escape(alt)}" style="max-width:100%" '
            f'src="{source}">'
            # Seen only where no script runs, as in a notebook that is not trusted yet.
            "<p>This is a still picture: run the cell to play it.</p>"
        )
    # JSON that cannot end the script which it is in.
    safe = json.dumps({"key": key, **options}).replace("</", "<\\/").replace("<!--", "<\\u0021--")
    start = START.replace("CODE", json.dumps(_packed_code(page))).replace("OPTIONS", safe)
    view = _view(page).lower()
    fragment = Fragment(
        f'<div class="labkit-{view}" data-labkit="{escape(key)}">{still}</div>'
        f"<script>{start}</script>"
    )
    fragment.state = {"view": view, "code": page, "options": options}
    return fragment


def document(fragment: str, title: str) -> str:
    """Returns a whole page around the fragment."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        f"<title>{escape(title)}</title>"
        "<style>body{max-width:1280px;margin:1.5rem auto;padding:0 1rem;"
        "font-family:system-ui,sans-serif}</style></head>"
        f"<body>\n{fragment}\n</body></html>\n"
    )


@cache
def path_of(module: str) -> Path:
    """Returns the path of a module of JavaScript, whose name is unique among the rooms."""
    (path,) = HOUSE.glob(f"*/*/{module}.mjs")
    return path


@cache
def modules(page: str) -> tuple[Path, ...]:
    """Returns the page's module, after all that it imports."""
    found: dict[Path, None] = {}
    for name in IMPORT.findall(path_of(page).read_text(encoding="utf-8")):
        found |= dict.fromkeys(modules(Path(name).stem))
    return (*found, path_of(page))


def joined(parts: Iterable[Path]) -> str:
    """Returns the modules as one classic script: no `import`, no `export`, no comments."""
    texts = (one.read_text(encoding="utf-8") for one in parts)
    return "\n".join(COMMENT.sub("", EXPORT.sub("", IMPORT.sub("", one))).strip() for one in texts)


@cache
def program(page: str, then: str) -> str:
    """Returns the code of a page, which then does something with its `start`."""
    sheets = [one.with_suffix(".css") for one in modules(page)]
    style = "".join(one.read_text(encoding="utf-8") for one in sheets if one.is_file())
    view = _view(page)
    return (
        f"(() => {{\n{joined(modules(page))}\nconst STYLE = {json.dumps(style)};\n"
        f"const start = (options) => mount({view}, {view.lower()!r}, options, STYLE);\n"
        f"{then}\n}})();\n"
    )


def _view(page: str) -> str:
    """Returns the class of a page: its module exports it last."""
    return str(VIEW.findall(path_of(page).read_text(encoding="utf-8"))[-1])


def packed(content: object, *, ascii_only: bool = True) -> str:
    """Returns plain values packed for a page, which unpacks them again."""
    return gzipped(json.dumps(content, separators=(",", ":"), ensure_ascii=ascii_only))


def gzipped(text: str) -> str:
    """The text as gzip in base64, the same every time; `unpack` of page.mjs undoes it.

    Its last 16 letters hold the checksum and the length of the text: a key for what is inside.
    """
    return base64.b64encode(gzip.compress(text.encode(), 6, mtime=0)).decode("ascii")


@cache
def _packed_code(page: str) -> str:
    return gzipped(program(page, "document.currentScript.start = start;"))
