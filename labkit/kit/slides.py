"""`labkit slides 10`: a lecture as a deck of slides, one file that opens from a disk.

The notebook's own metadata says which cell begins a slide. What a slide has no room for goes to its
speaker notes: of a long text it shows headings, lists, tables, formulas and the sentences with bold
words; of a long program its output. A heading within a cell begins a slide, too.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from importlib.metadata import distribution
from itertools import pairwise
from pathlib import Path
from typing import Any

from labkit.kinds import LabError, bytes_text
from labkit.kit import saved_views
from labkit.plain import write_text
from labkit.publish import chosen
from labkit.views.figure import SHEET, picture_class

try:
    import mistune
    from latex2mathml.converter import convert
    from pygments import formatters, highlight, lexers
except ModuleNotFoundError as fault:
    raise LabError(f"{fault.name} is not installed here: make setup-site, and try again.") from None

HERE = Path(__file__).resolve().parent
REVEAL = Path(str(distribution("sphinx-revealjs").locate_file("sphinx_revealjs/_static/revealjs")))
STYLES = (REVEAL / "dist/reveal.css", HERE / "slides.css", SHEET)
SCRIPTS = (REVEAL / "dist/reveal.js", REVEAL / "plugin/notes/notes.js", HERE / "slides.js")
WORDS, LINES = 50, 25  # of a cell's paragraphs; of a program alone, a quarter above its output
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
SENTENCE = re.compile(r"(?<=[.!?:]) +(?=[A-Z*`(])|(?<=[.!?:]\*\*) +")
PARAGRAPH = re.compile(r"(?![-*] |\d+\. )(\*\*|`|\w|[(“\"])")
IDLE = re.compile(r"your guess|^(Writing|Overwriting|Appending to) ")  # outputs that say nothing


@dataclass
class Slide:
    """What is seen, and what the speaker reads; `below` the slide before, or beside it."""

    below: bool
    title: str
    seen: str = ""
    notes: str = ""

    def html(self) -> str:
        """The slide, with its section's title where it has none of its own."""
        title = "" if self.seen.startswith("<h") else f'<h2 class="again">{self.title}</h2>'
        return f'<section>{title}{self.seen}<aside class="notes">{self.notes}</aside></section>'


def main(names: Sequence[str], to: Path) -> int:
    """Write the decks of the named notebooks, or of all, into a folder."""
    to.mkdir(parents=True, exist_ok=True)
    for path in chosen(names, HERE.parents[1] / "notebooks"):
        made = slides(json.loads(path.read_text("utf-8"))["cells"])
        file = write_text(to / f"{path.stem}.html", page(made))
        print(f"{file}: {len(made)} slides, {bytes_text(file.stat().st_size)}")
    return 0


def slides(cells: Sequence[Any]) -> list[Slide]:
    """The slides of a notebook, in order."""
    found = [Slide(below=False, title="")]
    for cell in cells:
        kind = cell["metadata"].get("slideshow", {}).get("slide_type")
        text, prose = "".join(cell["source"]), cell["cell_type"] == "markdown"
        if kind in ("skip", "notes"):
            found[-1].notes += (_html(text) if prose else _pre(text, "code")) * (kind == "notes")
            continue
        for part in _parts(text) if prose else [text]:
            heading = re.match(r"(#+) (.*)", part) if prose else None
            if heading:
                found.append(Slide(len(heading[1]) > 2, _html(heading[2])[3:-5]))
            elif kind == "subslide" or (kind == "slide" and not prose):
                found.append(Slide(kind == "subslide", found[-1].title))
            seen, notes = _prose(part) if prose else _program(cell, part)
            if prose and kind == "slide" and not heading:  # it ends the section before
                seen, notes = "", _html(part)
            found[-1].seen += f'<div class="fragment">{seen}</div>' if kind == "fragment" else seen
            found[-1].notes += notes
    return found[1:]


def page(made: Sequence[Slide]) -> str:
    """The deck as one page, with reveal.js inside."""
    parts = "".join(("" if one.below else "</section><section>") + one.html() for one in made)
    style, script = ("\n".join(f.read_text("utf-8") for f in files) for files in (STYLES, SCRIPTS))
    script = script.replace("</script", "<\\/script")
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f"<title>{re.sub('<.*?>', '', made[0].title)}</title><style>{style}</style></head>"
        '<body><div class="reveal"><div class="slides">'
        f"{parts.removeprefix('</section>')}</section></div></div>\n"
        f"<script>{script}</script></body></html>\n"
    )


def _parts(text: str) -> list[str]:
    hidden = FENCE.sub(lambda found: "`" * len(found[0]), text)
    cuts = [0, *(found.start() for found in re.finditer(r"^#+ ", hidden, re.MULTILINE)), len(text)]
    return [text[start:end].strip() for start, end in pairwise(cuts) if text[start:end].strip()]


def _prose(text: str) -> tuple[str, str]:
    """What of a text is seen, and its notes: the whole, if something is left out."""
    fences = FENCE.findall(text)
    blocks = [b for b in re.split(r"\n\n+", FENCE.sub("```", text)) if "**Previous:**" not in b]
    blocks = [fences.pop(0) if b == "```" else b for b in blocks]
    paragraphs = [b for b in blocks if PARAGRAPH.match(b) and not b.startswith("```")]
    if len(" ".join(paragraphs).split()) <= WORDS:
        return _html("\n\n".join(blocks)), ""
    kept = {one: _important(SENTENCE.split(one)) for one in paragraphs}
    if not any(kept.values()):
        kept[paragraphs[0]] = SENTENCE.split(paragraphs[0])[:2]
    return _html("\n\n".join(" ".join(kept.get(b, [b])) for b in blocks)), _html(text)


def _important(sentences: list[str]) -> list[str]:
    """Those with something in bold, and what follows a question to predict or a bold heading."""
    kept: list[str] = []
    for sentence in sentences:
        if sentence.startswith("**Exercise"):
            break
        if "**" in sentence or "**Predict" in " ".join(kept) or "".join(kept[-1:]).endswith("**"):
            kept.append(sentence)
    return kept


def _program(cell: Any, code: str) -> tuple[str, str]:
    """The same of a program and its output: of a view that plays, or a single line, no program."""
    outputs = [_output(output) for output in cell["outputs"]]
    views = [output for output in outputs if "data-labkit" in output]
    shown, program = "".join(views or outputs), _pre(code.strip(), "code")
    lines = [line for line in code.split("\n") if line.strip()]
    own = [line for line in lines if not line.startswith(("import ", "from "))]
    alone = views or len(lines) > (LINES // 4 if shown else LINES) or (shown and len(own) == 1)
    return (shown, program) if alone else (program + shown, "")


def _output(output: Any) -> str:
    data = {kind: "".join(text) for kind, text in output.get("data", {}).items()}
    plain = "".join(output.get("text", data.get("text/plain", "")))
    if IDLE.search(plain):
        return ""
    html = saved_views.html(output) or data.get("text/html", "")
    source = html.startswith("<pre")  # as large as it fits
    if html and not source:
        return f'<div class="output" data-prevent-swipe>{html}</div>'
    if "image/png" in data:
        png = f"data:image/png;base64,{data['image/png'].strip()}"
        shown = picture_class(output["metadata"])
        return f'<figure><img{shown} alt="{escape(plain)}" src="{png}"></figure>'
    return _pre(plain.rstrip(), "code" if source else "text")


def _pre(text: str, kind: str) -> str:
    lines = text.split("\n")
    size = f"--wide: {max(map(len, lines))}; --tall: {len(lines)}"
    lexer = lexers.PythonLexer(stripall=True) if kind == "code" else lexers.TextLexer(stripnl=False)
    inside = highlight(text, lexer, formatters.HtmlFormatter(nowrap=True)).rstrip()
    return f'<pre class="{kind}" style="{size}">{inside}</pre>'


class _Renderer(mistune.HTMLRenderer):
    def block_math(self, text: str) -> str:
        return f"<p>{convert(text.strip(), display='block')}</p>"

    def inline_math(self, text: str) -> str:
        return str(convert(text))

    def block_code(self, code: str, info: str | None = None) -> str:
        return _pre(code.rstrip(), "code" if info == "python" else "text")

    def link(self, text: str, url: str, title: str | None = None) -> str:
        return super().link(text, url, title) if "://" in url else text  # no notebooks beside it


_html: Any = mistune.create_markdown(renderer=_Renderer(), plugins=["math", "table"])
