"""Encoding of chat messages as token ids, and decoding, by the model's own tokenizer."""

from collections.abc import Mapping, Sequence
from datetime import date
from typing import TYPE_CHECKING

import transformers
from transformers import PreTrainedTokenizerBase

from modnorm.checkpoint.checkpoint_files import load_json, positive
from modnorm.checkpoint.reference import (
    Checkpoint,
    check_tokenizer_files,
    tokenizer_class,
    unusable_tokenizer,
)
from modnorm.errors import InvalidInputError

if TYPE_CHECKING:
    from modnorm.tasks.protocol import Message


DATE = "11 Aug 2026"
"""The date in templates that print today's date, so that prompts do not change overnight."""
_DAY = date(2026, 8, 11)
"""That date, for templates that format it themselves."""


class PromptEncoder:
    """Tokenizer and native chat template of one checkpoint; used by one thread at a time."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self.tokenizer = _load_tokenizer(checkpoint)
        self.stop_ids: frozenset[int] = _stop_ids(checkpoint, self.tokenizer)

    def encode(self, messages: Sequence["Message"]) -> list[int]:
        """Return the token ids of a conversation, up to the start of the assistant's answer."""
        ids = self.encode_text(self.render(messages))
        bos = self.tokenizer.bos_token_id
        if bos is not None and ids[:2] == [bos, bos]:
            raise InvalidInputError(
                "the prompt begins with two beginning-of-sequence tokens", field="model.name"
            )
        return ids

    @property
    def end_id(self) -> int:
        """The token that ends an answer."""
        token = self.tokenizer.eos_token_id
        if not isinstance(token, int):
            raise InvalidInputError(
                "the tokenizer has no end-of-sequence token", field="model.name"
            )
        return token

    def encode_text(self, text: str) -> list[int]:
        """Return the token ids of a plain text, without added special tokens."""
        return list(self.tokenizer(text, add_special_tokens=False, verbose=False).input_ids)

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of token ids, without special tokens."""
        text = self.tokenizer.decode(
            list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False
        )
        return str(text)

    def answer(self, ids: Sequence[int]) -> str:
        """Return the text of an answer, without special tokens and without its stop token."""
        ended = bool(ids) and ids[-1] in self.stop_ids
        return self.decode(ids[:-1] if ended else ids)

    def render(self, messages: Sequence["Message"]) -> str:
        """Return the text of a conversation, up to the start of the assistant's answer."""
        conversation = [{"role": turn.role, "content": turn.content} for turn in messages]
        try:
            text = self.tokenizer.apply_chat_template(
                conversation,
                tokenize=False,
                add_generation_prompt=True,
                date_string=DATE,
                strftime_now=_DAY.strftime,
            )
        except Exception as error:  # a template is a program and may raise any error
            raise InvalidInputError(
                f"the chat template refuses the messages: {error}", field="model.name"
            ) from error
        return str(text)


def check_fit(prompts: Sequence[Sequence[int]], max_tokens: int, checkpoint: Checkpoint) -> int:
    """Return the length of the longest prompt, 0 if there are no prompts."""
    vocabulary = positive(checkpoint.config, "vocab_size")
    for index, prompt in enumerate(prompts):
        field = f"prompts.{index}"
        if not prompt:
            raise InvalidInputError("the prompt has no tokens", field=field)
        # Engines may read anywhere for a token without an embedding.
        for token in (min(prompt), max(prompt)):
            if not 0 <= token < vocabulary:
                raise InvalidInputError(
                    f"the prompt has token {token}, {checkpoint.name} has embeddings of 0 to "
                    f"{vocabulary - 1}",
                    field=field,
                )
        room = checkpoint.max_position - len(prompt)
        if max_tokens > room:
            raise InvalidInputError(
                f"{len(prompt)} prompt tokens and {max_tokens} completion tokens "
                f"exceed the {checkpoint.max_position} positions of {checkpoint.name}",
                field=field,
                remedy=f"lower task.max_tokens to {room}, or shorten or drop the row"
                if room > 0
                else "shorten or drop the row",
            )
    return max((len(prompt) for prompt in prompts), default=0)


def _load_tokenizer(checkpoint: Checkpoint) -> PreTrainedTokenizerBase:
    check_tokenizer_files(checkpoint)
    # The access to `AutoTokenizer` imports the tables of all families, which takes a second.
    loader = getattr(transformers, tokenizer_class(checkpoint))
    try:
        tokenizer: PreTrainedTokenizerBase = loader.from_pretrained(
            checkpoint.directory, local_files_only=True, trust_remote_code=False
        )
    except Exception as error:  # the parser of tokenizer.json raises plain Exception
        raise unusable_tokenizer(checkpoint, str(error)) from error
    return tokenizer


def _stop_ids(checkpoint: Checkpoint, tokenizer: PreTrainedTokenizerBase) -> frozenset[int]:
    """Return the stop tokens as inference engines do: the model's and the tokenizer's."""
    generation = checkpoint.directory / "generation_config.json"
    settings = load_json(generation) if generation.is_file() else None
    eos = settings.get("eos_token_id") if isinstance(settings, Mapping) else None
    if eos is None:
        eos = checkpoint.config.get("eos_token_id")
    listed = eos if isinstance(eos, list) else [eos]
    stops = [token for token in (*listed, tokenizer.eos_token_id) if token is not None]
    if not stops or not all(type(token) is int for token in stops):  # a bool is no token
        raise InvalidInputError(
            f"{checkpoint.name} has no usable stop token (eos_token_id is {eos!r})",
            field="model.config.eos_token_id",
            remedy="set eos_token_id in generation_config.json",
        )
    return frozenset(stops)
