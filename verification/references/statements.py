"""Completions for real rows: the reference answer and wrong answers."""

import ast
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from modnorm.tasks.puzzles import solve
from modnorm.tasks.rocstories import RocStories, right_order
from modnorm.tasks.row_files import Raw, RawRow

_NUMBER = re.compile(r"[0-9]+")
_LETTER = re.compile(r"\\[A-Za-z]+|(?P<letter>[A-Za-z])")
_OPERATORS = "+-*/"

Change = Callable[[str], Iterator[str]]


def change_numbers(answer: str) -> Iterator[str]:
    """Add one to each run of digits."""
    for match in _NUMBER.finditer(answer):
        number = str(int(match[0]) + 1).zfill(len(match[0]))
        yield _put(answer, match, number)


def change_sign(answer: str) -> Iterator[str]:
    """Remove a leading minus, or add one."""
    yield answer[1:] if answer.startswith("-") else f"-{answer}"


def change_letters(answer: str) -> Iterator[str]:
    """Replace each letter outside of commands by the next letter of the alphabet."""
    for match in _LETTER.finditer(answer):
        if match["letter"]:
            first = ord("a") if match[0].islower() else ord("A")
            yield _put(answer, match, chr(first + (ord(match[0]) - first + 1) % 26))


def change_operators(expression: str) -> Iterator[str]:
    """Replace each operator by each of the others."""
    for match in re.finditer(r"[-+*/]", expression):
        for operator in _OPERATORS.replace(match[0], ""):
            yield _put(expression, match, operator)


def exchange_numbers(expression: str) -> Iterator[str]:
    """Exchange each pair of different numbers."""
    for left, right in combinations(_NUMBER.finditer(expression), 2):
        if left[0] != right[0]:
            yield _put(_put(expression, right, left[0]), left, right[0])


def exchange_letters(order: str) -> Iterator[str]:
    for left, right in combinations(order, 2):
        yield order.translate(str.maketrans(left + right, right + left))


def repeat_letters(order: str) -> Iterator[str]:
    """Replace each other letter by the first."""
    for letter in order[1:]:
        yield order.replace(letter, order[0])


def repeat_numbers(expression: str) -> Iterator[str]:
    """Add and subtract each number once more."""
    for number in _NUMBER.findall(expression):
        yield f"{expression} + {number} - {number}"


def drop_numbers(expression: str) -> Iterator[str]:
    """Keep one side of the last operation."""
    tree = ast.parse(expression, mode="eval").body
    if isinstance(tree, ast.BinOp):
        yield from (ast.unparse(tree.left), ast.unparse(tree.right))


def return_nothing(program: str) -> str:
    """Replace each returned value of a program by None."""
    return ast.unparse(_Emptied().visit(ast.parse(program)))


def break_test(test: str) -> str:
    """Change a test `assert A == B` to expect a pair that contains B."""
    tree = ast.parse(test)
    for node in ast.walk(tree):
        if isinstance(node, ast.Assert) and isinstance(node.test, ast.Compare):
            expected = node.test.comparators[-1]
            pair = ast.Tuple([expected, ast.Constant("broken")], ast.Load())
            node.test.comparators[-1] = pair
    return ast.unparse(tree)


class _Emptied(ast.NodeTransformer):
    def visit_Return(self, node: ast.Return) -> ast.Return:
        return ast.copy_location(ast.Return(ast.Constant(None)), node)


def _put(text: str, match: re.Match[str], replacement: str) -> str:
    return text[: match.start()] + replacement + text[match.end() :]


NUMERIC: Mapping[str, Change] = {"number changed": change_numbers, "sign changed": change_sign}
MATHEMATICAL: Mapping[str, Change] = {**NUMERIC, "letter changed": change_letters}
ORDERS: Mapping[str, Change] = {
    "letters exchanged": exchange_letters,
    "letter repeated": repeat_letters,
}
ARITHMETIC: Mapping[str, Change] = {
    "number changed": change_numbers,
    "operator changed": change_operators,
    "numbers exchanged": exchange_numbers,
    "number repeated": repeat_numbers,
    "number left out": drop_numbers,
}


REWORDED = "written otherwise"
"""Name of wordings that are equivalent to the reference."""
CLASSES = range(1, 11)
_ID_COLUMNS = {"countdown": "id", "math500": "unique_id", "mbpp": "task_id", "olympiadbench": "id"}
_MARKED = re.compile(r"\\[!,]|\d,\d{3}(?!\d)")
_CHANGES: tuple[Callable[[str], str], ...] = (
    lambda answer: f"${answer}$",
    lambda answer: rf"\[{answer}\]",
    lambda answer: f"{answer}.",
    lambda answer: rf"\displaystyle {answer}",
    lambda answer: answer.replace(r"\frac", r"\dfrac"),
    lambda answer: answer.replace(r"\text{", r"\textbf{"),
    lambda answer: answer.replace("-", "\u2212"),
    lambda answer: re.sub(r"\\(?:left|right)(?![a-z])", "", answer),
    lambda answer: re.sub(r"\\sqrt\{(\d)\}", r"\\sqrt\1", answer),
    lambda answer: re.sub(r"^\\frac\{(\d+)\}\{(\d+)\}$", r"\1/\2", answer),
    lambda answer: re.sub(r"(?<=\d)(\\sqrt|\\pi)", r" \\cdot \1", answer),
    lambda answer: re.sub(r"^-?\d+$", r"\g<0>.0", answer),
    lambda answer: re.sub(r"^-?\d+$", r"x = \g<0>", answer),
    lambda answer: re.sub(r"^-?[\d.]+$", r"\g<0> \\text{ units}", answer),
    lambda answer: answer if _MARKED.search(answer) else re.sub(r",\s*", ", ", answer),
    lambda answer: answer if _MARKED.search(answer) else re.sub(r",\s*", r",\\,", answer),
    lambda answer: re.sub(r"^(\\\$)?(\d{1,3}),(?:\\!)?(\d{3})$", r"\1\2{,}\3", answer),
    lambda answer: re.sub(
        r"^\(\d+(?:,\d+)+\)$", lambda match: match[0].replace(",", ", "), answer
    ),
)


def rewordings(answer: str) -> Iterator[str]:
    """Yield the other spellings, each once."""
    made = dict.fromkeys(change(answer) for change in _CHANGES)
    made.pop(answer, None)
    yield from made


@dataclass(frozen=True, slots=True)
class Wording:
    """A completion, and whether it must count as correct."""

    name: str
    right: bool
    answer: str
    """The stated answer."""
    completion: str
    raw: Raw | None = None
    """The raw row to judge it on; None for the statement's row."""


@dataclass(frozen=True, slots=True)
class Statement:
    """A wording for a row."""

    row_id: str
    """The data set's id of the row, or its file and line without an id."""
    place: str
    truth: str
    raw: Raw
    wording: Wording


def tasks() -> Sequence[str]:
    """Return the names of the tasks with wordings."""
    return tuple(_TASKS)


def state(task: str, rows: Sequence[RawRow]) -> Iterator[Statement]:
    """Yield all statements for the rows of a task."""
    truth_of, words_of = _TASKS[task]
    truths = [truth_of(raw) for _, raw in rows]
    for index, (place, raw) in enumerate(rows):
        row_id = str(raw[_ID_COLUMNS[task]]) if task in _ID_COLUMNS else place
        order = (number % len(rows) for number in range(index + 1, index + len(rows)))
        other = next((number for number in order if truths[number] != truths[index]), index)
        for wording in words_of(raw, truths[index], rows[other][1]):
            yield Statement(row_id, place, truths[index], wording.raw or raw, wording)


def _changed(
    changes: Mapping[str, Change], truth: str, word: Callable[[str], str]
) -> Iterator[Wording]:
    for name, change in changes.items():
        for answer in change(truth):
            yield _wrong(name, answer, word(answer))


def _right(name: str, answer: str, completion: str) -> Wording:
    return Wording(name, right=True, answer=answer, completion=completion)


def _wrong(name: str, answer: str, completion: str) -> Wording:
    return Wording(name, right=False, answer=answer, completion=completion)


def _box(answer: str) -> str:
    return f"\\boxed{{{answer}}}"


def _tag(answer: str) -> str:
    return f"<answer>{answer}</answer>"


def _gsm8k_truth(raw: Raw) -> str:
    return str(raw["answer"]).rpartition("####")[2].strip()


def _gsm8k(raw: Raw, truth: str, other: Raw) -> Iterator[Wording]:
    solution, answer = str(raw["answer"]).rpartition("####")[0], _gsm8k_truth(other)
    yield _right("own solution", truth, str(raw["answer"]))
    yield _right("####", truth, f"#### {truth}")
    yield from _changed(NUMERIC, truth, lambda answer: f"{solution}#### {answer}")
    yield _wrong("another row's", answer, f"{solution}#### {answer}")


def _math500(raw: Raw, truth: str, other: Raw) -> Iterator[Wording]:
    yield _right("box", truth, _box(truth))
    yield _right("own solution", truth, str(raw["solution"]))
    for answer in rewordings(truth):
        yield _right(REWORDED, answer, _box(answer))
    yield from _changed(MATHEMATICAL, truth, _box)
    answer = str(other["answer"])
    yield _wrong("another row's", answer, _box(answer))


def _olympiad_entry(raw: Raw) -> str:
    answers = raw["final_answer"]
    return str(answers[0] if isinstance(answers, list) else answers)


def _olympiad_truth(raw: Raw) -> str:
    return _olympiad_entry(raw).strip().removeprefix("$").removesuffix("$").strip()


def _olympiad(raw: Raw, truth: str, other: Raw) -> Iterator[Wording]:
    yield _right("box after ####", truth, f"#### {_box(truth)}")
    yield _right("####", truth, f"#### {_olympiad_entry(raw)}")
    for answer in rewordings(truth):
        yield _right(REWORDED, answer, f"#### {_box(answer)}")
    yield from _changed(MATHEMATICAL, truth, lambda answer: f"#### {_box(answer)}")
    answer = _olympiad_truth(other)
    yield _wrong("another row's", answer, f"#### {_box(answer)}")


def _uspto(_raw: Raw, truth: str, _other: Raw) -> Iterator[Wording]:
    yield _right("answer tag", truth, _tag(truth))
    for number in (0, *CLASSES, CLASSES.stop):
        if str(number) != truth:
            name = "another class" if number in CLASSES else "no class"
            yield _wrong(name, str(number), _tag(str(number)))


def _thought(answer: str) -> str:
    return f"</think>\n{_tag(answer)}"


def _countdown(raw: Raw, truth: str, _other: Raw) -> Iterator[Wording]:
    solution, numbers = str(raw["solution"]), raw["numbers"]
    yield _right("stored solution", solution, _thought(solution))
    used = [int(number) for number in _NUMBER.findall(solution)]
    if isinstance(numbers, list) and sorted(used) != sorted(numbers) and "." not in truth:
        by_search = solve(numbers, int(truth))
        if by_search is not None:
            yield _right("found by search", by_search, _thought(by_search))
    if used:
        yield from _changed(ARITHMETIC, solution, _thought)


def _rocstories(_raw: Raw, truth: str, _other: Raw) -> Iterator[Wording]:
    yield _right("letters", truth, ",".join(truth))
    yield from _changed(ORDERS, truth, ",".join)


def _mbpp(raw: Raw, truth: str, other: Raw) -> Iterator[Wording]:
    yield _right("answer tag", truth, _tag(truth))
    tests = raw["test_list"]
    broken = [*tests[:-1], break_test(str(tests[-1]))] if isinstance(tests, list) else []
    yield replace(_wrong("last test broken", truth, _tag(truth)), raw={**raw, "test_list": broken})
    programs = {"returns nothing": return_nothing(truth), "another row's": str(other["code"])}
    for name, program in programs.items():
        yield _wrong(name, program, _tag(program))


_Words = Callable[[Raw, str, Raw], Iterator[Wording]]
_TASKS: Mapping[str, tuple[Callable[[Raw], str], _Words]] = {
    "countdown": (lambda raw: str(raw["target"]), _countdown),
    "gsm8k": (_gsm8k_truth, _gsm8k),
    "math500": (lambda raw: str(raw["answer"]), _math500),
    "mbpp": (lambda raw: str(raw["code"]), _mbpp),
    "olympiadbench": (_olympiad_truth, _olympiad),
    "rocstories": (lambda raw: right_order(RocStories().parse(raw)), _rocstories),
    "uspto50k": (lambda raw: str(raw["class"]), _uspto),
}
"""By task: the right answer of a row, and the wordings of its references and wrong answers, from
the row, its right answer and the next row with another answer."""
