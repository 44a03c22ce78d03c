"""How a panel ends that nobody stops: forgotten, left running by a script, or copied by a fork."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from labkit.telemetry import spans

if TYPE_CHECKING:
    from labkit.telemetry.feed import Feed
    from labkit.telemetry.record_file import RecordFile
    from labkit.telemetry.watch import Panel

__all__ = ["end", "of_this_process", "weakly"]

_panels: weakref.WeakSet[Panel] = weakref.WeakSet()


def of_this_process(panel: Panel) -> None:
    """Remember that a fork has no part in this panel."""
    _panels.add(panel)


def weakly(method: Callable[[Any], None]) -> Callable[[Any], None]:
    """The method, for somebody who calls it without keeping its panel alive."""
    kept = weakref.WeakMethod(method)

    def call(heard: Any) -> None:
        found = kept()
        if found is not None:
            found(heard)

    return call


def end(feed: Feed, file: RecordFile | None, hear: Callable[[Any], None]) -> None:
    """End all that works for a panel; the panel itself may be gone."""
    spans.forget(hear)
    feed.stop()
    if file is not None:
        file.close()


def _disown_all() -> None:
    for panel in list(_panels):
        panel.disown()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_disown_all)
