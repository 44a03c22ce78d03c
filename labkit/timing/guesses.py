"""The guesses of this kernel, sent to a class that it has joined: numbers, and no name.

>>> join("http://192.0.2.7:8765/k3f9a1")  # doctest: +SKIP
Joined: the numbers of your predict cells go to the class, without a name.
"""

import json
import math
import os
import re
import secrets

from labkit.kinds import LabError

SECONDS = 1.0  # that a cell waits for a connection, and again for the answer
ADDRESS = re.compile(r"http://([^/:]+:\d{1,5})(/(lecturer-)?\w+)")
_who = secrets.token_hex(8)  # drawn by each kernel, so that a changed guess replaces the old one


def join(address: str) -> None:
    """Send the numbers of the `predict` cells of this kernel to the class at this address."""
    found = ADDRESS.fullmatch(str(address))
    if not found:
        like = "http://192.0.2.7:8765/k3f9a1"
        raise LabError(f"A class has an address such as {like}, got {address!r}.")
    try:
        _post(found, {})
    except OSError as fault:
        raise LabError(f"No class answers at {address} ({fault}): compare the address.") from None
    os.environ["LABKIT_CLASS"] = address
    print("Joined: the numbers of your predict cells go to the class, without a name.")


def send(
    what: str,
    unit: str,
    *,
    guess: float | None = None,
    result: float | None = None,
    verb: str = "",
) -> None:
    """Send a guess, or a lecturer's question or result, to the class that this kernel joined."""
    found = ADDRESS.fullmatch(os.environ.get("LABKIT_CLASS", ""))
    message: dict[str, object] = {"who": _who, "what": what, "unit": unit}
    if not found or (result is not None and not math.isfinite(result)):
        return
    if guess is not None:
        message["guess"] = guess
    elif not found[3]:  # only the lecturer asks and measures for all
        return
    elif result is not None:
        message |= {"result": result, "verb": verb}
    try:
        _post(found, message)
    except OSError as fault:
        print(f"The class cannot be reached ({fault}): your number stays here.")


def _post(address: re.Match[str], message: dict[str, object]) -> None:
    import http.client

    line = http.client.HTTPConnection(address[1], timeout=SECONDS)
    try:
        line.request("POST", address[2], json.dumps(message))
        answer = line.sock.recv(100)  # and no more: headers may come for ever, byte by byte
    except (ValueError, OverflowError, http.client.HTTPException) as fault:
        raise OSError(fault) from None  # no host or port that there could be
    finally:
        line.close()
    if b" 200 " not in answer[:13]:
        raise OSError(answer.partition(b"\r")[0].decode("ascii", "replace") or "no answer")
