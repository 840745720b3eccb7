from dataclasses import replace

import pytest


def test_candidates_must_be_the_whole_population_in_order(run):
    with pytest.raises(ValueError, match="0, 1, 2"):
        replace(run, candidates=run.candidates[1:])
