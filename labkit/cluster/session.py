"""A session with Slurm from beginning to end: live if there is Slurm, else as recorded.

>>> labkit.cluster.slurm_session(who_am_i, ranks=4, nodes=2)            # doctest: +SKIP

It shows what happened: the script that was sent, the states of the job and when, the lines of the
ranks, what they returned. A recording says where and when it was made.
"""

import datetime as dt
import inspect
import textwrap
from collections.abc import Callable
from dataclasses import dataclass, replace
from html import escape
from pathlib import Path
from time import monotonic
from typing import Any

from labkit.cluster.cluster import Cluster
from labkit.cluster.ranks.output import Log, OutputLine
from labkit.cluster.slurm.allocation import SlurmEngine
from labkit.cluster.slurm.queue import slurm_version, why_no_slurm
from labkit.kinds import Kind, measured, seconds_text
from labkit.plain import read
from labkit.shown import SourceCode

RECORDING = Path(__file__).with_name("recordings") / "slurm_session.json"


@dataclass(frozen=True)
class SlurmSession:
    """A job of Slurm with a single run in it."""

    kind: Kind
    when: str
    program: str
    """The source of the program, where there is one."""
    script: str
    queue: tuple[tuple[float, str], ...]
    """The states of the job, with the seconds since it was sent."""
    lines: tuple[OutputLine, ...]
    results: tuple[str, ...]
    """What the ranks returned, as Python writes it."""
    ready: float
    """Seconds from the start of the run until all ranks had started."""
    seconds: float
    """Seconds from then until the last had returned."""
    note: str = ""

    def __repr__(self) -> str:
        parts = [self.note] if self.note else []
        shown = self._shown().items()
        parts += [f"{title}\n{textwrap.indent(repr(text), '    ')}" for title, text in shown]
        return "\n\n".join([*parts, self._times()])

    def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
        html = f"<p>{escape(self.note)}</p>"
        for title, text in self._shown().items():
            html += f"<p><b>{title}</b></p>{text._repr_mimebundle_()['text/html']}"
        html = f'<div class="labkit">{html}<p>{escape(self._times())}</p></div>'
        return {"text/plain": repr(self), "text/html": html}

    def _shown(self) -> dict[str, Any]:
        from labkit.views.table import Table

        states = [(f"{seconds:.2f} s", words) for seconds, words in self.queue]
        results = "\n".join(f"rank {rank}: {text}" for rank, text in enumerate(self.results))
        return {
            "The program": SourceCode(self.program.rstrip()),
            "The batch script": SourceCode(self.script.rstrip()),
            "The queue": Table((), states, prose=True),
            "What the ranks wrote": Log(self.lines),
            "What they returned": SourceCode(results),
        }

    def _times(self) -> str:
        return (
            f"{seconds_text(self.queue[-1][0])} in the queue, {seconds_text(self.ready)} until all "
            f"ranks had started, {seconds_text(self.seconds)} running; {self.kind}"
        )


def slurm_session(
    program: Callable[..., Any],
    *args: Any,
    ranks: int = 4,
    timeout: float = 120.0,
    nodes: int | None = None,
    partition: str | None = None,
    time: str | int | None = None,
    account: str | None = None,
    reservation: str | None = None,
    memory: str | None = None,
    cpus: int | None = None,
    gpus: int | None = None,
    extra: tuple[str, ...] | None = None,
    name: str | None = None,
    wait: float | None = None,
    folder: str | Path | None = None,
) -> SlurmSession:
    """Run program(rank, *args) on every rank of a job of Slurm. Returns what happened.

    The keywords from `nodes` on are those of `labkit.cluster(engine="slurm")`. Without Slurm this
    is the session that comes with labkit.
    """
    missing = why_no_slurm()
    if missing:
        seen = recorded_session()
        note = f"No Slurm is used here: {missing}. This is a session that was recorded."
        if _source(program) != seen.program:
            note += " Its program is not yours, but the one that it shows."
        return replace(seen, note=note)
    version = slurm_version()
    with Cluster(
        ranks, "slurm", nodes=nodes, partition=partition, time=time, account=account,
        reservation=reservation, memory=memory, cpus=cpus, gpus=gpus, extra=extra, name=name,
        wait=wait, folder=folder,
    ) as c:  # fmt: skip
        engine = c.engine
        assert isinstance(engine, SlurmEngine)
        began = monotonic()
        outcome = c.start(program, *args).finish(timeout)
        ready = monotonic() - began - outcome.seconds
        outcome.raise_errors()
        return SlurmSession(
            kind=measured(f"Slurm {version}, {engine.describe()}"),
            when=dt.datetime.now(dt.UTC).date().isoformat(),
            program=_source(program),
            script=engine.script,
            queue=tuple((seconds, str(state)) for seconds, state in engine.states),
            lines=outcome.lines,
            results=tuple(repr(outcome.results.get(rank)) for rank in range(ranks)),
            ready=ready,
            seconds=outcome.seconds,
        )


def recorded_session() -> SlurmSession:
    """Returns the session that comes with labkit."""
    return read(RECORDING, SlurmSession, "a session of Slurm")


def _source(program: Callable[..., Any]) -> str:
    try:
        return textwrap.dedent(inspect.getsource(program))
    except (OSError, TypeError):
        return f"{getattr(program, '__name__', program)}(rank)"
