"""The text of an answer in pieces, while its tokens are generated."""

from collections.abc import Sequence

from modnorm.checkpoint.prompts import PromptEncoder

_UNFINISHED = "\ufffd"
"""Decoders write it for bytes that are no character yet, or never become one."""
_BYTE_TOKEN = "<0x"  # noqa: S105 - no password
"""Start of a token that stands for one byte: such tokens decode as a whole run, or not at all."""


class AnswerStream:
    """Turns the tokens of one answer into pieces of its text, as they come.

    The pieces together are `PromptEncoder.answer` of all tokens. Only tokens that later ones may
    still change are held back and decoded again, so the time is linear in the answer's length.

    Args:
        encoder: Decodes the tokens.
    """

    def __init__(self, encoder: PromptEncoder) -> None:
        self._encoder = encoder
        self._before: list[int] = []
        """The token before those held back: decoders treat the first token differently."""
        self._skip = 0
        """Characters of that token's own text."""
        self._held: list[int] = []
        self._has_stopped = False
        """Whether the last token is a stop token that has text."""

    def add(self, ids: Sequence[int]) -> str:
        """Return the text that new tokens complete; it may be empty."""
        return "".join(map(self._add, ids))

    def end(self) -> str:
        """Return the text that was held back."""
        return self._give_out(len(self._held) - self._has_stopped)

    def _add(self, token: int) -> str:
        spelling = self._encoder.spelling(token)
        self._has_stopped = spelling is not None and token in self._encoder.stop_ids
        if spelling is None:
            return ""
        self._held.append(token)
        if self._has_stopped or spelling.startswith(_BYTE_TOKEN):
            return ""
        text = self._text(self._held)
        if not text.endswith(_UNFINISHED):
            return self._give_out(len(self._held))
        # Later tokens may complete the last one; earlier ones only together with it.
        *earlier, last = self._held
        is_apart = self._text(earlier) + self._encoder.decode([last]) == text
        return self._give_out(len(earlier)) if is_apart else ""

    def _text(self, held: list[int]) -> str:
        return self._encoder.decode([*self._before, *held])[self._skip :]

    def _give_out(self, count: int) -> str:
        """Return the text of the first tokens held back, and hold them back no longer."""
        given = self._held[:count]
        text = self._text(given)
        if given:
            self._before, self._held = given[-1:], self._held[count:]
            self._skip = len(self._encoder.decode(self._before))
        return text
