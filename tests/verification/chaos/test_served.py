"""A served ensemble whose server is killed while clients ask."""

import pytest

from verification.chaos.serving import run_served

SEED = 5


@pytest.mark.integration
def test_a_killed_server_loses_no_answer_but_those_in_progress(forks, tmp_path):
    (verdict,) = run_served(forks, tmp_path, [SEED]).verdicts
    assert verdict.complaints == []
    assert verdict.kills
    assert verdict.statuses[200]
    assert verdict.memory
