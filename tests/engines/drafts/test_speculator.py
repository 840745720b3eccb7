"""The speculator of vLLM's model runner of version 2, on a runner's memory without vLLM."""

from types import SimpleNamespace

import pytest
import torch

pytest.importorskip("triton", reason="no Triton for this platform")

from modnorm.engines.drafts.matching import CONTEXT
from modnorm.engines.vllm.speculator import NO_ROW, PopulationSpeculator, row_of

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
SLOTS, WIDTH = 4, 12


@pytest.fixture
def speculator() -> PopulationSpeculator:
    scheduler = SimpleNamespace(max_num_seqs=SLOTS)
    config = SimpleNamespace(scheduler_config=scheduler, num_speculative_tokens=3)
    return PopulationSpeculator(config, DEVICE)


def states(texts: dict[int, list[int]], prompt: int) -> SimpleNamespace:
    """Return a runner's states that hold texts in slots."""
    tokens = torch.zeros((SLOTS, WIDTH), dtype=torch.int32, device=DEVICE)
    lengths, prompts = torch.zeros((2, SLOTS), dtype=torch.int32, device=DEVICE)
    for slot, text in texts.items():
        tokens[slot, : len(text)] = torch.tensor(text, dtype=torch.int32)
        lengths[slot], prompts[slot] = len(text), prompt
    held = {"all_token_ids": tokens, "total_len": lengths, "prompt_len": prompts}
    return SimpleNamespace(**{name: SimpleNamespace(gpu=value) for name, value in held.items()})


def batch(*requests: tuple[str, int]) -> SimpleNamespace:
    """Return a step's requests and their slots."""
    ids, slots = zip(*requests, strict=True)
    mapping = torch.tensor(slots, dtype=torch.int32, device=DEVICE)
    return SimpleNamespace(req_ids=list(ids), idx_mapping=mapping, num_reqs=len(ids))


def answer(*tokens: int) -> list[int]:
    """Return an answer after the end of the prompt 1, 2."""
    return [*[-1] * (CONTEXT - 2), 1, 2, *tokens]


def test_each_request_gets_drafts_of_its_prompt(speculator: PopulationSpeculator) -> None:
    speculator.table.add([(5, answer(7, 8, 9, 10)), (6, answer(7, 3))])
    speculator.attach(states({3: [1, 2, 7], 1: [1, 2, 7], 0: [4]}, 2))
    first = batch(("1.5-ab", 3), ("2.6-cd", 1))
    assert speculator.propose(first, None, None).tolist() == [[8, 9, 10], [3, 0, 0]]
    # The same slots, other requests; one has neither prompt nor match.
    second = batch(("3.6-ef", 3), ("4-gh", 0))
    assert speculator.propose(second).tolist() == [[3, 0, 0], [0, 0, 0]]


def test_runs_without_sequences_draft_nothing(speculator: PopulationSpeculator) -> None:
    request = batch(("1.5-ab", 3))
    assert speculator.propose(request).tolist() == [[0, 0, 0]]
    speculator.table.add([(5, answer(7, 8))])
    speculator.attach(states({3: [1, 2, 7]}, 2))
    assert speculator.propose(request, dummy_run=True).tolist() == [[0, 0, 0]]


@pytest.mark.parametrize(
    ("request_id", "row"), [("12.34-5f", 34), ("12.34", 34), ("12-5f", NO_ROW), ("12", NO_ROW)]
)
def test_a_request_id_names_the_row(request_id: str, row: int) -> None:
    assert row_of(request_id) == row
