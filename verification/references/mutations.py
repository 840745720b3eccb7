"""Changes that make answers wrong."""

import ast
import re
from collections.abc import Callable, Iterator, Mapping
from itertools import combinations
from types import MappingProxyType

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
