import json
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
import torch
from transformers import PreTrainedModel

from modnorm.checkpoint.pretrained import (
    BYTES_PER_THREAD,
    arithmetic_dtype,
    limit_threads,
    load_pretrained,
)
from modnorm.checkpoint.reference import resolve_checkpoint
from modnorm.errors import IncompatibleError
from tests.faults import error_at

THREADS = 4
ROUNDS = 3


def test_threads_that_load_at_once_get_whole_models_and_change_nothing():
    checkpoint, together = resolve_checkpoint("tiny-thicket"), Barrier(THREADS)
    tie_weights = PreTrainedModel.tie_weights

    def load(_):
        together.wait()
        loaded = [
            load_pretrained(checkpoint, dtype=torch.bfloat16, attention="eager")
            for _ in range(ROUNDS)
        ]
        return loaded[-1]

    with ThreadPoolExecutor(THREADS) as threads:
        models = list(threads.map(load, range(THREADS)))
    for model in models:
        assert model.get_output_embeddings().weight is model.get_input_embeddings().weight
        assert all(tensor.device.type == "cpu" for tensor in model.parameters())
    assert torch.get_default_dtype() == torch.float32
    assert PreTrainedModel.tie_weights is tie_weights


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rope_parameters": {"rope_type": "novel", "rope_theta": 1e4}}, "KeyError: 'novel'"),
        ({"layer_types": ["full_attention"]}, "number of `layer_types`"),
        ({"hidden_act": "novel"}, "novel"),
        ({"head_dim": None}, "NoneType"),
        ({"pad_token_id": 10**6}, "Padding_idx"),
    ],
)
def test_a_configuration_that_transformers_refuses_is_incompatible(save_model, changes, message):
    directory = save_model()
    file = directory / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))
    checkpoint = resolve_checkpoint(str(directory))
    with error_at("model.name", message, kind=IncompatibleError):
        load_pretrained(checkpoint, dtype=torch.bfloat16, attention="eager")


def test_outputs_have_names_whatever_the_configuration_says(save_model, edit_config):
    directory = save_model()
    edit_config(directory, return_dict=False)
    checkpoint = resolve_checkpoint(str(directory))
    model = load_pretrained(checkpoint, dtype=torch.bfloat16, attention="eager")
    assert model.base_model(torch.tensor([[3, 5]])).last_hidden_state.shape == (1, 2, 32)


@pytest.mark.parametrize("weights", [torch.bfloat16, torch.float16, torch.float32])
def test_a_cpu_computes_in_float32_and_a_gpu_in_the_dtype_of_the_weights(weights):
    assert arithmetic_dtype(weights, torch.device("cpu")) == torch.float32
    assert arithmetic_dtype(weights, torch.device("cuda", 1)) == weights


def test_a_model_gets_the_threads_that_its_weights_keep_busy(monkeypatch):
    monkeypatch.setattr("modnorm.checkpoint.pretrained.most_threads", lambda: 3)
    before, found = torch.get_num_threads(), []
    for weights in (1, BYTES_PER_THREAD, 2 * BYTES_PER_THREAD, 100 * BYTES_PER_THREAD):
        limit_threads(weights)
        found.append(torch.get_num_threads())
    torch.set_num_threads(before)
    assert found == [1, 1, 2, 3]
