"""What cannot be measured here is said in one line."""

import sys

import pytest

from benchmarks.gpu_search import __main__ as commands
from verification import engine_agreement


@pytest.fixture
def without_vllm(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for module in (commands, engine_agreement):
        monkeypatch.setattr(module, "find_spec", lambda _: None)
    return monkeypatch


@pytest.mark.parametrize(
    "command",
    [
        ["search", "model", "--out", "results.json"],
        ["throughput", "model"],
        ["switch", "model"],
        ["startup", "model"],
        ["scaling", "model"],
    ],
)
def test_a_search_without_vllm_is_refused_in_a_line(
    command: list[str], without_vllm: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    without_vllm.setattr(sys, "argv", ["gpu_search", *command])
    assert commands.main() == 2
    needs = f"{command[0]} needs vLLM, which is not installed in this Python (docs/gpu.md)\n"
    assert capsys.readouterr().err == needs


def test_engines_without_vllm_are_not_compared(
    without_vllm: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    without_vllm.setattr(sys, "argv", ["engine_agreement"])
    assert engine_agreement.main() == 2
    assert capsys.readouterr().err.count("\n") == 1
