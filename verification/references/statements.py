"""Completions for real rows: the reference answer and wrong answers."""

import ast
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from types import MappingProxyType

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
    """Exchange each pair of letters."""
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


NUMERIC: Mapping[str, Change] = MappingProxyType(
    {"number changed": change_numbers, "sign changed": change_sign}
)
MATHEMATICAL: Mapping[str, Change] = MappingProxyType(
    {**NUMERIC, "letter changed": change_letters}
)
ORDERS: Mapping[str, Change] = MappingProxyType(
    {"letters exchanged": exchange_letters, "letter repeated": repeat_letters}
)
ARITHMETIC: Mapping[str, Change] = MappingProxyType(
    {
        "number changed": change_numbers,
        "operator changed": change_operators,
        "numbers exchanged": exchange_numbers,
        "number repeated": repeat_numbers,
        "number left out": drop_numbers,
    }
)


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
    lambda answer: re.sub(r"^\(\d+(?:,\d+)+\)$", _spaced, answer),
)


def rewordings(answer: str) -> Iterator[str]:
    """Yield the other spellings, each once."""
    made = dict.fromkeys(change(answer) for change in _CHANGES)
    made.pop(answer, None)
    yield from made


def _spaced(match: re.Match[str]) -> str:
    return match[0].replace(",", ", ")


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


@dataclass(frozen=True, slots=True)
class _Words:
    """Wordings of a task's references and wrong answers."""

    truth: Callable[[Raw], str]
    right: Callable[[Raw], Iterator[Wording]]
    wrong: Callable[[Raw, Raw], Iterator[Wording]]
    """Built from a row and the next row with another answer."""


def tasks() -> Sequence[str]:
    """Return the names of the tasks with wordings."""
    return tuple(_TASKS)


def state(task: str, rows: Sequence[RawRow]) -> Iterator[Statement]:
    """Yield all statements for the rows of a task."""
    words = _TASKS[task]
    truths = [words.truth(raw) for _, raw in rows]
    for index, (place, raw) in enumerate(rows):
        row_id = str(raw[_ID_COLUMNS[task]]) if task in _ID_COLUMNS else place
        other = rows[_next_different(truths, index)][1]
        for wording in (*words.right(raw), *words.wrong(raw, other)):
            yield Statement(row_id, place, truths[index], wording.raw or raw, wording)


def _next_different(truths: Sequence[str], index: int) -> int:
    order = (number % len(truths) for number in range(index + 1, index + len(truths)))
    return next((number for number in order if truths[number] != truths[index]), index)


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


def _gsm8k_truth(raw: Raw) -> str:
    return str(raw["answer"]).rpartition("####")[2].strip()


def _gsm8k_right(raw: Raw) -> Iterator[Wording]:
    truth = _gsm8k_truth(raw)
    yield _right("own solution", truth, str(raw["answer"]))
    yield _right("####", truth, f"#### {truth}")


def _gsm8k_wrong(raw: Raw, other: Raw) -> Iterator[Wording]:
    solution = str(raw["answer"]).rpartition("####")[0]
    yield from _changed(NUMERIC, _gsm8k_truth(raw), lambda answer: f"{solution}#### {answer}")
    answer = _gsm8k_truth(other)
    yield _wrong("another row's", answer, f"{solution}#### {answer}")


def _box(answer: str) -> str:
    return f"\\boxed{{{answer}}}"


def _math500_truth(raw: Raw) -> str:
    return str(raw["answer"])


def _math500_right(raw: Raw) -> Iterator[Wording]:
    truth = _math500_truth(raw)
    yield _right("box", truth, _box(truth))
    yield _right("own solution", truth, str(raw["solution"]))
    for answer in rewordings(truth):
        yield _right(REWORDED, answer, _box(answer))


def _math500_wrong(raw: Raw, other: Raw) -> Iterator[Wording]:
    yield from _changed(MATHEMATICAL, _math500_truth(raw), _box)
    answer = _math500_truth(other)
    yield _wrong("another row's", answer, _box(answer))


def _olympiad_truth(raw: Raw) -> str:
    return _olympiad_entry(raw).strip().removeprefix("$").removesuffix("$").strip()


def _olympiad_entry(raw: Raw) -> str:
    answers = raw["final_answer"]
    return str(answers[0] if isinstance(answers, list) else answers)


def _olympiad_right(raw: Raw) -> Iterator[Wording]:
    truth = _olympiad_truth(raw)
    yield _right("box after ####", truth, f"#### {_box(truth)}")
    yield _right("####", truth, f"#### {_olympiad_entry(raw)}")
    for answer in rewordings(truth):
        yield _right(REWORDED, answer, f"#### {_box(answer)}")


def _olympiad_wrong(raw: Raw, other: Raw) -> Iterator[Wording]:
    truth = _olympiad_truth(raw)
    yield from _changed(MATHEMATICAL, truth, lambda answer: f"#### {_box(answer)}")
    answer = _olympiad_truth(other)
    yield _wrong("another row's", answer, f"#### {_box(answer)}")


def _tag(answer: str) -> str:
    return f"<answer>{answer}</answer>"


def _uspto_right(raw: Raw) -> Iterator[Wording]:
    truth = str(raw["class"])
    yield _right("answer tag", truth, _tag(truth))


def _uspto_wrong(raw: Raw, _: Raw) -> Iterator[Wording]:
    for number in CLASSES:
        if number != raw["class"]:
            yield _wrong("another class", str(number), _tag(str(number)))
    for number in (0, CLASSES.stop):
        yield _wrong("no class", str(number), _tag(str(number)))


def _thought(answer: str) -> str:
    return f"</think>\n{_tag(answer)}"


def _countdown_right(raw: Raw) -> Iterator[Wording]:
    solution = str(raw["solution"])
    yield _right("stored solution", solution, _thought(solution))
    numbers, target = raw["numbers"], str(raw["target"])
    used = [int(number) for number in re.findall("[0-9]+", solution)]
    if isinstance(numbers, list) and sorted(used) != sorted(numbers) and "." not in target:
        by_search = solve(numbers, int(target))
        if by_search is not None:
            yield _right("found by search", by_search, _thought(by_search))


def _countdown_wrong(raw: Raw, _: Raw) -> Iterator[Wording]:
    solution = str(raw["solution"])
    if re.search("[0-9]", solution):
        yield from _changed(ARITHMETIC, solution, _thought)


def _rocstories_truth(raw: Raw) -> str:
    return right_order(RocStories().parse(raw))


def _rocstories_right(raw: Raw) -> Iterator[Wording]:
    truth = _rocstories_truth(raw)
    yield _right("letters", truth, ",".join(truth))


def _rocstories_wrong(raw: Raw, _: Raw) -> Iterator[Wording]:
    truth = _rocstories_truth(raw)
    for name, change in ORDERS.items():
        for answer in change(truth):
            yield _wrong(name, answer, ",".join(answer))


def _mbpp_right(raw: Raw) -> Iterator[Wording]:
    code = str(raw["code"])
    yield _right("answer tag", code, _tag(code))


def _mbpp_wrong(raw: Raw, other: Raw) -> Iterator[Wording]:
    code, tests = str(raw["code"]), raw["test_list"]
    broken = [*tests[:-1], break_test(str(tests[-1]))] if isinstance(tests, list) else []
    yield replace(_wrong("last test broken", code, _tag(code)), raw={**raw, "test_list": broken})
    for name, program in (
        ("returns nothing", return_nothing(code)),
        ("another row's", str(other["code"])),
    ):
        yield _wrong(name, program, _tag(program))


_TASKS: Mapping[str, _Words] = MappingProxyType(
    {
        "countdown": _Words(lambda raw: str(raw["target"]), _countdown_right, _countdown_wrong),
        "gsm8k": _Words(_gsm8k_truth, _gsm8k_right, _gsm8k_wrong),
        "math500": _Words(_math500_truth, _math500_right, _math500_wrong),
        "mbpp": _Words(lambda raw: str(raw["code"]), _mbpp_right, _mbpp_wrong),
        "olympiadbench": _Words(_olympiad_truth, _olympiad_right, _olympiad_wrong),
        "rocstories": _Words(_rocstories_truth, _rocstories_right, _rocstories_wrong),
        "uspto50k": _Words(lambda raw: str(raw["class"]), _uspto_right, _uspto_wrong),
    }
)
