"""The speed of real models on a GPU, against measured figures."""

import json
from types import SimpleNamespace

import pytest

from modnorm.spec import parse_spec
from modnorm.suites import cost_estimate
from modnorm.suites.cost_estimate import (
    BANDWIDTH,
    GpuSpeed,
    answer_tokens,
    estimate_cost,
    rate_of_run,
)

SMALL, LARGE = 494_032_768, 1_543_714_304
"""Weights of Qwen2.5-Coder-0.5B and 1.5B."""


@pytest.mark.parametrize("gpu", BANDWIDTH)
@pytest.mark.parametrize(
    ("weights", "task", "rows", "measured"),
    [
        (SMALL, "gsm8k", 200, 1.4),
        (SMALL, "gsm8k", 1_319, 5.0),
        (LARGE, "countdown", 300, 3.8),
    ],
)
def test_candidates_of_real_models_take_the_measured_time(gpu, weights, task, rows, measured):
    """256 sequences a step, answers of at most 512 tokens."""
    seconds = GpuSpeed(gpu, weights, 256).candidate_seconds(rows, answer_tokens(task, 512))
    assert seconds == pytest.approx(measured, rel=0.3)


def spec_of(rows, **population):
    split = {"source": "bundled:countdown-selection", "limit": rows}
    heldout = {"source": "bundled:countdown-heldout", "limit": 1_319}
    return parse_spec(
        {
            "model": "tiny-thicket",
            "task": {"name": "gsm8k", "selection": split, "heldout": heldout, "max_tokens": 512},
            "method": {"name": "modular_norm", "radius": 0.16},
            "population": population,
            "engine": {"max_num_seqs": 256},
        }
    )


def test_a_whole_run_of_a_real_model_takes_the_measured_time(monkeypatch):
    """Coder-0.5B, N = 100, K = 25: start 80 to 90 s, search 139 s, 50 experts in 249 s."""
    layout = [SimpleNamespace(numel=SMALL)]
    monkeypatch.setattr(cost_estimate, "physical_layout", lambda _config: layout)
    spec = spec_of(200, size=100, prefixes=[25, 50, 100], ensemble_sizes=[25])
    phases = estimate_cost(spec, gpu="H200").phases
    assert phases is not None
    for name, seconds in {"start": 85, "search": 139, "vote": 255}.items():
        assert phases[name] == pytest.approx(seconds, rel=0.3)
    assert estimate_cost(spec, gpu="H200").hours == pytest.approx(sum(phases.values()) / 3600)


def test_a_finished_run_tells_the_speed_of_each_phase(tmp_path):
    timings = {
        "phases": {"starting": 80.0, "calibrating": 10.0, "selecting": 999.0},
        "candidates": [
            {"index": 0, "seconds": 8.0, "heldout_seconds": 6.0},
            {"index": 1, "seconds": 4.0, "heldout_seconds": 0.0},
        ],
    }
    rows = {"selection": {"rows": 4}, "heldout": {"rows": 12}}
    results = {"candidates": {"stopped": []}, "data": rows}
    for name, content in (("timings", timings), ("results", results)):
        (tmp_path / f"{name}.json").write_text(json.dumps(content))
    spec = spec_of(10, size=4, prefixes=[2, 4], ensemble_sizes=[2])
    # The base and 4 candidates on 10 rows; the base and 2, then 1 expert on 1,319 rows.
    assert estimate_cost(spec, rate_of_run(tmp_path)).phases == {
        "start": 80.0,
        "calibrate": 10.0,
        "search": 5 * 10 * 1.5,
        "vote": 4 * 1_319 * 0.5,
    }
