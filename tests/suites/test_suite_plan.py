from modnorm.suites.cost_estimate import plan_suite


def test_a_plan_counts_search_experts_and_base(load):
    plan = plan_suite(load().cells)
    assert (plan.experiments, plan.candidates) == (8, 32)
    assert plan.search == 8 * 4 * 10
    # Two prefixes of two experts each, never more than the population.
    assert plan.final_at_most == 4 * (4 * 10) + 4 * (4 * 20)
    assert plan.base == 4 * (10 + 10) + 4 * (10 + 20)
    assert plan.uncounted == 0


def test_rows_are_counted_where_they_are_known(load):
    def sources(selection, heldout):
        task = {"task": {"name": "gsm8k", "selection": selection, "heldout": heldout}}
        cells = load(axes={"task": {"t": task}, "method": {"r": RANDOPT}}, seeds=[1]).cells
        return plan_suite(cells).cells[0]

    split = sources("split:gsm8k/selection", {"source": "split:gsm8k/heldout", "offset": 19})
    assert (split.selection_rows, split.heldout_rows) == (200, 1300)
    files = sources("bundled:word-problems-selection", {"source": "openai/gsm8k", "split": "test"})
    assert (files.selection_rows, files.heldout_rows) == (60, None)
    assert files.search is None


def test_training_is_counted_by_updates(load):
    task = {"task": {"name": "gsm8k", "selection": SELECTION, "heldout": "split:gsm8k/heldout"}}
    development = {"source": "rows.jsonl", "limit": 500}
    mezo = {"method": {"name": "mezo"}, "iterative": {"development": development}}
    axes = {"method": {"es": {"method": {"name": "es"}}, "mezo": mezo}, "task": {"t": task}}
    cells = load(base={"model": "tiny-thicket"}, axes=axes, seeds=[1]).cells
    es, two_sided = plan_suite(cells).cells
    assert (es.candidates, es.search, es.development) == (3_000, 600_000, 0)
    assert (two_sided.candidates, two_sided.search, two_sided.development) == (
        3_000,
        600_000,
        8_000,
    )
    assert es.final_at_most == two_sided.final_at_most == 1_319


SELECTION = "split:gsm8k/selection"
RANDOPT = {"method": {"name": "randopt", "sigma": 0.01}}
