r"""The final answer in a completion: `\boxed{...}`, a line after `####`, or a closing phrase."""

import re

MAX_ANSWER = 500
"""Longest answer looked at, in characters; a longer one is no answer."""

_BOX = re.compile(r"\\(?:boxed|fbox)\s*")
_MARK = re.compile(
    r"####[\s*_:=]*(?:(?:the )?(?:final )?answer\b(?: is\b)?[\s*_:]*)?(?:\\\[|\$\$)?\s*([^\n]*)",
    re.IGNORECASE,
)
_PHRASE = re.compile(
    r"\b(?:final answer|answer)\b[*_]{0,3}(?:\s+is)?[ \t]*(?::[ \t]*|(?<=is)[ \t]+)(?=\S)([^\n]+)",
    re.IGNORECASE,
)
_DECORATION = " \t\r\n*_`#"
_SENTENCE_END = re.compile(r"(?:(?<=[\d$)}\]*])|(?<=[^A-Za-z][a-z]))\.\s+(?=[A-Z])")


def final_answer(completion: str) -> str | None:
    r"""Return the final answer as written, None when there is none.

    The last complete `\boxed{...}` or `####` counts, whichever comes later; without either, what
    follows the last "answer is" or "answer:" on its line. A box inside a marked line is opened,
    a sentence after the answer dropped.
    """
    box, mark = _last_box(completion), _last_mark(completion)
    found = max(filter(None, (box, mark)), default=None)
    if found is None:
        phrases = _PHRASE.findall(completion)
        found = (0, phrases[-1]) if phrases else None
    return None if found is None else _tidy(found[1])


def _last_box(completion: str) -> tuple[int, str] | None:
    """Return the end and the content of the last box whose braces balance."""
    closes = _closing_braces(completion)
    for match in reversed(list(_BOX.finditer(completion))):
        start = match.end()
        if start in closes:
            return closes[start], completion[start + 1 : closes[start]]
    return None


def _closing_braces(text: str) -> dict[int, int]:
    """Map each opening brace to the one that closes it; braces after a backslash do not count."""
    closes: dict[int, int] = {}
    pending: list[int] = []
    for match in re.finditer(r"\\.|[{}]", text, re.DOTALL):
        if match[0] == "{":
            pending.append(match.start())
        elif match[0] == "}" and pending:
            closes[pending.pop()] = match.start()
    return closes


def _last_mark(completion: str) -> tuple[int, str] | None:
    marks = [match for match in _MARK.finditer(completion) if match[1].strip(_DECORATION)]
    return (marks[-1].start(1), marks[-1][1]) if marks else None


def _tidy(answer: str) -> str | None:
    boxed = _last_box(answer)
    content = answer if boxed is None else boxed[1]
    content = re.sub(r"(?i)^(?:the )?(?:final )?answer(?: is)?\s*:?\s*", "", content.strip())
    content = _SENTENCE_END.split(content)[0].strip(_DECORATION)
    if content.endswith(".") and not content.endswith("\\."):
        content = content[:-1].strip(_DECORATION)
    return content if content and len(content) <= MAX_ANSWER else None
