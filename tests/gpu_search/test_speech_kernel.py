"""Given tokens on the device: against plain indexing."""

from types import SimpleNamespace

import torch

from benchmarks.gpu_search.speech_kernel import make_certain


def test_the_next_token_of_each_text_becomes_certain() -> None:
    draws = torch.Generator().manual_seed(2100)
    lines, sequences, vocabulary, width = 23, 5, 40, 12

    def draw(high: int, *shape: int) -> torch.Tensor:
        return torch.randint(high, shape, generator=draws)

    batch = SimpleNamespace(
        expanded_idx_mapping=draw(sequences, lines).int(),
        logits_indices=draw(50, lines),
        positions=draw(30, 50),
    )
    prompts, rows = draw(20, sequences).int(), draw(7, sequences)
    texts = draw(vocabulary, 7, width)
    logits = torch.randn((lines, vocabulary), generator=draws)
    slots = batch.expanded_idx_mapping.long()
    # Before its end a prompt has the text's first token; after its end a text has the last one.
    places = (batch.positions[batch.logits_indices] + 1 - prompts[slots]).clamp(0, width - 1)
    expected = texts[rows[slots], places]
    others = logits.clone()
    made = make_certain(logits, batch, prompts, rows, texts)
    assert torch.equal(made.argmax(1), expected)
    others[torch.arange(lines), expected] = 30000.0
    assert torch.equal(made, others)
