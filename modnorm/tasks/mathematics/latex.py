r"""Removes notation without a value: spacing, sizes, units, currency, synonyms of commands."""

import re

_REPLACED = (
    (re.compile(r"\\left(?![a-z])|\\right(?![a-z])|\\[bB]igg?[lr]?(?![a-z])|\\displaystyle"), ""),
    (re.compile(r"(?<=\d)(?:\{,\}|,?\\!\s*|\\,)(?=\d{3}(?!\d))|(?<!\\)\\!\s*"), ""),
    (re.compile(r"(?<!\\)\\[,;: ]|\\q?quad(?![a-z])|~|[\u00a0\u2009\u202f]"), " "),
    (re.compile(r"\\[dtc]frac"), r"\\frac"),
    (re.compile(r"\\[dt]binom"), r"\\binom"),
    (re.compile(r"\\leqslant|\\leq|\u2264|<="), r"\\le "),
    (re.compile(r"\\geqslant|\\geq|\u2265|>="), r"\\ge "),
    (re.compile(r"\\lt(?![a-z])"), "<"),
    (re.compile(r"\\gt(?![a-z])"), ">"),
    (re.compile(r"\\ne(?:q)?(?![a-z])|\u2260"), r"\\ne "),
    (re.compile(r"\\%|%"), ""),
    (re.compile(r"\\\$|\$|(?<!\\)\\[()]|^\\\[|\\\]$"), ""),
    (re.compile(r"\\cdot|\\times|\u00d7|\u22c5|\u00b7"), "*"),
    (re.compile(r"\\div(?![a-z])|\u00f7"), "/"),
    (re.compile(r"\u2212|\u2013"), "-"),
    (re.compile(r"\\varnothing|\\emptyset|\u2205"), r"\\{\\}"),
    (re.compile(r"\u03c0"), r"\\pi "),
    (re.compile(r"\u221e"), r"\\infty "),
    (re.compile(r"\u222a"), r"\\cup "),
    (re.compile(r"\u2208"), r"\\in "),
    (re.compile(r"\u2248"), r"\\approx "),
    (re.compile(r"\u00b1"), r"\\pm "),
    (re.compile(r"\\mathbb\s*\{?([A-Z])\}?"), r" \1"),
    (re.compile(r"\\[lc]dots|\\dots[bcmo]?|\.\.\.|\u2026"), r"\\dots "),
    (re.compile(r"\\[pb]?mod(?![a-z])\s*\{?\s*(\w+)\s*\}?"), r"\\pmod \1"),
    (re.compile(r"(?:\u221a|(?<![A-Za-z\\])sqrt)\s*(\d+(?:\.\d+)?)"), r"\\sqrt{\1}"),
    (re.compile(r"\u221a"), r"\\sqrt "),
)
_FONTS = "text|textbf|textit|textrm|mbox|mathrm|mathbf|mathit|boldsymbol|operatorname"
_WORDS = rf"\\(?:{_FONTS})\s*\{{([^{{}}]*)\}}"
_WORD = re.compile(_WORDS)
_UNIT = re.compile(_WORDS + r"(\s*\^\s*(?:\{[^{}]*\}|\d))?")
_LETTERS = re.compile(
    r"\\(?:mathbf|mathit|boldsymbol|operatorname|(mathrm))\s*\{\s*((?(1)[ei]|[A-Za-z]+))\s*\}"
)
_QUALIFIER = re.compile(r"\b(?:even|odd|prime|not|divisible|if|unless|except)\b", re.IGNORECASE)
_VALUE_ENDS = re.compile(
    r"[\w)\]}!'|](?<!\\angle)(?<!\\in)(?<!\\cup)(?<!\\cap)(?<!\\[lgn]e)(?<!matrix\})$"
)
_TERM_ENDS = re.compile(r"\s*(?:$|[,;+*/)\]}&<>|]|\\\\|\\(?:in|cup|cap|end|[lgn]e)(?![a-z]))|[(_]")
_DEGREES = re.compile(r"\^\s*\{?\s*(?:\\circ|\u00b0)\s*\}?|\\degree|\u00b0")
_TRIGONOMETRY = re.compile(r"(?<![A-Za-z])(?:sin|cos|tan|cot|sec|csc)(?![a-z])")
_CONJUNCTION = re.compile(r"\s*,?\s*(?:and|or)\s*", re.IGNORECASE)
_PLAIN_CONJUNCTION = re.compile(r"(?<=[\s)\]}\d]),?\s*\b(and|or)\b\s*(?=[\s(\[{\d\\-])")
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


def plain_notation(text: str) -> str:
    """Return a text without spacing, sizes and dollar signs, with one form of each operator."""
    for pattern, replacement in _REPLACED:
        text = pattern.sub(replacement, text)
    return text


def clean(answer: str) -> str:
    """Return an answer without notation that carries no value."""
    text = plain_notation(answer)
    angle = r"\\frac{\\pi}{180}" if _TRIGONOMETRY.search(text) else ""
    text = _DEGREES.sub(angle, text)
    text = " ".join(text.split()).rstrip(" .")
    whole = _WORD.fullmatch(text)
    text = _join(whole[1]) if whole else _words(text)
    measure = _MEASURE.fullmatch(text.strip())
    return _LEAD.sub("", measure[1] if measure else text).strip().rstrip(" .,")


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
    """Return text with `and` and `or` as commas, and `or` between inequalities as a union."""
    alternative = r" \cup " if _INEQUALITY.search(text) else ","
    return _PLAIN_CONJUNCTION.sub(lambda match: alternative if match[1] == "or" else ",", text)


def _unit(match: re.Match[str]) -> str:
    """Drop words that name a unit; keep words that are a term or qualify one."""
    before, after = match.string[: match.start()].rstrip(), match.string[match.end() :]
    is_term = _VALUE_ENDS.search(before) is None and _TERM_ENDS.match(after) is not None
    if is_term or _QUALIFIER.search(match[1]):
        return f" {match[1].strip()}{match[2] or ''} "
    return " "
