"""The map of the course as HTML: a column for each part, a link for each lecture."""

import re
from html import escape
from itertools import groupby
from typing import Any

# Readable on the ground of any theme; what is solved is told in words, too.
SOLVED, LEFT = "#009E73", "rgba(128, 128, 128, 0.35)"
GRID = "display: grid; grid-template-columns: repeat(auto-fit, minmax(165px, 1fr)); gap: 6px 14px"
CARD = "margin: 0 0 7px; line-height: 1.25"
SMALL = "font-size: 0.85em"
WAYS_SECTION = "00_start_here.ipynb#6-·-Ways-through-the-course"


def course_map(course: Any) -> str:
    """All of it: the parts, the ways, and what this machine is."""
    files = {one.title.partition(" ")[0]: one.file for one in course.lectures}
    parts = groupby(course.lectures, key=lambda one: one.part)
    columns = "".join(
        f"<div><p><strong>{escape(part.replace(',', ' ·'))}</strong></p>"
        f"{''.join(map(_card, lectures))}</div>"
        for part, lectures in parts
    )
    ways = [
        f"<li><strong>{name}</strong>: {_linked(plan, files)}</li>" for name, plan in course.ways
    ]
    left = next((one for one in course.lectures if one.solved < one.tasks), course.lectures[-1])
    ways.append(
        f'<li><strong>alone</strong>: your next lecture is <a href="{left.file}">'
        f"{escape(left.title)}</a></li>"
    )
    return (
        f'<div class="labkit"><p>{escape(course.machine)}</p><div style="{GRID}">{columns}</div>'
        f'<p>Three ways, with minutes (<a href="{WAYS_SECTION}">more</a>):</p>'
        f"<ul>{''.join(ways)}</ul></div>"
    )


def _card(one: Any) -> str:
    share = round(100 * one.solved / one.tasks) if one.tasks else 0
    bar = f"linear-gradient(to right, {SOLVED} {share}%, {LEFT} {share}%)"
    solved = f"{one.solved} of {one.tasks} solved" if one.tasks else ""
    facts = filter(None, (f"{one.minutes} min", solved, one.uses))
    return (
        f'<div style="{CARD}"><a href="{one.file}">{escape(one.title)}</a>'
        f'<div style="height: 4px; margin: 3px 0; background: {bar}"></div>'
        f'<span style="{SMALL}" title="Needs: {escape(one.needs)}">'
        f"{escape(' · '.join(facts))}</span></div>"
    )


def _linked(plan: str, files: dict[str, str]) -> str:
    """A plan such as "03, sections 1 and 2 (8) · 10 (60)", its lectures as links."""

    def link(found: re.Match[str]) -> str:
        number = found[0]  # of a folder with some of the lectures, the others are no links
        return f'<a href="{files[number]}">{number}</a>' if number in files else number

    return re.sub(r"(?:(?<=^)|(?<=· ))\d\db?", link, escape(plan))
