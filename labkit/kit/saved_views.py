"""The views that play, of a notebook that was saved with their pictures.

>>> for output in cell["outputs"]:                          # doctest: +SKIP
...     page += saved_views.html(output) or ""

The picture's metadata holds the view without its code (`labkit.views.embed.with_state`). A page of
its own takes `html`; pages that share the code take `placed`, and load `script` of each view once.
"""

import base64
import hashlib
import json
from collections.abc import Mapping
from html import escape
from typing import Any

from labkit.views import explorer, panel_page, pipeline, player_page, traffic, updates_figure
from labkit.views.embed import bundle, embedded, style

VIEWS = (
    panel_page.MODULES, pipeline.MODULES, player_page.MODULES, traffic.MODULES,
    updates_figure.SERVER_MODULES,
)  # fmt: skip


def html(output: Mapping[str, Any]) -> str | None:
    """The view of this output as a piece of HTML with its code inside; None if it has none."""
    saved = output.get("metadata", {}).get("labkit")
    if saved is None:
        return None
    return embedded(
        saved["view"], modules(saved["code"]), saved["options"],
        key=_key(saved), alt=output["metadata"]["image/png"]["alt"],
        png=base64.b64decode(output["data"]["image/png"]),
    )  # fmt: skip


def placed(output: Mapping[str, Any], still: str) -> str | None:
    """The same without the code, over the HTML of its still picture."""
    saved = output.get("metadata", {}).get("labkit")
    if saved is None:
        return None
    key = _key(saved)
    options = json.dumps({"key": key, **saved["options"]}).replace("<", "\\u003c")
    return (
        f'<div class="labkit-{saved["view"]}" data-labkit="{escape(key)}">{still}</div>'
        f'<script type="application/json" data-labkit-code="{saved["code"]}">{options}</script>'
    )


def modules(code: str) -> tuple[str, ...]:
    """All modules of a view, whose last one is called like this."""
    others = (one for one in VIEWS if one[-1] == code)
    return next(others, None) or explorer(code.removeprefix("explore_"))


def script(saved: Mapping[str, Any]) -> str:
    """The code of a view, for all `placed` on a page that loads it after them."""
    view, of = saved["view"], modules(saved["code"])
    return (
        f"(() => {{\n{bundle(of)}\nconst CSS = {json.dumps(style(of))};\n"
        f"""const found = document.querySelectorAll('[data-labkit-code="{saved["code"]}"]');\n"""
        "for (const one of found) "
        f"mount({view.title()}, {view!r}, JSON.parse(one.textContent), CSS);\n}})();\n"
    )


def _key(saved: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(saved, sort_keys=True).encode()).hexdigest()[:16]
