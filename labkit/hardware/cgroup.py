"""What a container allows this process: processor time and memory, from cgroup versions 1 and 2.

A container with a quota of two cores still shows all cores of its host, so that a program which
counts cores starts too many threads. The limit of every parent folder holds as well.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

__all__ = ["Limits", "group_folders", "limits", "quotas"]

# Version 1 writes "no limit" as the largest number that fits.
_NO_LIMIT = 1 << 60


@dataclass(frozen=True)
class Limits:
    """Cores' worth of time, and bytes; None where there is no limit."""

    cores: float | None
    memory: int | None
    memory_used: int | None  # of the group that sets `memory`, without file pages it can drop


def limits(root: Path = Path("/")) -> Limits:
    """The tightest limits on this process. `root` lets a test bring its own /proc and /sys."""
    cores: list[float] = []
    memory: list[tuple[int, int | None]] = []
    for folder in group_folders(root, "cpu"):
        cores.extend(quotas(folder))
    for folder in group_folders(root, "memory"):
        memory.extend(_memory(folder))
    tightest = min(memory, key=lambda pair: pair[0], default=(None, None))
    return Limits(min(cores, default=None), *tightest)


def group_folders(root: Path, controller: str) -> list[Path]:
    """The control folders that hold for this process, from its own up to the mount."""
    found: list[Path] = []
    groups = _text(root / "proc/self/cgroup").splitlines()
    for line in _text(root / "proc/self/mountinfo").splitlines():
        before, _, after = line.partition(" - ")
        left, right = before.split(), after.split()
        if len(left) < 5 or len(right) < 3:
            continue
        mounted_root, mount, kind = left[3], root / left[4].lstrip("/"), right[0]
        for group in groups:
            number, _, rest = group.partition(":")
            names, _, path = rest.partition(":")
            version_2 = kind == "cgroup2" and number == "0" and not names
            version_1 = kind == "cgroup" and controller in names.split(",")
            if version_2 or (version_1 and controller in right[2].split(",")):
                found.extend(_upwards(mount, mounted_root, path))
    return found


def _upwards(mount: Path, mounted_root: str, path: str) -> list[Path]:
    # Inside a container, the path may be the host's while the mount shows only its lower end.
    prefix = mounted_root.rstrip("/")
    inner = path[len(prefix) :] if path == prefix or path.startswith(prefix + "/") else ""
    parts = [part for part in inner.split("/") if part not in ("", "..")]
    return [mount.joinpath(*parts[:depth]) for depth in range(len(parts), -1, -1)]


def quotas(folder: Path) -> list[float]:
    """How many cores' worth of time a group allows: one number, or none without a limit."""
    quota, _, period = _text(folder / "cpu.max").partition(" ")
    if not quota:
        quota, period = _text(folder / "cpu.cfs_quota_us"), _text(folder / "cpu.cfs_period_us")
    try:
        return [int(quota) / int(period)] if int(quota) > 0 and int(period) > 0 else []
    except ValueError:  # "max", or no such file
        return []


def _memory(folder: Path) -> list[tuple[int, int | None]]:
    for limit_name, used_name, droppable in (
        ("memory.max", "memory.current", "inactive_file"),
        ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    ):
        try:
            limit = int(_text(folder / limit_name))
        except ValueError:
            continue
        if limit >= _NO_LIMIT:
            continue
        return [(limit, _used(folder, used_name, droppable))]
    return []


def _used(folder: Path, used_name: str, droppable: str) -> int | None:
    stat = dict(line.split()[:2] for line in _text(folder / "memory.stat").splitlines() if line)
    try:
        return max(0, int(_text(folder / used_name)) - int(stat.get(droppable, 0)))
    except ValueError:
        return None


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except (OSError, UnicodeDecodeError):
        return ""
