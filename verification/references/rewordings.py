"""Equivalent spellings of mathematical answers."""

import re
from collections.abc import Callable, Iterator

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
