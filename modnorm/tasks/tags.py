"""Blocks between tags in a completion, found in linear time."""


def last_block(completion: str, opening: str, closing: str) -> str | None:
    """Return what the last block holds, None when there is no block.

    Blocks are found from left to right and end at the first closing tag, as by the regular
    expression `OPENING(.*?)CLOSING`.
    """
    content = None
    start = completion.find(opening)
    while start >= 0:
        end = completion.find(closing, start + len(opening))
        if end < 0:
            break
        content = completion[start + len(opening) : end]
        start = completion.find(opening, end + len(closing))
    return content


def last_answer(completion: str) -> str | None:
    """Return what the last `<answer>` block holds, None when there is no block."""
    return last_block(completion, "<answer>", "</answer>")


def stated_answer(completion: str) -> str | None:
    """Return the last answer from the opening tag that is nearest to its end.

    Words before an answer may mention the tag: "I shall write it in <answer> tags".
    """
    answer = last_answer(completion)
    return None if answer is None else answer.rpartition("<answer>")[2]
