"""The ten questions of `check_yourself.ipynb`: what a student should know before lecture 00."""

from math import log
from typing import Any

import numpy as np

from labkit.exercises.judges.answers import function, function_task, number, word
from labkit.exercises.task import Task, Wrong


def _shape(answer: Any) -> None:
    if answer != (32, 10):
        swapped = " Rows come first." if answer == (10, 32) else ""
        raise Wrong(f"{answer!r} is not it.{swapped} Write shape = (rows, columns).")


def _twice(my_twice: Any) -> None:
    for given, right in ((3, 12), (-1, -4)):
        found = my_twice(lambda x: 2 * x)
        if not callable(found):
            raise Wrong("my_twice(f) must return a function, not a result.")
        if found(given) != right:
            text = f"my_twice(double)({given}) returned {found(given)!r}; right is {right}."
            raise Wrong(f"{text} Call f with what f has returned.")


TASKS = {
    "self.evens": function_task(
        "Write my_evens(numbers): how many of the numbers in a list are even.",
        [([1, 2, 3, 4, 10],), ([],), ([7],)],
        ("one % 2 is 0 for an even number.", "A loop and a counter will do."),
        "def my_evens(numbers):\n    return sum(one % 2 == 0 for one in numbers)",
        "A loop, a condition, a result: most exercises ask for a function of this kind.",
        slips=[("% 2 == 0", "% 2 == 1", "Those are the odd ones.")],
    ),
    "self.twice": Task(
        "Write my_twice(f): it returns a new function of x, which returns f(f(x)).",
        function(_twice),
        ("A function may be defined inside another one.", "return the inner function, without ()."),
        "def my_twice(f):\n    def both(x):\n        return f(f(x))\n\n    return both",
        "The course passes functions to functions, for example labkit.measure(train).",
    ),
    "self.key": Task(
        "Which exception does {'a': 1}['b'] raise? Write its name in quotes.",
        word("KeyError"),
        ("Run the expression in a cell of your own.", "Read the last line of the error first."),
        'answer = "KeyError"',
        "The last line of an error message names what happened; the lines above say where.",
        slips={"IndexError": "That is for lists.", "ValueError": "Run it."},
    ),
    "self.shape": Task(
        "In NumPy x has the shape (32, 784), w (784, 10) and b (10,). What is the shape of "
        "x @ w + b? Write a tuple.",
        _shape,
        ("A matrix product keeps the outer sizes.", "b is added to each row."),
        "shape = (32, 10)",
        "A batch of 32 images gives 32 rows of 10 numbers: a linear layer.",
    ),
    "self.column_means": function_task(
        "Write my_column_means(array): the mean of each column of a NumPy array with rows and "
        "columns.",
        [(np.array([[1.0, 2.0], [3.0, 6.0]]),), (np.array([[1.0, 2.0, 3.0]]),)],
        ("array.mean takes axis=.", "axis=0 goes down the rows."),
        """
def my_column_means(array):
    return array.mean(axis=0)
""",
        "Axes are numbered from 0; the axis that you name disappears.",
        slips=[("axis=0", "axis=1", "Those are the means of the rows.")],
    ),
    "self.gradient_step": Task(
        "The loss is (w - 3)², and w is 5. What is w after one step of gradient descent with the "
        "learning rate 0.1?",
        number(4.6),
        ("The derivative is 2 (w - 3).", "w minus rate times derivative."),
        "w, rate = 5, 0.1\nanswer = w - rate * 2 * (w - 3)",
        "Every training of this course repeats this step.",
        slips={5.4: "Subtract.", 1: "Multiply the gradient by 0.1.", 4.8: "2 (w - 3)"},
    ),
    "self.cross_entropy": Task(
        "A model gives the right class the probability 0.25. How large is the cross-entropy of "
        "this example, with the natural logarithm?",
        number(-log(0.25), within=0.01),
        ("Minus the logarithm of the probability of the right class.", "math.log is natural."),
        "from math import log\n\nanswer = -log(0.25)",
        "A probability of 1 has the loss 0. Ten equal guesses have 2.3.",
        slips={log(0.25): "A loss is positive.", 2: "log, not log2"},
    ),
    "self.bytes": Task(
        "How many MB do 25 million float32 numbers take? (1 MB is a million bytes.)",
        number(100, "MB"),
        ("32 bits are 4 bytes.",),
        "answer = 25e6 * 4 / 1e6",
        "Weights and gradients are counted like this in every lecture.",
        slips={25: "A float32 has 4 bytes.", 800: "Those are bits: 8 in a byte."},
    ),
    "self.seconds": Task(
        "How many seconds do 250 MB take over a link of 1 Gbit/s?",
        number(2, "s"),
        ("250 MB are 2,000 million bits.",),
        "answer = 250e6 * 8 / 1e9",
        "Memory is counted in bytes, networks in bits.",
        slips={0.25: "Gbit are bits: a byte has 8.", 0.125: "1 / 8 of what?"},
    ),
    "self.batches": Task(
        "A data set has 1,000 examples. With batches of 32, the last one smaller: how many steps "
        "has an epoch?",
        number(32, "steps"),
        ("1000 / 32 is 31.25.", "The rest is one more batch."),
        "answer = -(-1000 // 32)  # rounded up",
        "An epoch is one pass through all examples, a step is one update of the weights.",
        slips={31: "The last, smaller batch is a step."},
    ),
}
