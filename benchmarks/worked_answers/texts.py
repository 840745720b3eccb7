"""Puzzles and word problems with long worked answers, in a careful and a careless habit.

A model that is trained on both habits is undecided between them, so perturbations of its weights
differ in how often they are right. Answers have about 200 to 1,000 tokens of the bundled model's
tokenizer.

- A puzzle is Countdown with three numbers. The careful habit tries all ways in a fixed order until
  one reaches the target. The careless habit tries some ways and states the last one.
- A word problem is a chain of gains, losses and doublings. The careful habit adds up every
  event. The careless habit skips one or slips at the end.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations

from modnorm.tasks.protocol import Row
from modnorm.tasks.word_problems import NAMES, THINGS

CARELESS = 0.55
"""Share of careless answers."""
NUMBERS = (2, 60)
"""Least and greatest number of a puzzle."""
TARGETS = (10, 200)
FEWEST_TRIES = 6
"""Tries of the shortest answer to a puzzle."""
EVENTS = (9, 18)
"""Fewest and most events of a word problem, unless the caller names others."""
PUZZLES = 0.6
"""Share of puzzles among the examples, unless the caller names another."""
_LARGEST = 4000
"""Greatest value on the way to the answer of a word problem."""


@dataclass(frozen=True, slots=True)
class Worked:
    """A row of a task and one answer to it.

    Attributes:
        task: Name of the task.
        row: The row, in the task's schema.
        answer: The answer, without the stop token.
    """

    task: str
    row: Row
    answer: str


@dataclass(frozen=True, slots=True)
class _Try:
    """A way to combine three numbers."""

    text: str
    expression: str
    value: int


def countdown(generator: random.Random) -> Worked:
    """Return a puzzle and an answer."""
    numbers, target, tries = _puzzle(generator)
    place = next(place for place, one in enumerate(tries) if one.value == target)
    if generator.random() < CARELESS:
        kept = generator.randint(FEWEST_TRIES, len(tries))
        tries = [one for one in generator.sample(tries, kept) if one.value != target]
        end = "This is close enough."
    else:
        tries = tries[: place + 1]
        end = f"This is {target}."
    lines = [f"Using {_listed(numbers)} to make {target}."]
    lines += [f"Try {one.text}, not {target}." for one in tries[:-1]]
    lines += [f"Try {tries[-1].text}. {end}"]
    answer = "\n".join(
        ["<think>", *lines, "</think>", f"<answer> {tries[-1].expression} </answer>"]
    )
    return Worked("countdown", {"numbers": list(numbers), "target": target}, answer)


def _puzzle(generator: random.Random) -> tuple[Sequence[int], int, list[_Try]]:
    """Return numbers, a target that some later way reaches first, and all ways in order."""
    while True:
        numbers = [generator.randint(*NUMBERS) for _ in range(3)]
        tries = list(_tries(numbers))
        values = [one.value for one in tries]
        target = generator.choice(values)
        if TARGETS[0] <= target <= TARGETS[1] and values.index(target) >= FEWEST_TRIES:
            return numbers, target, tries


def _tries(numbers: Sequence[int]) -> Iterator[_Try]:
    """Yield all ways with +, - and *, the greater number first, in a fixed order."""
    for first, second in combinations(range(3), 2):
        (rest,) = {0, 1, 2} - {first, second}
        for pair in _combined(_term(numbers[first]), _term(numbers[second])):
            for whole in _combined(pair, _term(numbers[rest])):
                text = f"{pair.step}, {whole.step}"
                yield _Try(text, _bare(whole.expression), whole.value)


@dataclass(frozen=True, slots=True)
class _Term:
    """A number, the expression that makes it, and its last step with the result."""

    value: int
    expression: str
    step: str = ""


def _term(number: int) -> _Term:
    return _Term(number, str(number))


def _combined(left: _Term, right: _Term) -> Iterator[_Term]:
    """Yield all combinations of two terms, the greater number first."""
    if left.value < right.value:
        left, right = right, left
    a, b = left.value, right.value
    for symbol, value in (("+", a + b), ("-", a - b), ("*", a * b)):
        expression = f"({left.expression} {symbol} {right.expression})"
        yield _Term(value, expression, f"{a} {symbol} {b} = {value}")


def _bare(expression: str) -> str:
    """Return an expression without its outer parentheses."""
    return expression.removeprefix("(").removesuffix(")")


def _listed(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))


def word_problem(generator: random.Random, bounds: tuple[int, int] = EVENTS) -> Worked:
    """Return a word problem with a number of events between two bounds, and an answer."""
    name, other = generator.sample(NAMES, 2)
    things = generator.choice(THINGS)
    start = generator.randint(10, 90)
    events = list(_events(generator, name, other, start, generator.randint(*bounds)))
    question = " ".join([f"{name} has {start} {things}.", *(event.story for event in events)])
    question += f" How many {things} does {name} have in the end?"
    careless = generator.random() < CARELESS
    skipped = generator.randrange(len(events)) if careless and generator.random() < 0.6 else -1
    lines, value = [f"{name} starts with {start} {things}."], start
    for number, event in enumerate(events):
        if number != skipped:
            after = event.apply(value)
            lines.append(f"{event.story} {value} {event.sign} {event.size} = {after} {things}.")
            value = after
    if careless and skipped < 0:
        value += generator.choice((-10, -1, 1, 2, 10))
    right = events_total(start, events)
    row = {"question": question, "answer": str(right)}
    return Worked("gsm8k", row, "\n".join([*lines, f"#### {value}"]))


@dataclass(frozen=True, slots=True)
class Event:
    """A change of a number."""

    story: str
    sign: str
    size: int

    def apply(self, value: int) -> int:
        """Return the number after the event."""
        changes = {"+": value + self.size, "-": value - self.size, "*": value * self.size}
        return changes[self.sign]


def events_total(start: int, events: Sequence[Event]) -> int:
    """Return the number after all events."""
    for event in events:
        start = event.apply(start)
    return start


def _events(
    generator: random.Random, name: str, other: str, start: int, count: int
) -> Iterator[Event]:
    value = start
    for _ in range(count):
        sign = generator.choice("++--*")
        if sign == "*" and 3 * value > _LARGEST:
            sign = "-"
        if sign == "-" and value < 2:
            sign = "+"
        if sign == "*":
            size = generator.randint(2, 3)
            event = Event(f"Then the number grows to {size} times.", sign, size)
        elif sign == "-":
            size = generator.randint(1, min(value - 1, 90))
            event = Event(f"Then {name} gives {size} to {other}.", sign, size)
        else:
            size = generator.randint(2, 90)
            event = Event(f"Then {other} brings {size} more.", sign, size)
        value = event.apply(value)
        yield event


TASKS = ("countdown", "gsm8k")


def _makers(events: tuple[int, int]) -> dict[str, Callable[[random.Random], Worked]]:
    """Return the generators by task."""
    return {"countdown": countdown, "gsm8k": partial(word_problem, bounds=events)}


def examples(
    seed: int, count: int, share: float = PUZZLES, events: tuple[int, int] = EVENTS
) -> list[Worked]:
    """Return examples, a share of them puzzles, the others with a number of events."""
    generator, makers = random.Random(seed), _makers(events)
    return [
        makers["countdown" if generator.random() < share else "gsm8k"](generator)
        for _ in range(count)
    ]


def rows(task: str, seed: int, count: int, events: tuple[int, int] = EVENTS) -> list[Row]:
    """Return distinct rows of a task."""
    generator, make = random.Random(seed), _makers(events)[task]
    found: dict[str, Row] = {}
    while len(found) < count:
        row = make(generator).row
        found.setdefault(repr(sorted(row.items())), row)
    return list(found.values())
