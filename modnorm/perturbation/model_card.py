"""The model card of an exported checkpoint: its README.md."""

from collections.abc import Mapping
from dataclasses import dataclass

from modnorm.checkpoint.reference import Checkpoint

CARD = "README.md"
_LOADING = """\
```python
from transformers import AutoModelForCausalLM, {tokenizer}

model = AutoModelForCausalLM.from_pretrained("DIRECTORY")
tokenizer = {tokenizer}.from_pretrained("DIRECTORY")
```
"""


@dataclass(frozen=True, slots=True)
class TokenizerFinding:
    """How many prompts of the run `AutoTokenizer` encodes differently."""

    checked: int
    differing: int

    @property
    def holds(self) -> bool:
        """Whether `AutoTokenizer` reproduces every prompt."""
        return self.checked > 0 and not self.differing

    @property
    def sentence(self) -> str:
        """The finding, for cards and warnings."""
        if self.holds:
            return (
                f"`AutoTokenizer` reproduces the {self.checked} prompts of the run that were "
                "checked."
            )
        if not self.checked:
            return (
                "No prompt of the run could be checked: load the tokenizer with "
                "`PreTrainedTokenizerFast`, as the run did."
            )
        return (
            f"`AutoTokenizer` encodes {self.differing} of {self.checked} prompts of the run "
            "otherwise than the run did: load the tokenizer with `PreTrainedTokenizerFast`."
        )


def model_card(
    base: Checkpoint, title: str, facts: Mapping[str, str], finding: TokenizerFinding
) -> str:
    """Return the text of a model card.

    Args:
        base: The base model.
        title: Heading.
        facts: Rows of the table: what defines the weights.
        finding: Whether `AutoTokenizer` can be used.
    """
    origin = f"base_model: {base.name}\n" if base.revision is not None else ""
    rows = {"base model": base.name, "SHA-256 of the base": base.digest, **facts}
    table = "".join(f"| {name} | {_cell(value)} |\n" for name, value in rows.items())
    tokenizer = "AutoTokenizer" if finding.holds else "PreTrainedTokenizerFast"
    return (
        f"---\n{origin}library_name: transformers\npipeline_tag: text-generation\n"
        "tags:\n- modnorm\n---\n\n"
        f"# {title}\n\n"
        "`modnorm export` wrote these weights. They are the base model's, perturbed without "
        "gradients.\n\n"
        f"| property | value |\n|---|---|\n{table}\n"
        f"## Loading\n\n{_LOADING.format(tokenizer=tokenizer)}\n{finding.sentence}\n"
    )


def _cell(value: str) -> str:
    return value.replace("|", "\\|").replace("\n", " ")
