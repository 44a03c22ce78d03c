"""Views that play, from the pictures of a saved notebook.

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

from labkit.views.embed import embedded, program


def html(output: Mapping[str, Any]) -> str | None:
    """Returns the view of an output as HTML with its code inside, or None without a view."""
    saved = output.get("metadata", {}).get("labkit")
    if saved is None:
        return None
    data, alt, png = output["data"], "".join(output["data"]["text/plain"]), None
    if "image/png" in data:
        alt, png = output["metadata"]["image/png"]["alt"], base64.b64decode(data["image/png"])
    return embedded(saved["code"], saved["options"], key=_key(saved), alt=alt, png=png)


def placed(saved: Mapping[str, Any], still: str) -> str:
    """Returns the view without its code, over the HTML of its still picture."""
    key = _key(saved)
    options = json.dumps({"key": key, **saved["options"]}).replace("<", "\\u003c")
    return (
        f'<div class="labkit-{saved["view"]}" data-labkit="{escape(key)}">{still}</div>'
        f'<script type="application/json" data-labkit-code="{saved["code"]}">{options}</script>'
    )


def script(saved: Mapping[str, Any]) -> str:
    """Returns the code of a view, for a page that loads it after all `placed` views."""
    found = f"""document.querySelectorAll('[data-labkit-code="{saved["code"]}"]')"""
    return program(saved["code"], f"for (const one of {found}) start(JSON.parse(one.textContent));")


def _key(saved: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(saved, sort_keys=True).encode()).hexdigest()[:16]
