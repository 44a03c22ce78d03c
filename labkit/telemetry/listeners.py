"""Those who are told what was sampled."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import Any

__all__ = ["Listener", "Listeners", "Reader"]

Listener = Callable[[list[Any]], object]  # is given lines as json.loads gives them
Reader = Callable[[str], object]  # is given rows as they came, JSON texts with commas between


class Listeners:
    """Tells everybody the same lines; who comes late hears the header and the sources first.

    `note` makes the line that tells the others when a listener has failed.
    """

    def __init__(self, note: Callable[[str], Any]) -> None:
        self._note = note
        self._lock = threading.Lock()
        # With the lines that each has missed.
        self._entries: list[tuple[Listener, Reader | None, list[Any]]] = []
        self._header: list[Any] = []
        self._sources: dict[str, Any] = {}

    @property
    def know_header(self) -> bool:
        """Whether the header has been told."""
        return bool(self._header)

    def add(self, listener: Listener, rows: Reader | None = None) -> Callable[[], None]:
        """One more; what is given back ends that. `rows` is told what is nothing but rows."""
        with self._lock:
            entry = (listener, rows, [*self._header, *self._sources.values()])
            self._entries = [*self._entries, entry]

        def no_more() -> None:
            self._drop(entry)

        return no_more

    def tell(self, lines: list[Any]) -> None:
        """Tell everybody. One that raises is dropped, and the others are told so."""
        with self._lock:
            entries = self._entries
            for line in lines:
                if type(line) is dict:
                    self._keep(line)
        for entry in entries:
            listener, _, missed = entry
            self._try(entry, listener, [*missed, *lines] if missed else lines)
            missed.clear()

    def tell_rows(self, text: str) -> None:
        """Tell everybody rows, taken apart only for those who cannot read them as they came."""
        with self._lock:
            entries = self._entries
        lines: list[Any] = []
        for entry in entries:
            listener, rows, missed = entry
            if rows is not None and not missed:
                self._try(entry, rows, text)
                continue
            lines = lines or json.loads(f"[{text}]")
            self._try(entry, listener, [*missed, *lines])
            missed.clear()

    def _try(self, entry: tuple[Any, ...], told: Callable[[Any], object], what: Any) -> None:
        try:
            told(what)
        except Exception as fault:  # noqa: BLE001 - their fault must not end the samples
            self._drop(entry)
            self.tell(
                [
                    self._note(
                        "Something that listened to the samples failed and is told no more "
                        f"({type(fault).__name__}: {fault})."
                    )
                ]
            )

    def _keep(self, line: dict[str, Any]) -> None:
        if "labkit" in line:
            self._header = [line]
        elif "source" in line:
            self._sources[line["source"]] = line

    def _drop(self, entry: tuple[Any, ...]) -> None:
        with self._lock:
            self._entries = [other for other in self._entries if other is not entry]
