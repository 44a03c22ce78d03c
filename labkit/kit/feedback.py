"""Submissions with their results, and the page that a student reads, a single file."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape

from labkit.kit.release import Asked

SIGNS = {"right": "✓ right", "wrong": "✗ not yet", "ended": "✗ not judged", "open": "○ no answer"}
STYLE = """
:root { color-scheme: light dark; }
body { font: 1rem/1.5 system-ui, sans-serif; max-width: 48rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; }
th, td { text-align: left; padding: 0.2rem 1rem 0.2rem 0; border-bottom: 1px solid #808080; }
td:last-child, th:last-child { text-align: right; }
section { border-left: 6px dotted #808080; padding-left: 0.8rem; margin: 1.5rem 0; }
section.right { border-left: 6px solid #009E73; }
section.wrong, section.ended { border-left: 6px double #D55E00; }
pre { white-space: pre-wrap; overflow-wrap: anywhere; font-size: 0.9rem; }
@media print { section { break-inside: avoid; } }
"""


@dataclass(frozen=True)
class Result:
    """The result of a task: state and text of its outcome."""

    state: str
    text: str


@dataclass
class Submission:
    """A notebook of a student, who has this `number` in Moodle or Canvas."""

    student: str
    number: str
    notebook: str
    files: list[str] = field(default_factory=list)
    asked: dict[str, Asked] = field(default_factory=dict)
    is_read: bool = False
    cells: list[str] = field(default_factory=list)
    answers: dict[str, int] = field(default_factory=dict)
    """The cell of each answer."""
    notes: list[str] = field(default_factory=list)
    results: dict[str, Result] = field(default_factory=dict)

    def left(self) -> list[str]:
        """Returns the answers that are not judged yet."""
        return [task for task in self.asked if task in self.answers and task not in self.results]

    def got(self, task: str) -> int:
        """Returns the points of a task: all or none."""
        return self.asked[task].points * (self._result(task).state == "right")

    @property
    def points(self) -> int:
        """The points of all tasks."""
        return sum(map(self.got, self.asked))

    @property
    def most(self) -> int:
        """The points to have."""
        return sum(one.points for one in self.asked.values())

    def _result(self, task: str) -> Result:
        return self.results.get(task, Result("open", ""))

    def html(self) -> str:
        """Returns its part of the page."""
        rows, sections = "", ""
        for task, one in self.asked.items():
            result, points = self._result(task), f"{self.got(task)} of {one.points}"
            state = SIGNS.get(result.state, "○ not judged here")
            rows += (f'<tr><th scope="row"><a href="#{one.name}">{task}</a></th>'
                     f"<td>{state}</td><td>{points}</td></tr>\n")  # fmt: skip
            source = escape(self.cells[self.answers[task]]) if task in self.answers else ""
            sections += (
                f'<section id="{one.name}" class="{escape(result.state)}">'
                f"<h3>{task}: {state}</h3><p>{escape(result.text).replace(chr(10), '<br>')}</p>"
                f"{source and f'<h4>Your answer</h4><pre>{source}</pre>'}</section>\n"
            )
        notes = "".join(f"<li>{escape(note)}</li>" for note in self.notes)
        return (
            f"<h2>{escape(self.notebook)}</h2>\n{notes and f'<ul>{notes}</ul>'}<table><thead><tr>"
            '<th scope="col">task</th><th scope="col">result</th><th scope="col">points</th></tr>'
            f"</thead><tbody>\n{rows}</tbody></table>\n{sections}"
        )


def page(student: str, submissions: Sequence[Submission]) -> str:
    """Returns the page of a student."""
    points = sum(submission.points for submission in submissions)
    most = sum(submission.most for submission in submissions)
    title = f"Feedback for {escape(student)}"
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><meta name="viewport" '
        f'content="width=device-width"><title>{title}</title><style>{STYLE}</style></head>\n'
        f"<body><main><h1>{title}</h1>\n<p>{points} of {most} points.</p>\n"
        f"{''.join(submission.html() for submission in submissions)}</main></body></html>\n"
    )
