from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import torch
from transformers import PreTrainedModel

from modnorm.checkpoint.pretrained import load_pretrained
from modnorm.checkpoint.reference import resolve_checkpoint

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
