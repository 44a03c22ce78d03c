"""Why is my training slow? Any TensorFlow or PyTorch program, watched and measured by leaving out.

$ labkit explain --json before.json -- python train.py

In a notebook, `%%explain 60` above your own code does the same in 60 seconds and shows the page.

>>> before = labkit.explain.read("before.json")                    # doctest: +SKIP
>>> labkit.explain.compare(before, labkit.explain.read("after.json"))   # doctest: +SKIP
"""

from typing import TYPE_CHECKING, Any

from labkit.explain.explanation import Explanation, read

if TYPE_CHECKING:
    from labkit.views.table import Table


def compare(before: Explanation, after: Explanation) -> "Table":
    """Two explanations side by side: the step, its parts, the findings that went and that came."""
    from labkit.explain import page

    return page.compare(before, after)
