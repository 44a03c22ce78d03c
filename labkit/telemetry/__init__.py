"""What devices do while they train: sampled, marked with spans, shown live, recorded, replayed.

>>> with labkit.panel() as panel:                    # doctest: +SKIP
...     job.train(epochs=3)
>>> panel.table()                                    # doctest: +SKIP
>>> labkit.replay("recording.jsonl")                 # doctest: +SKIP
"""

from labkit.telemetry.recording import replay
from labkit.telemetry.spans import span
