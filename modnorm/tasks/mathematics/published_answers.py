r"""Extracts and compares mathematical answers as the published code does, with its errors.

It serves comparison with published numbers. It reads only the last 500 characters. Answers are
compared as text in several spellings, then as one number, and last by the numbers in them, so
`2\sqrt{3}` counts as `\frac{2}{3}`.
"""

import re

from modnorm.tasks.protocol import Judgement

WINDOW = 500
"""Characters at the end of a completion that are searched for an answer."""

_TOLERANCE = 1e-9
_BOX = "\\boxed{"
_ONE_LEVEL_BOX = re.compile(r"\\boxed\{([^{}]*(?:\{[^{}]*\}[^{}]*)*)\}")
_OPEN_BOX = re.compile(r"\\boxed\{([^}]+)\}")
_LINE_END = r"\.?\s*$"
_INLINE = tuple(
    re.compile(rf"{lead}{formula}{_LINE_END}", re.IGNORECASE | re.MULTILINE)
    for lead, formula in (
        (r"is\s+", r"\\\(([^)]+)\\\)"),
        (r"is\s+", r"\$([^$]+)\$"),
        (r"=\s*", r"\\\(([^)]+)\\\)"),
        (r"=\s*", r"\$([^$]+)\$"),
    )
)
_REST = r"[:\s]*\**([^\n.*]+)"
_PHRASES = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        r"answer\s+is\s*[:\s]*\**\\\(([^)]+)\\\)",
        r"answer\s+is\s*[:\s]*\**\$([^$]+)\$",
        rf"answer\s+is\s*{_REST}",
        rf"(?:therefore|thus|hence|so)\s*,?\s*(?:the\s+)?(?:answer\s+is\s*)?{_REST}",
        r"answer[:\s]+\**([^\n.*]+)",
        r"=\s*([^\n=]+)$",
    )
)
_CONCLUSION = _PHRASES[3]
_NEWLINES = re.compile(r"\n+")

_REMOVED = ("\\left", "\\right", "\\,", "\\!", "\\;", "\\:")
_RENAMED = (
    ("\\ ", " "),
    ("\\quad", " "),
    ("\\qquad", " "),
    *((f"\\{name}{{", "{") for name in ("text", "mathrm", "mathbf", "textbf")),
    ("\\dfrac", "\\frac"),
    ("\\tfrac", "\\frac"),
    ("^{\\circ}", "^\\circ"),
    ("\u00b0", "^\\circ"),
)
_THOUSANDS = re.compile(r"(\d),(\d{3})")
_FRACTION = re.compile(r"\\frac\{([^{}]+)\}\{([^{}]+)\}")
_NUMBER = re.compile(r"-?\d+\.?\d*")


def published_answer(completion: str) -> str | None:
    """Return the answer that the published code extracts; None without one."""
    tail = completion[-WINDOW:]
    boxed = _boxed(tail)
    return _stated(tail) if boxed is None else boxed


def published_equal(answer: str, truth: str) -> bool:
    """Whether the published code accepts an answer as equal to the truth."""
    plain_answer, plain_truth = _collapse(answer), _collapse(truth)
    simple_answer, simple_truth = _simplify(plain_answer), _simplify(plain_truth)
    return (
        _same(plain_answer, plain_truth)
        or _same(simple_answer, simple_truth)
        or _caseless(simple_answer) == _caseless(simple_truth)
        or _same_number(simple_answer, simple_truth)
        or _same_numbers(simple_answer, simple_truth)
    )


def published_judgement(completion: str, truth: str) -> Judgement:
    """Return the published judgement: the vote is the answer as written, None if empty."""
    answer = published_answer(completion)
    accepted = answer is not None and published_equal(answer, truth)
    correct = bool(answer) and published_correct(answer or "", truth)
    return Judgement(reward=float(accepted), vote=answer or None, correct=correct)


def published_correct(vote: str, truth: str) -> bool:
    """Whether the published code accepts a vote, which it extracts from a new box."""
    answer = published_answer(f"{_BOX}{vote}}}")
    return answer is not None and published_equal(answer, truth)


def _boxed(tail: str) -> str | None:
    """Return the last balanced box, else the last match of two simpler patterns."""
    contents, start = [], tail.find(_BOX)
    while start >= 0:
        begin = start + len(_BOX)
        end = _closing(tail, begin)
        if end is None:
            break
        contents.append(tail[begin:end])
        start = tail.find(_BOX, end + 1)
    contents = contents or _ONE_LEVEL_BOX.findall(tail) or _OPEN_BOX.findall(tail)
    return str(contents[-1]) if contents else None


def _closing(text: str, begin: int) -> int | None:
    depth = 1
    for position in range(begin, len(text)):
        depth += (text[position] == "{") - (text[position] == "}")
        if depth == 0:
            return position
    return None


def _stated(tail: str) -> str | None:
    """Return the last match of the first pattern that matches.

    The "therefore" pattern skips newlines in three places and captures none, which takes cubic
    time. For it, runs of newlines are joined to one, which changes no match.
    """
    for pattern in _INLINE:
        if matches := pattern.findall(tail):
            return str(matches[-1]).strip()
    for pattern in _PHRASES:
        text = _NEWLINES.sub("\n", tail) if pattern is _CONCLUSION else tail
        if matches := pattern.findall(text):
            return str(matches[-1]).strip()
    return None


def _collapse(answer: str) -> str:
    return re.sub(r"\s+", " ", answer.strip())


def _simplify(answer: str) -> str:
    for removed in _REMOVED:
        answer = answer.replace(removed, "")
    for name, replacement in _RENAMED:
        answer = answer.replace(name, replacement)
    for _ in range(3):
        answer = _THOUSANDS.sub(r"\1\2", answer)
    return _collapse(answer)


def _same(answer: str, truth: str) -> bool:
    return answer.replace(" ", "") == truth.replace(" ", "")


def _caseless(answer: str) -> str:
    compact = answer.replace(" ", "")
    return compact if re.search(r"[\\{}^_]", compact) else compact.lower()


def _same_number(answer: str, truth: str) -> bool:
    try:
        return abs(_number(answer) - _number(truth)) < _TOLERANCE
    except (ValueError, ZeroDivisionError):
        return False


def _number(text: str) -> float:
    fraction = _FRACTION.match(text)
    return float(fraction[1]) / float(fraction[2]) if fraction else float(text)


def _same_numbers(answer: str, truth: str) -> bool:
    left, right = _numbers(answer), _numbers(truth)
    if not left or len(left) != len(right):
        return False
    return all(abs(a - b) < _TOLERANCE for a, b in zip(left, right, strict=True))


def _numbers(text: str) -> list[float]:
    return [float(number) for number in _NUMBER.findall(text.replace(" ", ""))]
