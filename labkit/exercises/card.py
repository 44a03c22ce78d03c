"""The card of a task: a verdict, and below it hints and the solution, opened one by one.

They are `details` of HTML: they open without a script and without the kernel, by keyboard, in a
saved page and in a notebook that is not trusted. Only copying and counting need a script.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import dataclass
from html import escape

from labkit.progress import SILENT, progress
from labkit.shown import coloured

FAINT = "font-size: 0.93em; margin: 0.3em 0"
BUTTON = (
    "cursor: pointer; width: fit-content; padding: 1px 10px; border: 1px solid currentColor; "
    "border-radius: 4px; list-style-position: inside"
)
ROW = "display: flex; flex-wrap: wrap; gap: 0.4em 0.8em; align-items: flex-start; margin: 0.4em 0"
CLOSED = "padding: 2px 0; opacity: 0.8"
# A script makes the button, so a page without scripts has no button that does nothing.
COPY = (
    "if (this.querySelector('button')) return; const code = this.querySelector('pre');"
    "const copy = document.createElement('button'); copy.type = 'button'; copy.ariaLive = 'polite';"
    "copy.textContent = 'copy'; copy.style.float = 'right'; code.before(copy);"
    "copy.onclick = () => navigator.clipboard.writeText(code.textContent)"
    ".then(() => { copy.textContent = 'copied' })"
)
# A page tells the kernel which hints are read. While the kernel is busy the message waits.
OPENED = "this.open && window.dispatchEvent(new CustomEvent('labkit', {detail: {...this.dataset}}))"


@dataclass(frozen=True)
class Help:
    """What stands below a verdict. `solution` is empty as long as it is closed."""

    task: str
    place: str
    """Such as "Task 4 of 7 in this lecture"."""
    hints: tuple[str, ...]
    seen: int
    solution: str = ""
    kernel: str = ""
    """Who hears that a hint was opened: what `live.listen` has returned."""


def card(
    verdict: tuple[str, str, str], text: str, code: str = "", below: Help | None = None
) -> str:
    """A piece of HTML: sign, words and border of the verdict, what it says, and the help."""
    sign, words, border = verdict
    more = f"{_solution(code, ' open') if code else ''}{_below(below) if below else ''}"
    return (
        f'<div style="border-left: 6px {border}; padding-left: 0.8em">'
        f'<div role="status"><span aria-hidden="true">{sign}</span> <strong>{words}</strong> '
        f"{_broken(text)}</div>{more}</div>"
    )


def _below(given: Help) -> str:
    hints = ""
    for number in range(len(given.hints), 0, -1):  # each inside the one before: so in their order
        shown = " open" if number <= given.seen else ""
        data = f'data-kernel="{given.kernel}" data-task="{escape(given.task)}" data-hint="{number}"'
        data += f' ontoggle="{OPENED}"'
        hints = (
            f'<details{shown} {data}><summary style="{BUTTON}">Hint {number} of {len(given.hints)}'
            f'</summary><p style="margin: 0.3em 0">{_broken(given.hints[number - 1])}</p>{hints}'
            "</details>"
        )
    closed = f'<span style="{CLOSED}">The solution opens after an attempt.</span>'
    solution = _solution(given.solution) if given.solution else closed
    return f'<p style="{FAINT}">{escape(given.place)}</p><div style="{ROW}">{hints}{solution}</div>'


def _solution(code: str, shown: str = "") -> str:
    """Code with colours, and a button that copies it."""
    return (
        f'<details{shown} ontoggle="{COPY}"><summary style="{BUTTON}">Solution</summary>'
        f'<pre tabindex="0" style="overflow-x: auto">{coloured(code)}</pre></details>'
    )


def _broken(text: str) -> str:
    return re.sub(r"`([^`<>]+)`", r"<code>\1</code>", escape(text).replace("\n", "<br>"))


@contextmanager
def checking(seconds: float | None) -> Iterator[None]:
    """While a judge works for more than a second, the page says so, and when it stops."""
    from labkit.views import live

    with progress(f"Checking{f', stops after {seconds:g} s' if seconds else ''} …") as advance:
        # In the context of this cell, whose output it is in.
        timer = threading.Timer(SILENT, copy_context().run, [advance, 0])
        timer.daemon = True
        if live.shows_live():
            timer.start()
        try:
            yield
        finally:
            timer.cancel()
            if timer.ident:
                timer.join()
