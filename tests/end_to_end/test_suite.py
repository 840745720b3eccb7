"""A suite through its front door: run, killed, resumed, and set beside the paper's table."""

import json

import pytest
import yaml

from tests.end_to_end.stored_jobs import done
from verification.labs.bundled_tasks import bundled_task
from verification.labs.waiting import wait_until

ROWS = 5
SUITE = {
    "name": "tiny",
    "title": "Tiny",
    "base": {
        "model": "tiny-thicket",
        "task": bundled_task("gsm8k", selection=ROWS, heldout=ROWS, max_tokens=24),
        "population": {"size": 3, "prefixes": [2, 3], "ensemble_sizes": [1, 2]},
    },
    "axes": {"method": {"RandOpt": {"method": {"name": "randopt", "sigma": 0.02}}}},
    "seeds": [42, 43],
    "tables": [
        {
            "kind": "metric",
            "title": "Accuracy",
            "rows": ["method", "N"],
            "columns": ["K"],
            "paper": {"source": "a paper", "values": {"RandOpt": {3: {2: [35.5, 1.25]}}}},
        }
    ],
}


@pytest.fixture
def suite_file(tmp_path):
    path = tmp_path / "tiny.yaml"
    path.write_text(yaml.safe_dump(SUITE, sort_keys=False))
    return path


def test_a_killed_suite_goes_on_and_prints_its_table(modnorm, start_command, suite_file, tmp_path):
    out = tmp_path / "out"
    run = start_command("suite", "run", suite_file, "--out", out)
    wait_until(lambda: len(done(out)) >= 2 or run.has_ended(), "two jobs", pause=0.02)
    assert not run.has_ended(), run.stderr
    run.process.kill()
    run.finish()
    before = done(out)
    modnorm("suite", "run", suite_file, "--out", out, "--quiet")

    assert before.items() <= done(out).items()
    (table,) = json.loads(modnorm("suite", "table", suite_file, "--out", out, "--json").stdout)
    assert table["missing"] == 0
    figure = table["rows"][1]["figures"][1]
    results = [json.loads((out / f"randopt_{s}" / "results.json").read_text()) for s in (42, 43)]
    assert figure["by_seed"] == {
        str(seed): 100 * each["ensembles"][3]["metric"]
        for seed, each in zip((42, 43), results, strict=True)
    }
    assert figure["paper"] == {"mean": 35.5, "sd": 1.25}
    assert [each["budget"]["search"] for each in results] == [3 * ROWS, 3 * ROWS]
