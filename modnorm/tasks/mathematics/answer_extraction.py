r"""Finds final answers: `\boxed{...}`, a line after `####`, or a closing phrase.

The functions named `published_...` extract and compare answers as the published code does, with
its errors, for comparison with published numbers. They read only the last 500 characters. Answers
are compared as text in several spellings, then as one number, and last by the numbers in them, so
`2\sqrt{3}` counts as `\frac{2}{3}`.
"""

import re
from collections.abc import Sequence

from modnorm.tasks.mathematics.canonical import canonical
from modnorm.tasks.protocol import Judgement

WINDOW = 500
"""Characters at the end of a completion that are searched for an answer."""

_TOLERANCE = 1e-9
_BOX_START = "\\boxed{"
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
        plain_answer.replace(" ", "") == plain_truth.replace(" ", "")
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
    answer = published_answer(f"{_BOX_START}{vote}}}")
    return answer is not None and published_equal(answer, truth)


def _boxed(tail: str) -> str | None:
    """Return the last balanced box, else the last match of two simpler patterns."""
    contents, start = [], tail.find(_BOX_START)
    while start >= 0:
        begin = start + len(_BOX_START)
        end = _closing(tail, begin)
        if end is None:
            break
        contents.append(tail[begin:end])
        start = tail.find(_BOX_START, end + 1)
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


MAX_ANSWER = 500
"""Longest final answer in characters; `final_answer` drops a longer one."""

_BOX = re.compile(r"\\(?:boxed|fbox)\s*")
_MARK = re.compile(
    r"####[\s*_:=]*(?:(?:the )?(?:final )?answer\b(?: is\b)?[\s*_:]*)?(?:\\\[|\$\$)?\s*"
    r"((?:(?!####)[^\n])*)",
    re.IGNORECASE,
)
_PHRASE = re.compile(
    r"\b(?:final answer|answer)\b[*_]{0,3}(?:\s+is)?[ \t]*(?::[ \t]*|(?<=is)[ \t]+)(?=\S)([^\n]+)",
    re.IGNORECASE,
)
_DECORATION = " \t\r\n*_`#"
_HEADING = re.compile(
    r"(?:(?:Step|Part|Case|Section|Problem|Question|Q)\s?(?:\d+|[A-Z])\b.*"
    r"|\d{1,2}[.):]\s+[^\W\d][^.=]*"
    r"|(?!.*\b(?:is|are|equals?|has|makes|gets|needs|will|earns|pays|takes)\b)"
    r"[A-Z][a-z]{2}[\w', -]*):?",
    re.IGNORECASE,
)
_ITEM = re.compile(r"[\s*_`(]*(\d{1,2})(?:[.):]+\**\s+(?=\S)|\s+[-\u2013]\s+(?=[A-Za-z]))")
_JOINT = re.compile(
    r"[ $]*(?:[,;]|,?[ $]*(?:and|or|\\text\s*\{\s*,?\s*(?:and|or)\s*\}))(?:[ $]|\\[,; ]|\\quad)*"
)
_MAX_JOINT = 40
_TEXT = re.compile(r"\S")
_LEAD = re.compile(
    r"^(?:(?:therefore|thus|hence|so)\b,?\s*)?"
    r"(?:(?:the )?(?:final |correct )?answer(?: is)?\s*:?\s*)?",
    re.IGNORECASE,
)
_SENTENCE_END = re.compile(r"(?:(?<=[\d$)}\]*])|(?<=[^A-Za-z][a-z]))\.\s+(?=[A-Z])")


def final_answer(completion: str, *, headings: bool = True) -> str | None:
    r"""Return the final answer as written; None without one, or if it exceeds `MAX_ANSWER`.

    It is the last complete, non-empty `\boxed{...}` or the line after the last `####`, whichever
    comes later. Without either it is the text after the last "answer is" or "answer:" on its line.
    A line after `####` that is a heading of more text, such as `Step 2` or `2. Add the costs`,
    counts only if nothing else does, and never without `headings`. A box inside a marked line is
    opened. A sentence after the answer is dropped.
    """
    marked, titles = _marked_lines(completion)
    last = max(filter(None, (_last_box(completion), *marked[-1:])), default=None)
    if last is not None:
        return _tidy(last[1])
    stated = _PHRASE.findall(completion) or (titles if headings else [])
    return _tidy(stated[-1]) if stated else None


def _marked_lines(completion: str) -> tuple[list[tuple[int, str]], list[str]]:
    """Return the lines after `####`, each with its place, and those that are headings."""
    marked, titles, items = list[tuple[int, str]](), list[str](), 0
    for mark in _MARK.finditer(completion):
        text = mark[1].strip(_DECORATION)
        item = _ITEM.match(text)
        is_next = item is not None and int(item[1]) == items + 1
        items += is_next
        is_followed = _TEXT.search(completion, mark.end()) is not None
        if (is_next and items == 1) or (is_followed and (is_next or _HEADING.fullmatch(text))):
            titles.append(mark[1])
        elif text:
            marked.append((mark.start(1), text[item.end() :] if item and items > 1 else mark[1]))
    return marked, titles


def _last_box(completion: str) -> tuple[int, str] | None:
    r"""Return the end and the content of the last box with balanced braces."""
    closes = _closing_braces(completion)
    contents, end, later = list[str](), 0, 0
    for match in reversed(list(_BOX.finditer(completion))):
        close = closes.get(match.end())
        if close is None or not completion[match.end() + 1 : close].strip():
            continue
        if contents and not _are_joined(completion, close + 1, later):
            break
        contents.append(completion[match.end() + 1 : close].strip())
        end, later = end or close, match.start()
    return (end, _list(contents[::-1])) if contents else None


def _list(contents: Sequence[str]) -> str:
    """Return different answers as a list; of equal answers only the last."""
    joined = ", ".join(contents)
    if len(contents) == 1 or len(joined) > MAX_ANSWER:
        return joined
    return ", ".join({canonical(content): content for content in contents}.values())


def _are_joined(completion: str, start: int, end: int) -> bool:
    return end - start <= _MAX_JOINT and _JOINT.fullmatch(completion, start, end) is not None


def _closing_braces(text: str) -> dict[int, int]:
    """Map each opening brace to its closing brace; braces after a backslash do not count."""
    closes: dict[int, int] = {}
    pending: list[int] = []
    for match in re.finditer(r"\\.|[{}]", text, re.DOTALL):
        if match[0] == "{":
            pending.append(match.start())
        elif match[0] == "}" and pending:
            closes[pending.pop()] = match.start()
    return closes


def _tidy(answer: str) -> str | None:
    content = _LEAD.sub("", answer.strip())
    content = _SENTENCE_END.split(content)[0].strip(_DECORATION)
    if content.endswith(".") and not content.endswith("\\."):
        content = content[:-1].strip(_DECORATION)
    return content if content and len(content) <= MAX_ANSWER else None
