"""The classic defects of a training benchmark, looked for in a student's own program.

>>> code = '''
... start = time.process_time()
... model.fit(x, y)
... print(time.process_time() - start)
... '''
>>> diagnose(code).names
('clock',)

`sources` turns cells, functions and text into syntax trees; `reader` follows the program and
`calls` knows what the calls of Keras and TensorFlow mean; the rules read the story that results.
`objects` looks at a model and at data that exist. Nothing of the student's code is run.
"""

from __future__ import annotations

from typing import Any

from labkit.kinds import LabError
from labkit.training.defects.diagnosis import DEFECTS, Diagnosis, Finding

__all__ = ["DEFECTS", "Diagnosis", "Finding", "diagnose"]


def diagnose(
    code: Any = None, *, model: Any = None, data: Any = None, replicas: Any = None
) -> Diagnosis:
    """Warn of the classic defects in a benchmark or a training program.

    >>> diagnose(In[3:6])                                    # doctest: +SKIP
    >>> diagnose(my_benchmark)                               # doctest: +SKIP
    >>> diagnose(model=model, data=pipeline, replicas=2)     # doctest: +SKIP

    `code` is Python text, a function, or a sequence of cells; it is read and never run. `model` is
    a compiled Keras model, `data` its NumPy arrays (x or (x, y)), a tf.data pipeline or one of
    labkit's data sets, `replicas` their number, a strategy, or what labkit.replicas gave.

    The diagnosis is true when something was found. Finding nothing proves nothing.
    """
    if code is None and model is None and data is None:
        raise LabError(
            "There is nothing to look at. Pass your program: labkit.training.diagnose(In[3:6]) for "
            "cells 3 to 5, diagnose(my_function), or diagnose(model=model, data=data)."
        )
    found: list[Finding] = []
    looked = []
    if code is not None:
        from labkit.training.defects.reader import read
        from labkit.training.defects.rules import findings_in
        from labkit.training.defects.sources import programs

        found += findings_in(read(programs(code)))
        looked.append("the text of the program")
    if model is not None or data is not None:
        from labkit.training.defects.objects import findings_about

        found += findings_about(model, data, replicas)
        looked += [name for name, given in (("the model", model), ("the data", data))
                   if given is not None]  # fmt: skip
    return Diagnosis.of(found, tuple(looked))
