"""Whether `AutoTokenizer` reproduces the prompts of a run.

Some model families replace the splitting rule of `tokenizer.json` by their own when
`AutoTokenizer` loads it (Qwen2 in transformers 5). Engines of this package do not.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from transformers import AutoTokenizer

from modnorm.checkpoint.prompts import PromptEncoder
from modnorm.checkpoint.reference import Checkpoint

if TYPE_CHECKING:
    from modnorm.tasks.protocol import Message


def differing_prompts(
    checkpoint: Checkpoint, conversations: Sequence[Sequence["Message"]]
) -> tuple[int, ...]:
    """Return the indices of conversations that `AutoTokenizer` encodes or decodes differently.

    Raises:
        InvalidInputError: there is no usable tokenizer, or the template refuses the messages.
    """
    encoder = PromptEncoder(checkpoint)
    try:
        other = AutoTokenizer.from_pretrained(
            checkpoint.directory, local_files_only=True, trust_remote_code=False
        )
    except Exception:  # noqa: BLE001 - the parser of tokenizer.json raises plain Exception
        return tuple(range(len(conversations)))
    differing = []
    for index, messages in enumerate(conversations):
        ids = encoder.encode(messages)
        encoded = other(encoder.render(messages), add_special_tokens=False, verbose=False)
        decoded = other.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        if list(encoded.input_ids) != ids or decoded != encoder.decode(ids):
            differing.append(index)
    return tuple(differing)
