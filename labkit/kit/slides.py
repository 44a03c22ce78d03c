"""`labkit slides 22`: a lecture as a deck of slides, one file that opens from a disk.

The notebook's own metadata says which cell begins a slide, and a heading within a cell begins one,
too. Tasks are shown whole, and the result of a guess one key after its question, whatever the
metadata say. Slides with little on them are put together. What a slide has no room for goes to its
speaker notes: sentences that are not questions, have no bold words and do not lead on; a program
that draws a picture or is long.
"""

import base64
import json
import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from html import escape
from importlib.metadata import distribution
from itertools import groupby, pairwise
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

    REVEAL = Path(
        str(distribution("sphinx-revealjs").locate_file("sphinx_revealjs/_static/revealjs"))
    )
except ModuleNotFoundError as fault:
    raise LabError(
        f"{fault.name} is not installed here: make setup-website, and try again."
    ) from None

HERE = Path(__file__).resolve().parent
STYLES = (REVEAL / "dist/reveal.css", HERE / "slides.css", SHEET)
SCRIPTS = (REVEAL / "dist/reveal.js", REVEAL / "plugin/notes/notes.js", HERE / "slides.js")
# In lines of 75 letters, as large as text is beside a picture: what a slide has room for, and below
# what it shares one with its neighbour.
FULL, LITTLE, PROSE = 14.0, 8.5, 6.0
BESIDE = 1.6  # a picture that is less wide for its height leaves room for text
LINES = 25  # of a program alone; a quarter of them above its output
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
SENTENCE = re.compile(r"(?<=[.!?:]) +(?=[A-Z*`(])")
LEANS = re.compile(
    r"((Do|Does|Is|Are|Has|Did|Can) (it|they|that|this)|"
    r"It|They|This|That|These|Those|Then|But|So|And|There|Here|Both|Its|Their|Or)\b"
)
PARAGRAPH = re.compile(r"(?![-*] |\d+\. )(\*\*|`|\w|[(“\"*])")
IDLE = re.compile(
    r"^(Your guess first|Writing |Overwriting |Appending to )"
)  # outputs that say nothing
CARD = re.compile(r"[○✗] .*?(?:Difficulty \d of 3\. |\nQuestion: )(.*)", re.DOTALL)
IMPORTS = re.compile(r"^(import|from) .*$\n?", re.MULTILINE)
GUESS, ANSWER = "labkit.predict(", ".against("
VIEW, TASK = "data-labkit=", 'class="task"'
PLACE = re.compile(r">(Task \d+ of \d+)\b")


@dataclass
class Item:
    """A text, program, output or picture on a slide, and about how many lines it takes."""

    seen: str
    lines: float
    prose: str = ""
    """In Markdown, what may be shortened."""
    shape: float = 0
    """Of a picture, its width over its height."""
    waits: bool = False
    """Seen one key later, if something stands above it."""
    spare: bool = False
    """For the speaker, unless the slide has much room: a program of an output, words after it."""

    @property
    def drawn(self) -> bool:
        """Whether it is a picture or a view."""
        return self.shape > 0 or VIEW in self.seen


@dataclass
class Slide:
    """What the audience sees and the speaker reads, `below` the last slide or beside it."""

    below: bool
    title: str
    parts: list[Item] = field(default_factory=list)
    notes: str = ""

    @property
    def lines(self) -> float:
        """About how many lines it takes."""
        return sum(part.lines for part in self.parts if not part.spare)

    @property
    def asks(self) -> bool:
        """Whether something on it waits."""
        return any(part.waits for part in self.parts)

    @property
    def seen(self) -> str:
        """What the audience sees, in HTML: a high picture beside its text, a wide one below."""
        title, *rest = self.parts
        if not title.seen.startswith("<h"):
            title, rest = Item(f'<h2 class="again">{self.title}</h2>', 0), self.parts
        high = [part for part in rest if 0 < part.shape < BESIDE]
        if len(high) == 1 and len(rest) > 1:
            text = _in_order([part for part in rest if part is not high[0]])
            return f'{title.seen}<div class="beside"><div>{text}</div>{_in_order(high, text)}</div>'
        return title.seen + _in_order(rest)

    def html(self) -> str:
        """Returns the slide with its notes."""
        return f'<section>{self.seen}<aside class="notes">{self.notes}</aside></section>'


def _in_order(parts: Sequence[Item], above: str = "") -> str:
    shown = ""
    for waits, some in groupby(parts, lambda part: part.waits):
        inside = "".join(part.seen for part in some)
        shown += f'<div class="fragment">{inside}</div>' if waits and (shown or above) else inside
    return shown


def main(names: Sequence[str], to: Path) -> int:
    """Write the decks of the named notebooks, or of all, into a folder."""
    to.mkdir(parents=True, exist_ok=True)
    for path in chosen(names, HERE.parents[1] / "notebooks"):
        made = slides(json.loads(path.read_text("utf-8"))["cells"])
        file = write_text(to / f"{path.stem}.html", page(made))
        print(f"{file}: {len(made)} slides, {bytes_text(file.stat().st_size)}")
    return 0


def slides(cells: Sequence[Any]) -> list[Slide]:
    """Returns the slides of a notebook, in order."""
    deck = _Deck()
    for cell, after in pairwise([*cells, {"source": "", "cell_type": ""}]):
        text, prose = "".join(cell["source"]), cell["cell_type"] == "markdown"
        kind = deck.kind(cell, after)
        if task := _task(cell):
            deck.begin()
            deck.add(task)
        elif kind == "notes":
            deck.spare(_told(text) if prose else _printed(text, "code"))
        elif kind != "skip" and prose:
            deck.tell(text, kind, after)
        elif kind != "skip":
            deck.run(cell, text, kind)
    return _joined([_shortened(slide) for slide in _shared(deck.found[1:])])


@dataclass
class _Deck:
    found: list[Slide] = field(default_factory=lambda: [Slide(below=False, title="")])
    waits: str = ""
    """Which outputs wait behind a question: "<pre" printed ones, "<" all."""

    def kind(self, cell: Any, after: Any) -> str:
        """Returns the slide type of a cell: a question is seen before its answer, and both are."""
        kind = str(cell["metadata"].get("slideshow", {}).get("slide_type"))
        text, task = "".join(cell["source"]), _task(after)
        if cell["cell_type"] == "markdown":
            leads = GUESS in "".join(after["source"])
            leads = leads or (bool(task) and sum(part.lines for part in task) < LITTLE)
            return "subslide" if kind == "notes" and leads else kind
        guesses = GUESS in text and (self.waits or kind == "skip")
        if guesses or (kind == "skip" and ANSWER in text):
            limit = FULL - 3 * (GUESS in text)
            above = sum(
                min(one.lines, PROSE) if one.prose and "\n- " not in one.prose else one.lines
                for one in self.found[-1].parts
                if not one.spare
            )
            return "-" if (self.waits or ANSWER in text) and above < limit else "subslide"
        return kind

    def begin(self, below: bool = True, title: str | None = None) -> None:
        """Begins a slide, of the same section if there is no title."""
        self.found.append(Slide(below, self.found[-1].title if title is None else title))

    def add(self, parts: Sequence[Item], waits: bool = False) -> None:
        """Puts parts on the last slide; below what waits, all wait."""
        last = self.found[-1]
        last.parts += [replace(one, waits=one.waits or waits or last.asks) for one in parts]

    def spare(self, item: Item) -> None:
        """Adds what is for the speaker, unless there is room: an answer behind its question."""
        self.add([replace(item, spare=True)], waits=bool(self.waits))

    def tell(self, text: str, kind: str, after: Any) -> None:
        """Adds a text, whose headings begin slides."""
        sections = _sections(text)
        for section in sections:
            heading, below = re.match(r"(#+) (.*)", section), section
            if heading:
                self.begin(len(heading[1]) > 2, _html(heading[2])[3:-5])
                self.add([Item(_html(heading[0]), 0)])
                below = section.removeprefix(heading[0])
            elif kind == "slide":  # it ends the section before
                self.spare(_told(section))
                continue
            elif kind == "subslide" or self.found[-1].asks:
                self.begin()
            shown, notes = _prose(below, bool(_task(after)) and section is sections[-1])
            self.add(shown, waits=kind == "fragment")
            self.found[-1].notes += notes
            predicts = "**Predict" in section or GUESS in "".join(after["source"])
            self.waits = "<" if predicts else "<pre" * ("?" in section.rpartition("\n\n")[2])

    def run(self, cell: Any, code: str, kind: str) -> None:
        """Adds a program and its outputs; a second picture begins a slide."""
        program, outputs = _program(cell, code)
        two = all(any(one.drawn for one in some) for some in (outputs, self.found[-1].parts))
        if kind in ("slide", "subslide") or two:
            self.begin(below=kind != "slide")
        if GUESS in code and not self.waits:
            self.add([_question(cell)])
        answers = GUESS in code or (kind == "-" and ANSWER in code)
        for part in outputs:
            part.waits = answers or bool(self.waits and part.seen.startswith(self.waits))
        self.add([*program, *outputs], waits=kind == "fragment")
        if outputs:
            self.waits = ""
        elif GUESS in code:
            self.waits = "<"


def _joined(made: list[Slide]) -> list[Slide]:
    """Puts a slide that still has little on it below the one before."""
    done = made[:2]
    for slide in made[2:]:
        last = done[-1]
        fits = slide.lines < LITTLE and last.lines + slide.lines <= FULL + 3
        views = any(VIEW in part.seen for part in last.parts)
        drawn = any(part.shape for part in last.parts) and any(part.prose for part in slide.parts)
        full = views or drawn or _leaves_task(last, slide)
        if slide.below and fits and not full:
            last.parts += [replace(one, waits=one.waits or last.asks) for one in slide.parts]
            last.notes += slide.notes
        else:
            done.append(slide)
    return done


def _shared(found: list[Slide]) -> list[Slide]:
    """Puts slides with little on them together, the last ones first: text leads to what follows."""
    for at in range(len(found) - 2, 0, -1):
        one, other = found[at : at + 2]
        least, both = min(one.lines, other.lines), one.lines + other.lines
        little = not one.lines or (least < LITTLE and both <= FULL + 4 * (least < LITTLE / 2))
        ends = any(part.waits or part.shape > BESIDE or VIEW in part.seen for part in one.parts)
        if other.below and little and not ends and not _leaves_task(one, other):
            parts, notes = one.parts + other.parts, one.notes + other.notes
            found[at : at + 2] = [Slide(one.below, one.title, parts, notes)]
    return found


def _shortened(slide: Slide) -> Slide:
    """Leaves out programs and sentences of a slide that is too full; the speaker reads them."""
    whole = ""
    pictured = any(part.drawn for part in slide.parts)
    spares = not pictured and not any(TASK in part.seen for part in slide.parts)
    for part in list(slide.parts):
        program = part.seen.startswith('<pre class="code')
        fits = slide.lines < LITTLE and (part.prose or slide.lines + part.lines < FULL + 3)
        part.spare = (program and pictured) or (part.spare and not (spares and fits))
        if part.spare and len(slide.parts) > 1:
            slide.parts.remove(part)
            whole += part.seen
    for part in slide.parts:
        if not part.prose or (slide.parts[0].seen.startswith("<h1") and not pictured):
            continue
        more = 0 if any(0 < other.shape < BESIDE for other in slide.parts) else slide.lines - FULL
        paragraphs = [block for block in _blocks(part.prose) if PARAGRAPH.match(block)]
        room = min(PROSE, max(3, sum(map(_lines, paragraphs)) - max(more, 0)))
        if sum(map(_lines, paragraphs)) > room:
            whole += part.seen
            kept = _important(paragraphs, room)
            text = "\n\n".join(kept.get(block, block) for block in _blocks(part.prose))
            part.seen, part.lines = _html(text), _lines(text)
    slide.notes = whole + slide.notes
    return slide


def page(made: Sequence[Slide]) -> str:
    """Returns the deck as a page with reveal.js inside."""
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


def _sections(text: str) -> list[str]:
    hidden = FENCE.sub(lambda found: "`" * len(found[0]), text)
    cuts = [0, *(found.start() for found in re.finditer(r"^#+ ", hidden, re.MULTILINE)), len(text)]
    return [text[start:end].strip() for start, end in pairwise(cuts) if text[start:end].strip()]


def _blocks(text: str) -> list[str]:
    fences = FENCE.findall(text)
    blocks = [b for b in re.split(r"\n\n+", FENCE.sub("```", text)) if "**Previous:**" not in b]
    return [fences.pop(0) if b == "```" else b for b in blocks if b]


def _prose(text: str, task_follows: bool) -> tuple[list[Item], str]:
    """Returns what of a text is seen, and, for the speaker, what the slide of a task says."""
    blocks = _blocks(text.strip())
    seen = [b for b in blocks if not (task_follows and b.startswith("**Exercise"))]
    shown = "\n\n".join(seen)
    left = "\n\n".join(block for block in blocks if block not in seen)
    return [_told(shown)] * bool(shown), _html(left)


def _told(text: str) -> Item:
    return Item(_html(text), _lines(text), text)


def _lines(text: str) -> float:
    """Returns about how many lines a text in Markdown takes, the space between blocks included."""
    rows = 0.0
    for block in _blocks(re.sub(r"\]\(.*?\)|[*\[]", "", text)):
        lines = block.split("\n")
        if block.startswith(("```", "|", "$$")):
            rows += len(lines) + 0.5
        else:
            items = re.split(r"\n(?=[-*] |\d+\. )", block)
            rows += sum(-(-len(item) // 75) + 0.3 for item in items)
    return rows


def _important(paragraphs: list[str], room: float) -> dict[str, str]:
    """Returns each paragraph with the sentences that matter most, as many as there is room for.

    These are questions, sentences with bold words, the last one, which leads to what is shown, and
    the first ones.
    """
    sentences = [(block, one) for block in paragraphs for one in _sentences(block)]

    def rank(at: int) -> int:
        one = sentences[at][1]
        known = ("**Predict" in one, "?" in one, "**" in one, at == len(sentences) - 1, True)
        return known.index(True)

    kept: set[int] = set()
    left = room * 75
    for at in sorted(range(len(sentences)), key=rank):
        left -= len(sentences[at][1]) + 1
        if left >= 0 or not kept:
            kept.add(at)
    return {
        block: " ".join(one for at, (b, one) in enumerate(sentences) if b == block and at in kept)
        for block in paragraphs
    }


def _sentences(block: str) -> list[str]:
    """Returns its sentences; one that leans on the one before stays with it."""
    found: list[str] = []
    for one in SENTENCE.split(block):
        if found and LEANS.match(one) and len(found[-1] + one) < 250:
            found[-1] += " " + one
        else:
            found.append(one)
    return found


def _leaves_task(one: Slide, other: Slide) -> bool:
    tasks = [[TASK in part.seen for part in slide.parts] for slide in (one, other)]
    return any(tasks[0]) and not any(tasks[1][:1])


def _task(cell: Any) -> list[Item]:
    """Returns the statement of a task as its card tells it, and the code that it begins with."""
    for output in cell.get("outputs", ()):
        data = {kind: "".join(text) for kind, text in output.get("data", {}).items()}
        card = CARD.match(data.get("text/plain", ""))
        place = PLACE.search(data.get("text/html", ""))
        if card and place:
            told = re.sub("`(.+?)`", r"<code>\1</code>", escape(card[1])).replace("\n", "<br>")
            seen = f'<div {TASK}><p class="place">{place[1]}</p><p>{told}</p></div>'
            code = IMPORTS.sub("", "".join(cell["source"])).strip()
            return [Item(seen, _lines(card[1]) + 1.5), _printed(code, "code")]
    return []


def _question(cell: Any) -> Item:
    """Returns what a guess without a question in the text is about."""
    plain = "".join("".join(one.get("data", {}).get("text/plain", "")) for one in cell["outputs"])
    asked = plain.partition("Your guess first: ")[2].split(".")[0]
    return Item(f"<p><strong>Your guess:</strong> {escape(asked)}</p>", 1.5)


def _program(cell: Any, code: str) -> tuple[list[Item], list[Item]]:
    """Returns a program and its outputs."""
    outputs = [part for output in cell["outputs"] if (part := _output(output))]
    views = [part for part in outputs if VIEW in part.seen]
    program = _printed(code.strip(), "code")
    lines = [line for line in code.split("\n") if line.strip()]
    own = [line for line in lines if not line.startswith(("import ", "from "))]
    long = len(own) > (LINES // 4 if outputs else LINES) or (len(own) == 1 and outputs)
    pictured = views or any(part.shape for part in outputs)
    program.spare = bool(long or pictured or GUESS in code or ANSWER in code)
    shown = views or outputs
    return ([] if code.strip().isidentifier() and shown else [program]), shown


def _output(output: Any) -> Item | None:
    data = {kind: "".join(text) for kind, text in output.get("data", {}).items()}
    plain = "".join(output.get("text", data.get("text/plain", ""))).rstrip()
    if IDLE.search(plain) or not (plain or data):
        return None
    html = saved_views.html(output) or data.get("text/html", "")
    source = html.startswith("<pre")  # as large as it fits
    if html and not source:
        lines = 10 if VIEW in html else html.count("<tr") + 1.5 * html.count("<p")
        return Item(f'<div class="output" data-prevent-swipe>{html}</div>', max(lines, 2))
    if "image/png" in data:
        png = data["image/png"].strip()
        width, height = struct.unpack(">II", base64.b64decode(png[:32])[16:24])
        shown = picture_class(output["metadata"])
        image = f'<img{shown} alt="{escape(plain)}" src="data:image/png;base64,{png}">'
        figure = f'<figure style="--shape: {width / height:.3f}">{image}</figure>'
        return Item(figure, min(30 * height / width, 10), shape=width / height)
    return _printed(plain, "code" if source else "text")


def _printed(text: str, kind: str) -> Item:
    lines = text.split("\n")
    size = min(0.8, 60 / max(map(len, lines)))
    return Item(_pre(text, kind), size * sum(len(line) // 120 + 1 for line in lines) + 1)


def _pre(text: str, kind: str) -> str:
    lines = text.split("\n")
    size = f"--wide: {min(max(map(len, lines)), 120)}"
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
