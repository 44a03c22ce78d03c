"""The tools that labkit is measured against, in an environment of their own: .venv/peers."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

__all__ = ["VENV", "peers_python"]

ROOT = Path(__file__).resolve().parent.parent
VENV, LOCK = ROOT / ".venv" / "peers", ROOT / "requirements" / "peers.txt"


def peers_python(left_out: str) -> Path | None:
    """The Python of the peers' environment, made now if it is not there; None if it cannot be."""
    python, stamp = VENV / "bin" / "python", VENV / "labkit.peers"
    wanted = hashlib.sha256(LOCK.read_bytes()).hexdigest()
    if stamp.is_file() and stamp.read_text(encoding="utf-8") == wanted:
        return python
    print(
        "Installing the peers into .venv/peers (once: 70 MB to load, 250 MB on disk).", flush=True
    )
    shutil.rmtree(VENV, ignore_errors=True)
    quiet = ["-m", "pip", "--quiet", "--disable-pip-version-check", "--no-input", "install"]
    steps = (
        [sys.executable, "-m", "venv", VENV],
        [python, *quiet, "--no-deps", "--require-hashes", "-r", LOCK],
    )
    for step in steps:
        done = subprocess.run(step, capture_output=True, text=True)
        if done.returncode:
            shutil.rmtree(VENV, ignore_errors=True)
            why = (done.stderr.strip() or done.stdout.strip()).splitlines()[-1:] or [
                "no reason given"
            ]
            print(
                f"  They cannot be installed: {why[0]}\n"
                f"  So {left_out} left out. The first time needs the network; run this again when "
                "there is one.",
                flush=True,
            )
            return None
    stamp.write_text(wanted, encoding="utf-8")
    return python
