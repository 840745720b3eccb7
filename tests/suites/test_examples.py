"""The suites that ship: every one expands, and every published figure has its place."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from modnorm.spec import HarvestSpec, TrainingSpec, load_spec
from modnorm.spec.reading import differences
from modnorm.spec_checks import check_names, check_resolved, check_splits_differ
from modnorm.suites import load_suite
from modnorm.suites.cost_estimate import plan_cells

EXAMPLES = Path(__file__).parents[2] / "examples"
FILES = sorted(
    path
    for folder in ("paper", "tiny")
    for path in (EXAMPLES / folder).glob("*.yaml")
    if path.stem not in {"parts", "iterative-randopt-gsm8k"}
)
CELLS = {
    "paper-ablations": 24,
    "paper-candidate-rewards": 42,
    "paper-density": 12,
    "paper-families": 36,
    "paper-hyperparameters-es": 9,
    "paper-hyperparameters-two-point": 6,
    "paper-iterative": 24,
    "paper-large-population": 12,
    "paper-population-scaling": 12,
    "paper-transfer": 189,
    "paper-wall-clock": 12,
}

SEEDS = {
    "paper-hyperparameters-es": {39, 40, 41},
    "paper-hyperparameters-two-point": {39},
    "tiny-low-rank-trials": {41},
}
"""Of the suites that choose settings; all others have 42 to 44."""


def leaves(values):
    if isinstance(values, Mapping):
        return sum(leaves(value) for value in values.values())
    return 1


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_a_suite_expands_and_places_the_papers_figures(path, tables):
    loaded = load_suite(path)
    assert len(loaded.cells) == CELLS.get(loaded.suite.name, len(loaded.cells))
    assert {cell.seed for cell in loaded.cells} == SEEDS.get(loaded.suite.name, {42, 43, 44})
    for spec, table in zip(loaded.suite.tables, tables(loaded), strict=True):
        rows = [row for each in (table, *table.beside) for row in each.rows]
        placed = sum(figure.paper is not None for row in rows for figure in row.figures)
        assert placed == (leaves(spec.paper.values) if spec.paper else 0), table.title
        assert table.missing == len(table.rows) * len(table.columns) > 0


CODER = {
    "ablations": 24,
    "candidate-rewards": 36,
    "iterative": 6,
    "population-scaling": 12,
    "transfer": 108,
    "wall-clock": 12,
}
"""Suites that extend those of the paper, and their cells."""


@pytest.mark.parametrize(("name", "count"), CODER.items())
def test_cells_of_coder_models_are_the_papers(name, count, tables):
    """Only the model, drafts and ensembles differ."""
    paper = {cell.id: cell.spec for cell in load_suite(EXAMPLES / f"paper/{name}.yaml").cells}
    loaded = load_suite(EXAMPLES / f"coder/{name}.yaml")
    assert len(loaded.cells) == count
    for cell in loaded.cells:
        there = paper[cell.id].model_dump(mode="json")
        allowed = {
            *("model.name", "model.revision", "engine.drafts", "name"),
            *("population.prefixes", "population.ensemble_sizes"),
        }
        assert set(differences(cell.spec.model_dump(mode="json"), there)) <= allowed
        assert cell.spec.model.name in {"./models/coder-1.5b", "./models/coder-0.5b"}
    assert tables(loaded)


def test_a_sweep_of_learning_rates_costs_what_the_paper_says():
    cells = load_suite(EXAMPLES / "paper" / "hyperparameters-two-point.yaml").cells
    mezo = plan_cells([cell for cell in cells if cell.labels["method"] == "MeZO"]).values()
    assert sum(cell.search or 0 for cell in mezo) == 600_000
    counts = [(cell.heldout_rows, cell.monitoring, cell.final_at_most) for cell in mezo]
    assert sum(count or 0 for cell in counts for count in cell) == 9_000


def test_the_settings_of_iterative_randopt_are_the_published_ones():
    """Those of sunrainyg/RandOpt: `config.py` and `iterative_randopt_gsm8k_olmo3_7b.yaml`."""
    spec = load_spec(EXAMPLES / "paper" / "iterative-randopt-gsm8k.yaml")
    settings = spec.distillation
    assert settings is not None
    assert spec.model.name == "allenai/Olmo-3-7B-Instruct"
    assert (spec.task.selection.limit, spec.task.max_tokens) == (256, 1024)
    assert (spec.population.size, spec.method.radius, spec.population.seed) == (30, 0.001, 42)
    assert settings.rounds == 4
    assert (settings.search_around, settings.train_from) == ("student", "student")
    assert settings.harvest == HarvestSpec(
        experts=8, temperature=1.0, top_p=0.95, samples=16, keep=8, accumulate=True
    )
    assert settings.training == TrainingSpec(
        method="lora",
        rank=192,
        alpha=384,
        dropout=0.05,
        learning_rate=1e-4,
        schedule="cosine",
        warmup=0.1,
        epochs=2,
        batch_size=1024,
        max_length=1024,
    )
    check_resolved(spec)
    check_names(spec)
    check_splits_differ(spec)
