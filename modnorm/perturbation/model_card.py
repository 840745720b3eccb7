"""The model card of an exported checkpoint or adapter: its README.md."""

from collections.abc import Mapping

from modnorm.checkpoint.reference import Checkpoint, tokenizer_class
from modnorm.perturbation.descriptor import Descriptor

_LOADING = """\
```python
from transformers import AutoModelForCausalLM, {tokenizer}

model = AutoModelForCausalLM.from_pretrained("DIRECTORY")
tokenizer = {tokenizer}.from_pretrained("DIRECTORY")
```
"""
_LOADING_ADAPTER = """\
```python
from peft import PeftModel
from transformers import AutoModelForCausalLM, {tokenizer}

base = AutoModelForCausalLM.from_pretrained({base})
model = PeftModel.from_pretrained(base, "DIRECTORY")
tokenizer = {tokenizer}.from_pretrained({base})
```
"""


def candidate_facts(descriptor: Descriptor, rank: int | None) -> Mapping[str, str]:
    """Return the facts that define a candidate, whose noise has a rank or is of full rank."""
    width = "" if rank is None else f", rank {rank}"
    return {
        "method": f"{descriptor.method}, radius {descriptor.radius:g}",
        "noise": f"{descriptor.noise}, seed {descriptor.seed}{width}",
    }


def model_card(base: Checkpoint, title: str, facts: Mapping[str, str]) -> str:
    loading = _LOADING.format(tokenizer=tokenizer_class(base))
    return (
        f"{_front_matter(base, 'transformers')}"
        f"# {title}\n\n"
        "modnorm wrote these weights. They are the base model's, perturbed without "
        f"gradients.\n\n{_table(base, facts)}\n"
        f"## Loading\n\n{loading}\n{_tokenizer_advice(base)}"
    )


def adapter_card(base: Checkpoint, title: str, facts: Mapping[str, str]) -> str:
    """Return the text of an adapter's model card; the arguments are those of `model_card`."""
    revision = "" if base.revision is None else f', revision="{base.revision}"'
    loading = _LOADING_ADAPTER.format(
        tokenizer=tokenizer_class(base), base=f'"{base.location}"{revision}'
    )
    return (
        f"{_front_matter(base, 'peft')}"
        f"# {title}\n\n"
        "`modnorm export --adapters` wrote this LoRA adapter. It is a perturbation that was found "
        f"without gradients.\n\n{_table(base, facts)}\n"
        f"## Loading\n\n{loading}\n{_tokenizer_advice(base)}\n"
        "The candidate of the search had weights rounded to their dtype after the addition. An "
        "adapter's sum is not rounded, so some answers differ.\n"
    )


def _tokenizer_advice(base: Checkpoint) -> str:
    """Return a paragraph on the class that loads the tokenizer as the run did."""
    name = tokenizer_class(base)
    return f"The run loaded the tokenizer with `{name}`. Another class may split text otherwise.\n"


def _front_matter(base: Checkpoint, library: str) -> str:
    """Return the metadata that the Hugging Face Hub reads."""
    origin = f"base_model: {base.name}\n" if base.revision is not None else ""
    return (
        f"---\n{origin}library_name: {library}\npipeline_tag: text-generation\n"
        "tags:\n- modnorm\n---\n\n"
    )


def _table(base: Checkpoint, facts: Mapping[str, str]) -> str:
    rows = {"base model": base.name, "SHA-256 of the base": base.digest, **facts}
    lines = "".join(f"| {name} | {_cell(value)} |\n" for name, value in rows.items())
    return f"| property | value |\n|---|---|\n{lines}"


def _cell(value: str) -> str:
    return value.replace("|", "\\|").replace("\n", " ")
