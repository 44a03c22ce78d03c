"""A machine's own evidence: `labkit study` measures it, and what it wrote is read here.

$ labkit study --devices 1,2 --for minute
>>> study = labkit.study.load("study.jsonl")                         # doctest: +SKIP
>>> study.beside(labkit.study.load("another.jsonl"))                 # doctest: +SKIP
"""

from labkit.study.study_file import Study, here, load
