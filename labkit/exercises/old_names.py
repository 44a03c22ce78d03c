"""Names of tasks from when lectures were numbered in one row: old progress and numbers stay theirs.

>>> before("22.ring"), before("33.my_share"), before("75.newer")
('10.ring', '14.my_share', '75.newer')
>>> now("14.my_share", ["32.global_batch", "33.my_share"])
'33.my_share'
>>> moved("51.split", ["51.sampler", "55.split"])
'55.split'
"""

from collections.abc import Collection

# Which lecture it was. One that has been cut in two has kept its number in the names of its tasks.
LECTURES = {
    "00": "00", "01": "00",
    "10": "01", "11": "02", "12": "03", "13": "04", "14": "05", "15": "06", "16": "07", "17": "07",
    "20": "08", "21": "09", "22": "10", "23": "11",
    "30": "12", "31": "13", "32": "14", "33": "14", "34": "15", "35": "16", "36": "17",
    "40": "18", "41": "18", "42": "19", "43": "20", "44": "21", "45": "22",
    "50": "24", "51": "24", "52": "24", "53": "24", "54": "24", "55": "24",
    "60": "23", "61": "25", "62": "25", "63": "26", "64": "27",
}  # fmt: skip


def before(name: str) -> str:
    """Returns the name that a task had, with which its numbers are drawn for a student."""
    lecture, dot, task = name.partition(".")
    return f"{LECTURES.get(lecture, lecture)}{dot}{task}"


def now(old: str, names: Collection[str]) -> str:
    """Returns which of these names a task with an old name has now; the old one if none has it."""
    return next((name for name in names if before(name) == old), old)


def moved(name: str, names: Collection[str]) -> str:
    """Returns a task's name of today; lectures of a part were cut anew since it was written."""
    return name if name in names else now(before(name), names)
