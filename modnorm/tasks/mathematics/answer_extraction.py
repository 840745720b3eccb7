r"""Extracts final answers: `\boxed{...}`, a line after `####`, or a closing phrase."""

import re
from collections.abc import Sequence

from modnorm.tasks.mathematics.canonical import canonical

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
    r"""Return the end and the content of the last box with balanced braces.

    Boxes joined by a comma, `and` or `or`, such as `\boxed{1}, \boxed{2}`, are one list.
    """
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
    boxed = _last_box(answer)
    content = answer if boxed is None else boxed[1]
    content = _LEAD.sub("", content.strip())
    content = _SENTENCE_END.split(content)[0].strip(_DECORATION)
    if content.endswith(".") and not content.endswith("\\."):
        content = content[:-1].strip(_DECORATION)
    return content if content and len(content) <= MAX_ANSWER else None
