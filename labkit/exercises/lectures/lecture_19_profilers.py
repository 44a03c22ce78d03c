"""What the causes in the six traces of lecture 19 are judged by."""

from typing import Any

from labkit.exercises.task import Wrong, letters

WORDS = ("fine", "input", "straggler", "small operations", "synchronisation", "no overlap")
TRUTH = ("straggler", "fine", "input", "fine", "small operations", "no overlap")
LOOK_AT = {
    ("a", "input"): "Its steps hardly wait for input.",
    ("a", "no overlap"): "Compare the two ranks: which computes longer, and which waits?",
    ("a", "fine"): "Compare the two ranks: which computes longer, and which waits?",
    ("b", "no overlap"): "How much of each step does communication take alone?",
    ("b", "straggler"): "Both ranks compute for the same time.",
    ("d", "input"): "Its input threads are busy. Does a step ever wait for them?",
    ("e", "fine"): "Divide the time that is computed by the number of spans.",
    ("e", "synchronisation"): "Divide the time that is computed by the number of spans.",
    ("f", "fine"): "Is anything computed while it communicates?",
    ("f", "straggler"): "Both ranks compute and communicate for the same time.",
}


def causes(answer: Any) -> None:
    """The judge of six words, for the traces a to f."""
    given = answer.split(",") if isinstance(answer, str) else answer
    given = [*given.values()] if isinstance(given, dict) else given
    if not hasattr(given, "__len__") or len(given) != len(TRUTH):
        raise Wrong('Give six words, for a to f: answer = "fine, input, ...".')
    known = {letters(word): word for word in WORDS} | {"synchronization": "synchronisation"}
    words = [known.get(letters(one)) if isinstance(one, str) else None for one in given]
    if None in words:
        unknown = given[words.index(None)]
        raise Wrong(f"{unknown!r:.40} is not one of the words {', '.join(WORDS)}.")
    for trace, word, truth in zip("abcdef", words, TRUTH, strict=True):
        if word != truth:
            hint = LOOK_AT.get((trace, str(word)), "Look at its table and its picture again.")
            raise Wrong(f"{trace} is not {word!r}. {hint}")
