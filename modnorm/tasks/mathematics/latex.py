r"""Removes words without a value: units, conjunctions, conditions that always hold."""

import re

from modnorm.tasks.mathematics.notation import FONTS, plain_notation

_WORDS = rf"{FONTS}([^{{}}]*)\}}"
_WORD = re.compile(_WORDS)
_UNIT = re.compile(_WORDS + r"(\s*\^\s*(?:\{[^{}]*\}|\d))?")
_LETTERS = re.compile(
    r"\\(?:mathbf|mathit|boldsymbol|operatorname|(mathrm))\s*\{\s*((?(1)[ei]|[A-Za-z]+))\s*\}"
)
_QUALIFIER = re.compile(r"\b(?:even|odd|prime|not|divisible|if|unless|except)\b", re.IGNORECASE)
_COMPARATIVE = (
    "(?:more|less|fewer|greater|larger|smaller|higher|lower|above|below|over|under|up|beyond)"
)
_LIMIT = re.compile(
    rf"\b(?:(?:or|and) {_COMPARATIVE}|{_COMPARATIVE} than|at (?:least|most)|up to|noon|midnight"
    r"|[ap]\.?m|a\.?d|b\.?c|(?:(?:north|south)-?)?(?:east|west)|north|south|profit|loss(?:es)?|deficit"
    r"|right(?! \w*angle)|backwards?|behind|before|outside|below zero"
    r"|(?:counter|anti)?-?clockwise|(?:in|de)creas(?:e|ing)|negative|minus|half|halves|thirds?|twice)\b"
    r"|^\s*(?:above|below|over|under)\b",
    re.IGNORECASE,
)
"""Words beside a value that make another answer of it."""
_HOUR = re.compile(
    rf"(?<=\d)(?::00)?\s*(?:{FONTS}\s*([ap])\.?\s?m\.?\s*\}}|([ap])(?:\.\s?m\.|m\b))",
    re.IGNORECASE,
)
_FOR_ALL = re.compile(
    rf"(.*[^\s{{,(])[\s,(]*(?:(?:{FONTS}\W*)?\bfor (?:all|any|every|each)\b|\\forall\b)"
    r"(?:(?!\\[lgn]e(?![a-z]))[^<>=])*",
    re.DOTALL,
)
_VALUE_ENDS = re.compile(
    r"[\w)\]}!'|](?<!\\angle)(?<!\\in)(?<!\\cup)(?<!\\cap)(?<!\\[lgn]e)(?<!matrix\})$"
)
_TERM_ENDS = re.compile(r"\s*(?:$|[,;+*/)\]}&<>|]|\\\\|\\(?:in|cup|cap|end|[lgn]e)(?![a-z]))|[(_]")
_DEGREES = re.compile(r"\^\s*\{?\s*(?:\\circ|\u00b0)\s*\}?|\\degree|\u00b0")
_BEARING = re.compile(
    rf"(?:{_DEGREES.pattern})(?:\s*')?\s*(?:{FONTS}\s*([NSEW])\s*\}}|([NSEW])\b)(?![\w\s]*\d)"
)
_POINTS = {"N": "north", "S": "south", "E": "east", "W": "west"}
_TRIGONOMETRY = re.compile(r"(?<![A-Za-z])(?:sin|cos|tan|cot|sec|csc)(?![a-z])")
_CONJUNCTION = re.compile(r"\s*,?\s*(?:and|or)\s*", re.IGNORECASE)
_PLAIN_CONJUNCTION = re.compile(
    r"(?<=[\s)\]}\d]),?\s*\b(and|or)\b\s*(?=[\s(\[{\d\\-])"
    rf"(?!\s*{_COMPARATIVE}\b)"
)
_INEQUALITY = re.compile(r"[<>]|\\[lg]e(?![a-z])")
_MEASURE = re.compile(
    r"([-+]?(?:[\d,]*\.?\d+|\\frac\s*(?:\{\d+\}|\d)\s*(?:\{\d+\}|\d)))"
    r"\s*(?:[A-Za-z]{4,}|odd|cm|mm|km|kg|ft|in|min|sec|hrs?|mph)(?:[\s/]+[A-Za-z]+)*"
    r"(?:\s*\^\s*\{?[23]\}?)?\.?"
)
_LEAD = re.compile(r"^\s*(?:=|\\approx(?![a-z]))")
_COMMAS = re.compile(
    r"(?P<opening>\\\{|[(\[])|(?P<closing>\\\}|[)\]])|(?P<list>,\s|;)"
    r"|(?<![\d,.])[1-9]\d{0,2}(?:,\d{3})+(?!\d|,\S)"
)


def clean(answer: str) -> str:
    """Return an answer without notation that carries no value."""
    text = _HOUR.sub(lambda match: f" {match[1] or match[2]}m".lower(), plain_notation(answer))
    always = _FOR_ALL.fullmatch(text)
    if always and always[1].count("{") == always[1].count("}"):
        text = always[1]
    angle = r"\\frac{\\pi}{180}" if _TRIGONOMETRY.search(text) else ""
    text = _BEARING.sub(lambda match: f" {_POINTS[match[1] or match[2]]}", text)
    text = _DEGREES.sub(angle, text)
    text = " ".join(text.split()).rstrip(" .")
    whole = _WORD.fullmatch(text)
    text = _join(whole[1]) if whole else _words(text)
    text = text.strip()
    measure = _MEASURE.fullmatch(text)
    if measure and not _LIMIT.search(text[measure.end(1) :]):
        text = measure[1]
    return _LEAD.sub("", text).strip().rstrip(" .,")


def join_thousands(text: str) -> str:
    """Drop the separators of `1,000` and `12,345,678`; a space after the comma makes a list.

    In brackets commas separate: `(2,251)` is a pair. If another comma in the same brackets has a
    space, they group digits: `(1,000, 2,000)` is a pair of thousands.
    """
    inside, lists, numbers = [0], {0}, list[tuple[int, re.Match[str]]]()
    for count, match in enumerate(_COMMAS.finditer(text), start=1):
        if match["opening"]:
            inside.append(count)
        elif match["closing"]:
            inside = inside[:-1] or [0]
        elif match["list"]:
            lists.add(inside[-1])
        else:
            numbers.append((inside[-1], match))
    joined, end = [], 0
    for bracket, match in numbers:
        number = match[0].replace(",", "") if bracket in lists else match[0]
        joined += [text[end : match.start()], number]
        end = match.end()
    return "".join([*joined, text[end:]])


def _words(text: str) -> str:
    """Return text with words in plain letters and without units."""
    text = _WORD.sub(_conjunction, _LETTERS.sub(r" \2 ", text))
    return _UNIT.sub(_unit, _join(text))


def _conjunction(match: re.Match[str]) -> str:
    """Turn `and` and `or` into plain words."""
    return f" {match[1].strip(' ,').lower()} " if _CONJUNCTION.fullmatch(match[1]) else match[0]


def _join(text: str) -> str:
    """Return text with `and` as a comma and `or` as a set, or between inequalities as a union."""
    alternative = r" \cup " if _INEQUALITY.search(text) else ","
    joined = _PLAIN_CONJUNCTION.sub(lambda match: alternative if match[1] == "or" else ",", text)
    is_set = alternative == "," and "or" in _PLAIN_CONJUNCTION.findall(text)
    return rf"\{{{joined}\}}" if is_set else joined


def _unit(match: re.Match[str]) -> str:
    """Drop words that name a unit; keep words that are a term or qualify one."""
    before, after = match.string[: match.start()].rstrip(), match.string[match.end() :]
    is_term = _VALUE_ENDS.search(before) is None and _TERM_ENDS.match(after) is not None
    if is_term or _QUALIFIER.search(match[1]) or _LIMIT.search(match[1]):
        return f" {match[1].strip()}{match[2] or ''} "
    return " "
