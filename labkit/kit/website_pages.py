"""The pages of the site that are no notebooks: start, programs, library, hardware, recordings."""

import ast
import inspect
import json
import os
import re
from collections.abc import Collection, Iterable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

from labkit import known_hardware
from labkit.kinds import LabError, bytes_text, seconds_text

ABOUT_IT = ("CODE_OF_CONDUCT.md", "SUPPORT.md")
LICENSE = "https://creativecommons.org/licenses/by/4.0/"
PROFILE = "https://bioschemas.org/profiles/TrainingMaterial/1.0-RELEASE"
ABOUT = (
    "A JupyterLab course on distributed deep-learning training: data, tensor and pipeline "
    "parallelism, collectives, clusters, and the frameworks of today."
)
MORE = {
    "More": ("notebooks/check_yourself", "notebooks/capstone", "notebooks/glossary"),
    "Reference": ("programs", "library", "hardware", "recordings"),
}
# Whose words end here. The search leaves out tags, and would read the next word as one with this.
ENDS = re.compile(r"(</(?:a|div|h\d|label|li|p|strong|summary|td|th)>)(?=<)")
LINE = 88  # letters of code that a page has room for
SPECIAL = re.compile(r"([*_<>\[\]$#|])(?=[^`]*(?:`[^`]*`[^`]*)*$)")


def relinked(text: str, page: Path, known: Collection[Path]) -> str:
    """Returns a page's Markdown with links to pages of the web site. Other links become words."""

    def link(found: re.Match[str]) -> str:
        words, target = found.groups()
        path, *_ = target.partition("#")
        to = Path(os.path.normpath(page.parent / path))
        if "://" in target or not path or to in known:
            return found[0]
        if to.parent == Path("notebooks/programs") or to == Path("notebooks/programs"):
            return f"[{words}](/programs.md{f'#{to.name}' if to.suffix else ''})"
        if to.parent == Path("notebooks/recordings"):
            return f"[{words}](/recordings.md)"
        return words

    return re.sub(r"(?<!!)\[([^\[\]]+)\]\(([^)\s]+)\)", link, text)


def linked(html: str, folder: str = "") -> str:
    """Returns HTML for Sphinx: links to notebooks lead to pages, and words are apart."""
    from docutils.nodes import make_id

    def page(found: re.Match[str]) -> str:
        return f'href="{folder}{found[1]}.html{f"#{make_id(found[2])}" if found[2] else ""}"'

    return ENDS.sub(r"\1\n", re.sub(r'href="([\w.-]+)\.ipynb(?:#([^"]*))?"', page, html))


def written(root: Path) -> list[Path]:
    """Returns the files that are pages as they are: the lectures, and what lecturers need."""
    found = [*root.glob("notebooks/*.ipynb"), *(root / "docs").rglob("*.md")]
    found += [*(root / "docs").rglob("*.ipynb"), *(root / name for name in ABOUT_IT)]
    return sorted(path.relative_to(root) for path in found)


def pages(root: Path) -> dict[str, str]:
    """Returns the text of each generated page, by its name."""
    docs = [one.with_suffix("").as_posix() for one in written(root) if one.parts[0] != "notebooks"]
    made = {"index": start(root, docs), "programs": programs(root), "library": library(root)}
    return {**made, "hardware": hardware()}


def start(root: Path, docs: Iterable[str]) -> str:
    """Returns the first page: what the course is, its map, and the order of all pages."""
    from labkit.exercises.course import course

    found = course(root / "notebooks")
    parts: dict[str, list[str]] = {}
    for one in found.lectures:
        name = f"Part {one.part.replace(',', ' ·')}"
        parts.setdefault(name, []).append(f"{one.title} <notebooks/{Path(one.file).stem}>")
    trees = {**parts, **MORE, "Guides": docs}
    order = "\n\n".join(
        f"```{{toctree}}\n:hidden:\n:caption: {caption}\n\n{chr(10).join(names)}\n```"
        for caption, names in trees.items()
    )
    meta = json.dumps(_metadata(found.lectures)).replace("</", "<\\/")
    return (
        "# Distributed deep-learning training\n\n**Watch the ring add up four arrays, then open "
        "[00 · Start here](notebooks/00_start_here.ipynb).** Every page plays without a kernel and "
        "without a network; to run the cells, get the course and type `make lab`.\n\n"
        f"```{{raw}} html\n{course_map(root, 'notebooks/')}\n"
        f'<script type="application/ld+json">{meta}</script>\n```\n\n{order}\n'
    )


def course_map(root: Path, folder: str = "") -> str:
    """Returns the map of the course with the ring that plays; no task is solved."""
    from labkit.exercises.course import course

    found = course(root / "notebooks")
    unsolved = tuple(replace(lecture, solved=0, tasks=0) for lecture in found.lectures)
    shown = replace(found, lectures=unsolved, machine="")
    return linked(shown._repr_mimebundle_()["text/html"], folder)


def _metadata(lectures: Iterable[Any]) -> dict[str, Any]:
    """Returns the course as a learning resource for search engines (Bioschemas)."""

    def resource(name: str, minutes: int) -> dict[str, Any]:
        known = {"@type": "LearningResource", "name": name, "inLanguage": "en", "license": LICENSE}
        return {**known, "timeRequired": f"PT{minutes}M"}

    parts = [
        resource(lecture.title, lecture.minutes)
        | {"url": f"notebooks/{Path(lecture.file).stem}.html"}
        for lecture in lectures
    ]
    return {
        "@context": "https://schema.org",
        "http://purl.org/dc/terms/conformsTo": {"@type": "CreativeWork", "@id": PROFILE},
        **resource("labkit: distributed deep-learning training", sum(o.minutes for o in lectures)),
        "description": ABOUT,
        "keywords": "distributed training, deep learning, collectives, TensorFlow, PyTorch, MPI",
        "learningResourceType": ["Jupyter notebook", "tutorial"],
        "educationalLevel": "graduate",
        "hasPart": parts,
    }


def programs(root: Path) -> str:
    """Returns the page with the programs to take home."""
    text = "# Programs\n\nWhole programs without labkit, to take home: each runs by itself.\n\n"
    for path in sorted((root / "notebooks" / "programs").glob("*.py")):
        text += f"## {path.name}\n\n````python\n{path.read_text('utf-8').rstrip()}\n````\n\n"
    return text


def library(root: Path) -> str:
    """Returns the page on what the lectures use of labkit, from the docstrings."""
    used: dict[str, set[str]] = {}
    for path in sorted((root / "notebooks").glob("*.ipynb")):
        for name in _names(path):
            used.setdefault(name, set()).add(path.stem)
    text, last = "# The library\n\nWhat the lectures use of labkit, and where.\n\n", ""
    for name, thing, where in _things(used):
        room = name.rpartition(".")[0]
        text += f"## {room}\n\n" if room != last else ""
        text += _entry(name, thing, sorted(where))
        last = room
    return text


def _names(path: Path) -> set[str]:
    """Returns the dotted names of labkit in the code of a notebook."""
    known, found = {"labkit": "labkit"}, set()
    for cell in json.loads(path.read_text("utf-8"))["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] != "code" or source.startswith(("%", "!")):
            continue
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("labkit"):
                known_as = {a.asname or a.name: f"{node.module}.{a.name}" for a in node.names}
                known |= known_as
                found |= set(known_as.values())
            elif isinstance(node, ast.Attribute):
                whole = ast.unparse(node)
                first, _, rest = whole.partition(".")
                if re.fullmatch(r"[\w.]+", whole) and first in known:
                    found.add(f"{known[first]}.{rest}")
    return found


def _things(used: dict[str, set[str]]) -> list[tuple[str, Any, set[str]]]:
    """Returns the functions and classes with these names, under the shortest, with their users."""
    found: dict[int, tuple[str, Any, set[str]]] = {}
    for name in sorted(used, key=lambda one: (one.count("."), one)):
        thing, path = __import__("labkit"), ["labkit"]
        for part in name.split(".")[1:]:
            if not isinstance(thing, ModuleType) or not hasattr(thing, part):
                break
            thing = getattr(thing, part)
            path.append(part)
        if callable(thing) and inspect.getdoc(thing):
            found.setdefault(id(thing), (".".join(path), thing, set()))[2].update(used[name])
    return sorted(found.values(), key=lambda one: (one[0].rpartition(".")[0], one[0].lower()))


def _entry(name: str, thing: Any, where: list[str]) -> str:
    called = type(thing).__call__ if isinstance(thing, ModuleType) else thing
    links = " · ".join(f"[{one.split('_')[0]}](notebooks/{one}.ipynb)" for one in where)
    text = f"### {name}\n\n{_signature(name, called)}Used in {links}\n\n{_prose(called)}"
    if isinstance(thing, type):
        for public, member in vars(thing).items():
            call = getattr(member, "fget", member)
            if not public.startswith("_") and inspect.isfunction(call) and call.__doc__:
                text += f"{_signature(f'.{public}', member)}{_prose(call)}"
    return text


def _signature(name: str, thing: Any) -> str:
    if isinstance(thing, property) or thing is LabError:
        return f"```python\n{name}\n```\n\n"
    given = [
        parameter.replace(annotation=parameter.empty)
        for parameter in inspect.signature(thing).parameters.values()
        if parameter.name != "self" and not parameter.name.startswith("_")
    ]
    call = f"{name}{inspect.Signature(given)}"
    if len(call) > LINE:
        call = f"{name}(\n    " + ",\n    ".join(map(str, given)) + "\n)"
    return f"```python\n{call}\n```\n\n"


def _prose(thing: Any) -> str:
    """Returns a docstring with its examples as code."""

    def block(text: str) -> str:
        if not text.startswith(">>>"):
            return SPECIAL.sub(r"\\\g<0>", text)
        return "```pycon\n" + re.sub(r"\s*# doctest:.*", "", text) + "\n```"

    return "".join(f"{block(one)}\n\n" for one in re.split(r"\n\s*\n", inspect.getdoc(thing) or ""))


def hardware() -> str:
    """Returns the page on known hardware, with the source of each number."""
    gpus = [
        (name, bytes_text(one.memory), f"{bytes_text(one.bandwidth)}/s",
         f"{one.flops / 1e12:g} TFLOP/s", f"{one.links} × {one.link}", one.kind)
        for name, one in known_hardware.GPUS.items()
    ]  # fmt: skip
    links = [
        (name, f"{bytes_text(one.bandwidth)}/s",
         seconds_text(one.latency) if one.latency else "", one.about, one.kind)
        for name, one in known_hardware.LINKS.items()
    ]  # fmt: skip
    return (
        "# Known hardware\n\nPublished numbers, each with its source and the day it was read. "
        "FLOP/s are dense and 16-bit with float32 sums; bandwidth is of one direction.\n\n"
        f"## GPUs\n\n{_table(['GPU', 'memory', 'of its memory', '16-bit', 'links', 'kind'], gpus)}"
        f"## Links\n\n{_table(['link', 'bandwidth', 'latency', 'what', 'kind'], links)}"
    )


def _table(head: list[str], rows: Iterable[tuple[object, ...]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(map(str, line))} |\n" for line in lines) + "\n"
