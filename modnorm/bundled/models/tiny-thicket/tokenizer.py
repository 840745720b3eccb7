"""The tokenizer of `tokenizer.json`, for `AutoTokenizer` with `trust_remote_code=True`.

For Qwen2 models transformers 5.8 and later replace the splitting rule of `tokenizer.json`, whatever
`tokenizer_class` is. They keep it if `auto_map` names a class, also where they do not run it.
"""

from transformers import PreTrainedTokenizerFast


class Tokenizer(PreTrainedTokenizerFast):
    """The tokenizer that the model was trained with."""
