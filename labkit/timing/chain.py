"""When each prediction was made: a file beside the notebooks, each entry with a hash of all before.

To change an entry, or to insert one, breaks the chain. The chain does not show that the whole file
was written anew: a marker reads the times, too.
"""

import json
import time
from hashlib import sha256
from pathlib import Path
from typing import Any

from labkit.kinds import LabError
from labkit.plain import alone, write_text

FILE = Path("labkit-predictions.json").absolute()  # in the folder where the kernel starts


def entries() -> list[dict[str, Any]]:
    """Returns all entries of the file, if it is whole."""
    try:
        found = json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else []
        before = ""
        for one in found:
            if one["hash"] != _hash(before, one):
                raise ValueError(f"the entry of {one['what']!r} does not follow from those before")
            before = one["hash"]
    except (OSError, RecursionError, ValueError, KeyError, TypeError) as fault:
        raise LabError(
            f"{FILE.name} was changed by another program than labkit: {fault}. "
            "Put the old file back, or move it away and predict and measure again."
        ) from None
    return list(found)


def note(event: str, what: str, guess: float) -> float:
    """Add an entry, unless the newest one about `what` is the same. Returns its time."""
    with alone(FILE.parent):
        found = entries()
        same = [one for one in found if one["what"] == what and one["event"] == event][-1:]
        if same and same[0]["guess"] == guess:
            return float(same[0]["at"])
        new = {"event": event, "what": what, "guess": guess, "at": time.time()}
        new["hash"] = _hash(found[-1]["hash"] if found else "", new)
        write_text(FILE, json.dumps([*found, new], indent=1) + "\n")
    return float(new["at"])  # type: ignore[arg-type]


def newest(what: str) -> float | None:
    """Returns the newest guess about `what`."""
    found = [
        one["guess"] for one in entries() if (one["event"], one["what"]) == ("predicted", what)
    ]
    return found[-1] if found else None


def when_measured(what: str) -> float | None:
    """Returns the guess with which the first measurement of `what` began."""
    return next(
        (one["guess"] for one in entries() if (one["event"], one["what"]) == ("measured", what)),
        None,
    )


def _hash(before: str, entry: dict[str, Any]) -> str:
    rest = {key: value for key, value in entry.items() if key != "hash"}
    return sha256(f"{before}{json.dumps(rest, sort_keys=True)}".encode()).hexdigest()
