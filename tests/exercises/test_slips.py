"""Every usual mistake of a task's text is refused, with its words."""

import pytest

from labkit.exercises import tasks
from tests.exercises.cells import changed, refused
from tests.exercises.test_tasks import short

__all__ = ["short"]
pytestmark = pytest.mark.usefixtures("four")
TASKS = tasks()
SLIPS = [(name, slip) for name, task in TASKS.items() for slip in task.slips]


@pytest.mark.parametrize(("name", "slip"), SLIPS)
def test_a_usual_mistake_is_told(name, slip):
    wrong = changed(name, *slip, graph=name == "34.schedule") if isinstance(slip, tuple) else slip
    refused(name, wrong, TASKS[name].slips[slip])
