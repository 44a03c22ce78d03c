"""Profiles: what torch.profiler and tf.profiler have written, on one clock.

>>> profile = labkit.profiles.read("rank0.json.gz")                        # doctest: +SKIP
>>> profile = labkit.profiles.read({0: "rank0.json", 1: "rank1.json"})     # doctest: +SKIP
>>> profile.picture()                                                      # doctest: +SKIP

Neither framework is imported, and neither is XProf.
"""

from labkit.profiles.profile import Profile, read
from labkit.profiles.trace_spans import TraceSpan, covered, union
