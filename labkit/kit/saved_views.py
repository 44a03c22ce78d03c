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

from labkit.views.embed import bundle, embedded, style


def html(output: Mapping[str, Any]) -> str | None:
    """The view of this output as a piece of HTML with its code inside; None if it has none."""
    saved = output.get("metadata", {}).get("labkit")
    if saved is None:
        return None
    return embedded(
        saved["view"], tuple(saved["modules"]), saved["options"],
        key=_key(saved), alt=_alt(output), png=base64.b64decode(output["data"]["image/png"]),
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
        f'<script type="application/json" data-labkit-code="{code_name(saved)}">{options}</script>'
    )


def code_name(saved: Mapping[str, Any]) -> str:
    """What the file of its code is called: views of the same modules share one."""
    return str(saved["modules"][-1])


def script(saved: Mapping[str, Any]) -> str:
    """The code of a view, for all `placed` on a page that names it after them."""
    view, modules = saved["view"], tuple(saved["modules"])
    return (
        f"(() => {{\n{bundle(modules)}\nconst CSS = {json.dumps(style(modules))};\n"
        f"""const found = document.querySelectorAll('[data-labkit-code="{code_name(saved)}"]');\n"""
        "for (const one of found) "
        f"mount({view.title()}, {view!r}, JSON.parse(one.textContent), CSS);\n}})();\n"
    )


def _key(saved: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(saved, sort_keys=True).encode()).hexdigest()[:16]


def _alt(output: Mapping[str, Any]) -> str:
    return str(output["metadata"]["image/png"]["alt"])
