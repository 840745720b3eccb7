"""Writes answers in one notation: ASCII and plain LaTeX, without spacing, sizes and currency."""

import math
import re
from fractions import Fraction
from unicodedata import normalize

FONTS = r"\\(?:text|textbf|textit|textrm|mbox|mathrm|mathbf|mathit|boldsymbol|operatorname)\s*\{"
"""The start of a group in a font."""

_SCALES = {
    "hundred": Fraction(100), "thousand": Fraction(10**3), "million": Fraction(10**6),
    "billion": Fraction(10**9), "trillion": Fraction(10**12), "lakh": Fraction(10**5),
    "crore": Fraction(10**7), "dozen": Fraction(12),
}  # fmt: skip
_SCALE = re.compile(
    rf"(?<=[\d}}])\s*({FONTS}\s*)?((?:[\s-]*\b(?:(?:{'|'.join(_SCALES)})(?:ths|th|s)?)\b)+)",
    re.IGNORECASE,
)
_EMPTY = re.compile(rf"{FONTS}\s*\}}")
_SCALE_WORD = re.compile(r"([a-z]+?)(ths?)?s?\b")
_FRACTION_SIGN = re.compile("[\u00bc-\u00be\u2150-\u215e\u2189]")
_SUPERSCRIPTS = re.compile("[\u00b2\u00b3\u00b9\u2070-\u207f]+")
_SUBSCRIPTS = re.compile("[\u2080-\u208e]+")
_SEPARATOR = r"(?:\{(?:,|\\[,!])\}|\\text\{,\}|,?\\!\s*,?|\\[,;: ]|[~\u00a0\u2007-\u200a\u202f])"
_GROUPING = re.compile(rf"(?<=\d){_SEPARATOR}(?=(?:\d{{2,3}}{_SEPARATOR})*\d{{3}}(?!\d))")
_CURRENCY = re.compile(
    r"(?<![A-Za-z\\])(?:(?:US|AU|CA|NZ|HK|[ACRS])(?=\\?\$\s*\d)|(?:USD|EUR|GBP|INR|Rs\.?)(?=\s*\d))"
    r"|(?<=\d)\s*(?:USD|EUR|GBP|INR)\b|\\(?:pounds|euro|yen|rupee|cent|mathsterling)(?![a-z])"
    r"|\\text(?:dollar|sterling|euro|yen|cent)(?![a-z])"
    "|\\\\?[$\u00a2\u00a3\u00a5\u20a0-\u20bf]"
)
_REPLACED = (
    (re.compile(r"\\left(?![a-z])|\\right(?![a-z])|\\[bB]igg?[lr]?(?![a-z])|\\displaystyle"), ""),
    (re.compile(r"(?<!\\)\\!\s*"), ""),
    (re.compile(r"(?<=\d)\{,\}(?=\d)"), "."),
    (re.compile(r"(?<!\\)\\[,;: ]|\\q?quad(?![a-z])|~"), " "),
    (re.compile(r"\\[dtc]frac"), r"\\frac"),
    (re.compile(r"\\[dt]binom"), r"\\binom"),
    (re.compile(r"\\leqslant|\\leq|\u2264|<="), r"\\le "),
    (re.compile(r"\\geqslant|\\geq|\u2265|>="), r"\\ge "),
    (re.compile(r"\\lt(?![a-z])"), "<"),
    (re.compile(r"\\gt(?![a-z])"), ">"),
    (re.compile(r"\\ne(?:q)?(?![a-z])|\u2260"), r"\\ne "),
    (re.compile(r"\\%|%"), ""),
    (_CURRENCY, ""),
    (re.compile(r"(?<!\\)\\[()]|^\\\[|\\\]$"), ""),
    (re.compile(r"\\cdot|\\times|\u00d7|\u22c5|\u00b7"), "*"),
    (re.compile(r"\\div(?![a-z])|\u00f7|\u2044"), "/"),
    (re.compile(r"\u2212|(?<!\d)\u2013"), "-"),
    (re.compile(r"\\varnothing|\\emptyset|\u2205"), r"\\{\\}"),
    (re.compile(r"\u03c0"), r"\\pi "),
    (re.compile(r"\u221e"), r"\\infty "),
    (re.compile(r"\u222a"), r"\\cup "),
    (re.compile(r"\u2208"), r"\\in "),
    (re.compile(r"\u2200"), r"\\forall "),
    (re.compile(r"\u2248"), r"\\approx "),
    (re.compile(r"\u00b1"), r"\\pm "),
    (re.compile(r"\\mathbb\s*\{?([A-Z])\}?"), r" \1"),
    (re.compile(r"\\[lc]dots|\\dots[bcmo]?|\.\.\."), r"\\dots "),
    (re.compile(r"\\[pb]?mod(?![a-z])\s*\{?\s*(\w+)\s*\}?"), r"\\pmod \1"),
    (re.compile(r"(?:\u221a|(?<![A-Za-z\\])sqrt)\s*(\d+(?:\.\d+)?)"), r"\\sqrt{\1}"),
    (re.compile(r"\u221a"), r"\\sqrt "),
    (re.compile(r"\\begin\s*\{array\}\s*\{(?:[^{}]|\{[^{}]*\})*\}"), r"\\begin{matrix}"),
    (re.compile(r"\\begin\s*\{smallmatrix\}"), r"\\begin{matrix}"),
    (re.compile(r"\\end\s*\{(?:array|smallmatrix)\}"), r"\\end{matrix}"),
)


def plain_notation(text: str) -> str:
    r"""Return a text in ASCII, with grouped digits joined and scale words multiplied.

    `x\u00b2` is `x^{2}`, `3\u00bd` is `3\frac{1}{2}`, `70\,000` is `70000`, and `1.5 million` is
    `1.5*1000000`. Commas as in `1,000` stay, because they may separate a list.
    """
    text = _GROUPING.sub("", text)
    if not text.isascii():
        text = _ascii(text)
    for pattern, replacement in _REPLACED:
        text = pattern.sub(replacement, text)
    return _EMPTY.sub(" ", _SCALE.sub(_scale, text))


def _ascii(text: str) -> str:
    """Return a text with compatible characters as ASCII, as far as they have such forms."""
    text = _SUPERSCRIPTS.sub(lambda match: f"^{{{normalize('NFKC', match[0])}}}", text)
    text = _SUBSCRIPTS.sub(lambda match: f"_{{{normalize('NFKC', match[0])}}}", text)
    text = _FRACTION_SIGN.sub(_fraction, text)
    return normalize("NFKC", text)


def _fraction(match: re.Match[str]) -> str:
    upper, _, lower = normalize("NFKC", match[0]).partition("\u2044")
    return rf"\frac{{{upper}}}{{{lower}}}"


def _scale(match: re.Match[str]) -> str:
    words = _SCALE_WORD.findall(match[2].lower())
    factor = math.prod(1 / _SCALES[word] if part else _SCALES[word] for word, part in words)
    return f"*{factor}{match[1] or ''}"


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
