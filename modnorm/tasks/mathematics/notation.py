r"""Writes answers in one notation: ASCII and plain LaTeX, without spacing, sizes and currency."""

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
