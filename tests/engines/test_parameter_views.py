"""Every parameter of the engine is exactly one row block of exactly one physical tensor."""

import pytest
import torch
from transformers import AutoModelForCausalLM, PreTrainedModel

from modnorm.checkpoint.families import Layout, physical_layout
from modnorm.checkpoint.reference import Checkpoint
from modnorm.checkpoint.weights import CheckpointWeights
from modnorm.engines.transformers_engine import weight_views
from modnorm.errors import IncompatibleError


@pytest.fixture
def model(checkpoint: Checkpoint) -> PreTrainedModel:
    found: PreTrainedModel = AutoModelForCausalLM.from_pretrained(checkpoint.directory)
    return found


@pytest.fixture
def layout(checkpoint: Checkpoint) -> Layout:
    return physical_layout(checkpoint.config)


def test_views_stack_to_the_stored_tensors(
    checkpoint: Checkpoint, layout: Layout, model: PreTrainedModel
) -> None:
    stored = CheckpointWeights(checkpoint)
    views = weight_views(layout, model, model.dtype)
    for tensor in layout:
        parts = views[tensor.name]
        assert torch.equal(torch.cat([view.storage for view in parts]), stored.read(tensor))
        assert parts[-1].block.rows[1] == tensor.shape[0]


def test_an_unmapped_parameter_is_refused(layout: Layout, model: PreTrainedModel) -> None:
    with pytest.raises(IncompatibleError, match="belongs to no physical tensor"):
        weight_views(layout[:-1], model, model.dtype)


@pytest.mark.parametrize("checkpoint", ["bundled"], indirect=True)
def test_an_untied_copy_of_the_embedding_is_refused(
    layout: Layout, model: PreTrainedModel
) -> None:
    model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight.clone())
    with pytest.raises(IncompatibleError, match="lm_head"):
        weight_views(layout, model, model.dtype)


def test_one_storage_for_two_tensors_is_refused(layout: Layout, model: PreTrainedModel) -> None:
    layers = model.model.layers
    layers[1].input_layernorm.weight = layers[0].input_layernorm.weight
    with pytest.raises(IncompatibleError, match="share"):
        weight_views(layout, model, model.dtype)
