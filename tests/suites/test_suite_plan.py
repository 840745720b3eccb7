import json
from types import SimpleNamespace

import pytest

from modnorm.errors import InvalidInputError
from modnorm.spec import parse_spec
from modnorm.suites import cost_estimate
from modnorm.suites.cost_estimate import (
    answer_tokens,
    candidate_seconds,
    estimate_cost,
    plan_cells,
    rate_of_run,
)
from tests.small_results import small_results


def test_a_plan_counts_search_experts_and_base(load):
    plan = plan_cells(load().cells).values()
    assert [(cell.candidates, cell.search) for cell in plan] == 8 * [(4, 4 * 10)]
    # Two prefixes of two experts each, never more than the population.
    assert sum(cell.final_at_most or 0 for cell in plan) == 4 * (4 * 10) + 4 * (4 * 20)
    assert sum(cell.base or 0 for cell in plan) == 4 * (10 + 10) + 4 * (10 + 20)


def test_rows_are_counted_where_they_are_known(load):
    def sources(selection, heldout):
        task = {"task": {"name": "gsm8k", "selection": selection, "heldout": heldout}}
        cells = load(axes={"task": {"t": task}, "method": {"r": RANDOPT}}, seeds=[1]).cells
        return plan_cells(cells)[cells[0].id]

    split = sources("split:gsm8k/selection", {"source": "split:gsm8k/heldout", "offset": 19})
    assert (split.selection_rows, split.heldout_rows) == (200, 1300)
    files = sources("bundled:word-problems-selection", {"source": "openai/gsm8k", "split": "test"})
    assert (files.selection_rows, files.heldout_rows) == (60, None)
    assert files.search is None


def test_an_estimate_needs_the_number_of_all_rows():
    task = {"name": "gsm8k", "selection": SELECTION, "heldout": "split:gsm8k/heldout"}
    development = {"source": "openai/gsm8k", "split": "train"}
    spec = {"model": "tiny-thicket", "task": task, "method": "mezo"}
    with pytest.raises(InvalidInputError) as refused:
        estimate_cost(parse_spec({**spec, "iterative": {"development": development}}))
    assert refused.value.field == "iterative.development.limit"


def test_training_is_counted_by_updates(load):
    task = {"task": {"name": "gsm8k", "selection": SELECTION, "heldout": "split:gsm8k/heldout"}}
    development = {"source": "rows.jsonl", "limit": 500}
    mezo = {"method": {"name": "mezo"}, "iterative": {"development": development}}
    axes = {"method": {"es": {"method": {"name": "es"}}, "mezo": mezo}, "task": {"t": task}}
    cells = load(base={"model": "tiny-thicket"}, axes=axes, seeds=[1]).cells
    es, two_sided = plan_cells(cells).values()
    for plan in (es, two_sided):
        assert (plan.candidates, plan.search, plan.final_at_most) == (3_000, 600_000, 1_319)
    assert (es.development, two_sided.development) == (0, 8_000)


SELECTION = "split:gsm8k/selection"
RANDOPT = {"method": {"name": "randopt", "sigma": 0.01}}


SMALL, LARGE = 494_032_768, 1_543_714_304
"""Weights of Qwen2.5-Coder-0.5B and 1.5B."""


@pytest.mark.parametrize(
    ("weights", "task", "rows", "measured"),
    [
        (SMALL, "gsm8k", 200, 1.11),
        (SMALL, "gsm8k", 500, 2.05),
        (SMALL, "gsm8k", 1_319, 5.0),
        (LARGE, "gsm8k", 200, 1.36),
        (LARGE, "gsm8k", 1_319, 5.29),
        (LARGE, "countdown", 200, 2.8),
        (LARGE, "countdown", 500, 5.5),
    ],
)
def test_candidates_of_real_models_take_the_measured_time(weights, task, rows, measured):
    """Answers of at most 1,024 tokens on an H200."""
    seconds = candidate_seconds("H200", weights, rows, answer_tokens(task, 1_024))
    assert seconds == pytest.approx(measured, rel=0.3)


def spec_of(rows, **population):
    split = {"source": "bundled:countdown-selection", "limit": rows}
    heldout = {"source": "bundled:countdown-heldout", "limit": 1_319}
    return parse_spec(
        {
            "model": "tiny-thicket",
            "task": {"name": "gsm8k", "selection": split, "heldout": heldout, "max_tokens": 1_024},
            "method": {"name": "modular_norm", "radius": 0.16},
            "population": population,
        }
    )


def test_a_whole_run_of_a_real_model_takes_the_measured_time(monkeypatch):
    """Coder-1.5B, N = K = 25 on an H200."""
    layout = [SimpleNamespace(numel=LARGE)]
    monkeypatch.setattr(cost_estimate, "physical_layout", lambda _config: layout)
    phases = estimate_cost(spec_of(200, size=25, ensemble_sizes=[25]), gpu="H200").phases
    assert phases is not None
    for name, seconds in {"start": 36.6, "calibrate": 26.3, "search": 36.5, "vote": 125.7}.items():
        assert phases[name] == pytest.approx(seconds, rel=0.3)
    assert sum(phases.values()) == pytest.approx(203.1, rel=0.3)


def test_a_finished_run_tells_the_speed_of_each_phase(tmp_path):
    timings = {
        "phases": {"starting": 80.0, "calibrating": 10.0, "selecting": 999.0},
        "candidates": [
            {"index": 0, "seconds": 8.0, "heldout_seconds": 2.0},
            {"index": 1, "seconds": 4.0, "heldout_seconds": 0.0},
        ],
    }
    spec = spec_of(10, size=4, prefixes=[2, 4], ensemble_sizes=[2])
    results = small_results(spec.model_dump(mode="json"))  # of 4 rows each
    for name, content in (("timings", timings), ("results", results)):
        (tmp_path / f"{name}.json").write_text(json.dumps(content))
    damaged = tmp_path / "damaged"
    damaged.mkdir()
    (damaged / "results.json").write_text(json.dumps(results))
    (damaged / "timings.json").write_text("{}")
    with pytest.raises(InvalidInputError, match=r"timings.json has no column 'candidates'"):
        rate_of_run(damaged)
    # The base and 4 candidates on 10 rows; the base and 2, then 1 expert on 1,319 rows.
    assert estimate_cost(spec, rate_of_run(tmp_path)).phases == {
        "start": 80.0,
        "calibrate": 10.0,
        "search": 5 * 10 * 1.5,
        "vote": 4 * 1_319 * 0.5,
    }
