"""Those who are told what was sampled."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

__all__ = ["Listener", "Listeners"]

Listener = Callable[[list[Any]], object]  # is given lines as json.loads gives them


class Listeners:
    """Tells everybody the same lines; who comes late hears the header and the sources first.

    `note` makes the line that tells the others when a listener has failed.
    """

    def __init__(self, note: Callable[[str], Any]) -> None:
        self._note = note
        self._lock = threading.Lock()
        self._entries: list[tuple[Listener, list[Any]]] = []  # with the lines that each has missed
        self._header: list[Any] = []
        self._sources: dict[str, Any] = {}

    @property
    def know_header(self) -> bool:
        """Whether the header has been told."""
        return bool(self._header)

    def add(self, listener: Listener) -> Callable[[], None]:
        """One more; what is given back ends that."""
        with self._lock:
            entry = (listener, [*self._header, *self._sources.values()])
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
            listener, missed = entry
            try:
                listener([*missed, *lines] if missed else lines)
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
            missed.clear()

    def _keep(self, line: dict[str, Any]) -> None:
        if "labkit" in line:
            self._header = [line]
        elif "source" in line:
            self._sources[line["source"]] = line

    def _drop(self, entry: tuple[Listener, list[Any]]) -> None:
        with self._lock:
            self._entries = [other for other in self._entries if other is not entry]
