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
    origin = "modnorm wrote these weights. They are the base model's, perturbed without gradients."
    loading = _LOADING.format(tokenizer=tokenizer_class(base))
    return _card(base, title, facts, library="transformers", origin=origin, loading=loading)


def adapter_card(base: Checkpoint, title: str, facts: Mapping[str, str]) -> str:
    """Return the text of an adapter's model card; the arguments are those of `model_card`."""
    origin = (
        "`modnorm export --adapters` wrote this LoRA adapter. It is a perturbation that was found "
        "without gradients."
    )
    revision = "" if base.revision is None else f', revision="{base.revision}"'
    loading = _LOADING_ADAPTER.format(
        tokenizer=tokenizer_class(base), base=f'"{base.location}"{revision}'
    )
    card = _card(base, title, facts, library="peft", origin=origin, loading=loading)
    return (
        f"{card}\n"
        "The candidate of the search had weights rounded to their dtype after the addition. An "
        "adapter's sum is not rounded, so some answers differ.\n"
    )


def _card(  # noqa: PLR0913 - the parts of its text
    base: Checkpoint,
    title: str,
    facts: Mapping[str, str],
    *,
    library: str,
    origin: str,
    loading: str,
) -> str:
    base_model = "" if base.revision is None else f"base_model: {base.name}\n"
    rows = {"base model": base.name, "SHA-256 of the base": base.digest, **facts}
    lines = "".join(f"| {name} | {_cell(value)} |\n" for name, value in rows.items())
    return (
        f"---\n{base_model}library_name: {library}\npipeline_tag: text-generation\n"
        "tags:\n- modnorm\n---\n\n"  # read by the Hugging Face Hub
        f"# {title}\n\n{origin}\n\n| property | value |\n|---|---|\n{lines}\n"
        f"## Loading\n\n{loading}\nThe run loaded the tokenizer with `{tokenizer_class(base)}`. "
        "Another class may split text otherwise.\n"
    )


def _cell(value: str) -> str:
    return value.replace("|", "\\|").replace("\n", " ")
