r"""Reads numbers: a text that is a number, the number that an answer states, the last of a text.

A number has one canonical form: a decimal if it has a finite one, else a fraction.
"""

import re
from collections import deque
from fractions import Fraction
from functools import lru_cache

from modnorm.tasks.mathematics.expressions import ExpressionSyntaxError, evaluate, read
from modnorm.tasks.mathematics.notation import plain_notation

_WINDOW = 200
"""Characters before the last digit of a completion, and after it, that `last_number` reads."""
_MAX_BITS = 1000
"""Largest size of a denominator that is shown as a decimal."""

_REPLACED = (
    (re.compile("\u066c"), ","),
    (re.compile("\u066b"), "."),
    (re.compile(r"\*\*(?![\d(])|(?<![\d)])\*\*|[`_]|\\$"), " "),
    (re.compile(r"\b(?:minus|negative)\s+(?=[\d.])", re.IGNORECASE), "-"),
    (re.compile(r"(?<=\d)\s+and\s+(?=\d+/\d)", re.IGNORECASE), " "),
    (re.compile(r"(?<=\d)\s+and\s+a\s+half\b", re.IGNORECASE), " 1/2"),
    (re.compile(r"(?<=\d):00(?![\d:])"), ""),
    (re.compile(r"(?<=\d)[kK](?![A-Za-z])"), "*1000"),
    (re.compile(r"(?<=\d)M(?![A-Za-z])"), "*1000000"),
    (re.compile(r"(?<=\d)(?:B|\s?bn)(?![A-Za-z])"), "*1000000000"),
    (re.compile(r"(?<=\d)\s*[xX]\s*(?=[-(\d])"), " * "),
)
_GROUPED = re.compile(
    r"(?<![\d.,'])\d{1,3}(?:(?:,\d{3})+|(?:,\d\d)+,\d{3}|(?:['\u2019\u02bc]\d{3})+|(?: \d{3})+)"
    r"(?!\d|[ ,'\u2019\u02bc/:]\d)"
)
_EUROPEAN = re.compile(r"(?<![\d.,])\d{1,3}(?:(?:\.\d{3}){2,}|(?:\.\d{3})+,\d\d?)(?!\d|[.,]\d)")

_LITERAL = (
    r"(?<!\d)(?<!\d\.)(?:\d+(?:\.\d+)?|\.\d+)(?:[eE][-+]?\d{1,3})?(?!\d|[.,:]\d|\.?\\overline)"
)
_FRACTION = r"\\frac\s*(?:\{\s*-?[\d.]+\s*\}|\d)\s*(?:\{\s*[\d.]+\s*\}|\d)"
_TERM = (
    rf"(?:\d*\.\d*\\overline\{{\d+\}}|{_LITERAL}(?:\s*{_FRACTION}|\s+\d+/\d+(?![\d/]))?|{_FRACTION})"
    r"(?:\s*\^\s*(?:\{\s*-?\d{1,3}\s*\}|\d))?"
)
_CALCULATION = re.compile(
    rf"(?:[-+]\s*)?\(*[-+]?{_TERM}\)*(?:\s*(?:[-+/]|\*\*?)\s*[-+(]*{_TERM}\)*)*", re.ASCII
)
_AMOUNT = rf"{_TERM}(?:/\d+(?:\.\d+)?)?(?:\*\d+(?:/\d+)?)?(?![*/]\d)"
_PLAIN = re.compile(rf"[-+]?{_AMOUNT}", re.ASCII)
_NUMBER = re.compile(
    rf"(?P<other>\d+(?::\d+)+|\d+(?:/\d+){{2,}})|(?:(?<![\d)])-)?{_AMOUNT}", re.ASCII
)
_DIGIT = re.compile(r"[0-9]")
_TO_LAST_DIGIT = re.compile(".*[0-9\u00bc-\u00be\u2150-\u215e\u2189\uff10-\uff19]", re.DOTALL)
_UNCLEAR = re.compile(r"\d-\d|\d/\d+/\d")
"""A range, a telephone number or a date."""
_ASIDE = re.compile(r"(?<=[\w.}])\s+[(\[][^()\[\]]*[)\]]?")
_CLAUSE_END = re.compile(
    r"(?<=[\w.)}])(?:\s*;|,(?=\s)|\.\s|\s+(?:as|because|since|so|which)\b).*", re.DOTALL
)
_DECORATION = " *:>\"'\t\n"
_ANOTHER = re.compile(r"[;,]\s*(?:(?:and|or)\s+)?(?:\w+\s*[:=]\s*)?-?\d")
_EQUALS = re.compile(r"=+>?|\\approx|\\Rightarrow|\\to\b|\u2192")
_VERB = re.compile(
    r"(?:\b(?:is|are|was|were|be|equals?|gets?|makes?|has|needs|costs|earns|pays)\b|:)[\s*]*"
    r"(?=[-+(]*[\d.\\])"
)
_PART = re.compile(r"\b(?:half|third|quarter|twice|double|triple)\b", re.IGNORECASE)
_SPELLED = re.compile(
    r"\W*(?:and\s+)?(?:(?:zero|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|fifteen"
    r"|(?:thir|four|six|seven|eigh|nine)teen|(?:twen|thir|for|fif|six|seven|eigh|nine)ty|hundred"
    r"|thousand|[mb]illion)\b|(?:halves|thirds|(?:four|fif|six|seven|eigh|nin|ten)ths)\b)",
    re.IGNORECASE,
)
"""The start of a number in words; after digits it adds to them or divides them."""
_FUNCTION = re.compile(r"\\(?:sqrt|log|ln|sin|cos|tan|d?binom|pi)(?![a-z])")
_CONTINUED = re.compile(
    r"\s*(?:and|or)\b|[^\d]*(?:[-+*/:\u2013\u2014]|\\pm)\s*\d|\s*[,'\u2019]?\s*\d"
    r"|.*\b(?:and|or|to|than|of|plus|minus|times|by)\W+(?:the\s+)?\d"
    r"|.*(?<!to )\b(?:are|equals?|gets?|makes?|has|have|needs?|costs?|earns?|pays?)\W+\d"
    r"|\s*(?!(?:in|for|at|per|after|from|on|with|each|every)\b)[A-Za-z.]+,?\s*\d",
    re.DOTALL,
)
"""Text after a number that adds another one."""


def number(text: str) -> str | None:
    """Return the canonical form of a text that is a number as a whole; None for other texts.

    Currency, percent signs, grouped digits, fractions, scale words and calculations are read:
    `$1,000`, `3 1/2`, `1.5 million`, `20 / 4`. A time, a range or a unit is no number.
    """
    match = _CALCULATION.fullmatch(_simple(text).strip().removesuffix("."))
    return None if match is None else _value(match[0])


@lru_cache(maxsize=16_384)
def stated_number(answer: str) -> str | None:
    """Return the number that an answer states; None if it states none, or perhaps another.

    It is the result of a calculation, the number that the answer begins with, its only number, or
    the number after its last verb or colon: `20 / 4 = 5`, `18 (9 eggs at 2 each)`, `So 18 eggs`,
    `2 days make 18`. A text after the number may add units and reasons, not another number.
    """
    text = _ASIDE.sub("", _simple(answer)).strip(_DECORATION)
    leading = _CALCULATION.match(text)
    end = _CLAUSE_END.search(text, leading.end()) if leading else None
    if _ANOTHER.match(end[0]) if end else not leading and _ANOTHER.search(text):
        return None
    clause = text[: end.start()] if end else text
    sides = [side.strip(_DECORATION) for side in _EQUALS.split(clause) if _DIGIT.search(side)]
    if len(sides) > 1 and _PLAIN.match(sides[0]) and not _PLAIN.fullmatch(sides[-1]):
        result = _CALCULATION.fullmatch(sides[-1])
        return _side(sides[0] if result else sides[-1])
    return _side(sides[-1]) if sides else None


def last_number(text: str) -> str | None:
    """Return the last number of a text; None without one, or if a time or a date is the last."""
    before = _TO_LAST_DIGIT.match(text)
    if before is None:
        return None
    window = text[max(0, before.end() - _WINDOW) : before.end() + _WINDOW]
    last = next(iter(deque(_NUMBER.finditer(_simple(window)), 1)), None)
    if last is None or last["other"] or _SPELLED.match(last.string, last.end()):
        return None
    return _value(last[0])


def is_spelled(text: str) -> bool:
    """Whether a text begins with a number in words, which has no vote."""
    return _SPELLED.match(text) is not None


def _side(text: str) -> str | None:
    """Return the number of a side of an equation, which may have words around it."""
    match = _CALCULATION.match(text)
    if match is None:
        if re.search(r"\d,\d", text) or _PART.search(text) or _FUNCTION.search(text):
            return None
        numbers = list(_NUMBER.finditer(text))
        if any(found["other"] for found in numbers):
            return None
        verbs = list(_VERB.finditer(text))
        if len(numbers) == 1:
            match = numbers[0]
        elif len(verbs) == 1:
            match = _CALCULATION.match(text, verbs[0].end())
    if match is None or any(more.match(text, match.end()) for more in (_CONTINUED, _SPELLED)):
        return None
    if text[match.end() :][:1].isalpha() and not _PLAIN.fullmatch(match[0]):  # 5 + 3x
        return None
    return _value(match[0])


def _simple(text: str) -> str:
    """Return a text in plain notation, without separators of digits."""
    text = plain_notation(text)
    for pattern, replacement in _REPLACED:
        text = pattern.sub(replacement, text)
    text = _EUROPEAN.sub(lambda match: match[0].replace(".", "").replace(",", "."), text)
    return _GROUPED.sub(lambda match: re.sub(r"\D", "", match[0]), text)


def _value(expression: str) -> str | None:
    """Return the canonical form of a calculation; None if it has no value or may be none."""
    if _UNCLEAR.search(expression):
        return None
    try:
        function, symbols = read(expression)
        (value,) = evaluate(function, symbols)
    except (ExpressionSyntaxError, ArithmeticError, ValueError):
        return None
    is_range = " - " in expression and isinstance(value, Fraction) and value < 0
    return _form(value) if isinstance(value, Fraction) and not is_range else None


def _form(value: Fraction) -> str:
    places = value.denominator.bit_length()
    scaled = abs(value) * 10**places
    if places > _MAX_BITS or scaled.denominator > 1:
        return str(value)
    digits = str(scaled).zfill(places + 1)
    sign = "-" if value < 0 else ""
    return f"{sign}{digits[:-places]}.{digits[-places:]}".rstrip("0").rstrip(".")
