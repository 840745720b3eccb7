r"""Splits answers at the structure around expressions: separators, brackets, matrices, signs."""

import re
from collections.abc import Collection

_TOKEN = re.compile(r"\\[A-Za-z]+|\\.|.", re.DOTALL)
_OPENING = frozenset({"(", "[", "{", r"\{", r"\begin", r"\lfloor", r"\lceil", r"\langle"})
_CLOSING = frozenset({")", "]", "}", r"\}", r"\end", r"\rfloor", r"\rceil", r"\rangle"})
_MATRIX = re.compile(r"\\begin\s*\{([pbvB]?matrix)\}(.*)\\end\s*\{\1\}", re.DOTALL)
_SIGNS = re.compile(r"\\(?:pm|mp)(?![a-z])")
_NAME = re.compile(
    r"(?:\\angle\s*)?\\?[A-Za-z][A-Za-z\s']*(?:_\s*(?:\{[^{}]*\}|\w))?(?:\^\{-1\})?(?:\([A-Za-z\d,\s]+\))?"
)


def split(text: str, separators: Collection[str]) -> tuple[list[str], list[str]]:
    """Return the parts between separators outside all brackets, and these separators.

    Args:
        text: Cleaned text.
        separators: Single characters and commands.
    """
    parts, met, start, depth = [], [], 0, 0
    for match in _TOKEN.finditer(text):
        token = match[0]
        if token in _OPENING:
            depth += 1
        elif token in _CLOSING:
            depth -= 1
        elif depth == 0 and token in separators:
            parts.append(text[start : match.start()].strip())
            met.append(token)
            start = match.end()
    parts.append(text[start:].strip())
    return parts, met


def bracketed(text: str, openings: Collection[str]) -> tuple[str, str, str] | None:
    """Return opening, content and closing if one pair of brackets encloses the text."""
    tokens = list(_TOKEN.finditer(text))
    if not tokens or tokens[0][0] not in openings or tokens[-1][0] not in _CLOSING:
        return None
    depth = 0
    for match in tokens[:-1]:
        depth += (match[0] in _OPENING) - (match[0] in _CLOSING)
        if depth == 0:
            return None
    return tokens[0][0], text[tokens[0].end() : tokens[-1].start()].strip(), tokens[-1][0]


def matrix_rows(text: str) -> list[list[str]] | None:
    """Return the entries of a matrix by row; None if the text is no matrix."""
    match = _MATRIX.fullmatch(text)
    if match is None:
        return None
    rows = [row for row in re.split(r"\\\\(?:\[[^\]]*\])?", match[2]) if row.strip()]
    return [[entry.strip() for entry in row.split("&")] for row in rows]


def is_name(text: str) -> bool:
    r"""Whether a text names a quantity, like the left side of `x = 5` or `f(n) = n^2`."""
    return _NAME.fullmatch(text) is not None


def sign_readings(text: str) -> tuple[str, str] | None:
    r"""Return the two readings of a text with `\pm` or `\mp`, upper signs first; else None."""
    if _SIGNS.search(text) is None:
        return None
    upper = _SIGNS.sub(lambda match: "+" if match[0] == r"\pm" else "-", text)
    lower = _SIGNS.sub(lambda match: "-" if match[0] == r"\pm" else "+", text)
    return upper, lower
