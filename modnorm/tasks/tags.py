"""Extracts blocks between tags from a completion, in linear time."""


def last_block(completion: str, opening: str, closing: str) -> str | None:
    """Return the content of the last block; None without a block.

    Blocks are searched from the left and end at the first closing tag, like matches of the regular
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
    """Return the content of the last `<answer>` block; None without a block."""
    return last_block(completion, "<answer>", "</answer>")


def stated_answer(completion: str) -> str | None:
    """Return the content of the last `<answer>` block after its last opening tag, if any.

    A text before the answer may mention the tag: "I shall write it in <answer> tags".
    """
    answer = last_answer(completion)
    return None if answer is None else answer.rpartition("<answer>")[2]
