"""Random models of any family."""

from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel


def random_model(family: str, **settings: object) -> PreTrainedModel:
    """Return a float32 model of a family, with some settings of its configuration."""
    model: PreTrainedModel = AutoModelForCausalLM.from_config(
        AutoConfig.for_model(family, **settings)
    )
    return model
