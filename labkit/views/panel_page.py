"""The device panel as HTML that needs nothing else: its code, its style and its data are inside.

No CDN and no request: the same piece of HTML works in JupyterLab, in an exported notebook and in a
file on a disk. Without JavaScript, or without trust, the picture or the sentence inside it stays.
"""

from __future__ import annotations

import base64
import gzip
import json
import re
from functools import cache
from html import escape
from pathlib import Path
from typing import Any

from labkit.views.panel_data import packed

__all__ = ["bundle", "document", "page", "style"]

STATIC = Path(__file__).parent / "static"
# Each before those that use it: joined in this order they are one program.
MODULES = (
    "panel_hub",
    "panel_text",
    "panel_time",
    "panel_unpack",
    "panel_table",
    "panel_store",
    "panel_trace",
    "panel_lanes",
    "panel_spans",
    "panel_raster",
    "panel_draw",
    "panel_theme",
    "panel_words",
    "panel_sight",
    "panel_hands",
    "panel_parts",
    "panel",
)
# A saved notebook holds this once for every panel: 32 kB packed, 80 kB as it is. A script element
# asks for no permission that this script has not been given already, unlike a blob or `eval`.
START = """(async () => {
  const bytes = Uint8Array.from(atob(CODE), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  const script = document.createElement("script");
  script.textContent = await new Response(stream).text();
  document.head.append(script);
  script.start(OPTIONS);
  script.remove();
})();"""
IMPORT = re.compile(r"^import\s[^;]*;\n", re.MULTILINE)
EXPORT = re.compile(r"^export (?=(?:async )?(?:function|const|class)\b)", re.MULTILINE)
# Comments are for readers of the modules; in every notebook they would only be weight.
COMMENT = re.compile(r"^[ \t]*//.*\n", re.MULTILINE)


def page(
    recording: Any | None,
    *,
    key: str,
    live: bool,
    alt: str,
    png: bytes | None = None,
    stamp: str,
) -> str:
    """A piece of HTML that shows a recording, or the live panel `key`, or both.

    `stamp` says where the numbers are from; `alt` says in words what is there to see.
    """
    options = {
        "key": key,
        "live": live,
        "stamp": stamp,
        "alt": alt,
        "data": None if recording is None else packed(recording),
    }
    start = START.replace("CODE", json.dumps(_packed_code())).replace(
        "OPTIONS", _script_safe(options)
    )
    return (
        f'<div class="labkit-panel" data-labkit-panel="{escape(key)}">{_fallback(alt, png)}</div>'
        f"<script>{start}</script>"
    )


def document(fragment: str, title: str) -> str:
    """A whole page around the fragment."""
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
def bundle(modules: tuple[str, ...] = MODULES) -> str:
    """The modules as one classic script: no `import`, no `export`, no comments."""
    parts = []
    for name in modules:
        text = (STATIC / f"{name}.mjs").read_text(encoding="utf-8")
        parts.append(COMMENT.sub("", EXPORT.sub("", IMPORT.sub("", text))).strip())
    return "\n".join(parts)


@cache
def style() -> str:
    """The style sheet, for the panel's own shadow tree."""
    return (STATIC / "panel.css").read_text(encoding="utf-8")


@cache
def _packed_code() -> str:
    code = (
        f"(() => {{\n{bundle()}\nconst CSS = {json.dumps(style())};\n"
        "document.currentScript.start = (options) => mountAll(options, CSS);\n})();"
    )
    return base64.b64encode(gzip.compress(code.encode(), 9, mtime=0)).decode("ascii")


def _fallback(alt: str, png: bytes | None) -> str:
    if png is None:
        return f"<p>{escape(alt)}</p>"
    coded = base64.b64encode(png).decode("ascii")
    return f'<img alt="{escape(alt)}" style="max-width:100%" src="data:image/png;base64,{coded}">'


def _script_safe(value: Any) -> str:
    """JSON that cannot end the script which it is in."""
    return json.dumps(value).replace("</", "<\\/").replace("<!--", "<\\u0021--")
