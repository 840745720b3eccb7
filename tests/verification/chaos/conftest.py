"""A lab to break, and what its experiments lead to when nobody does."""

import pytest

from verification.chaos.campaign import run_undisturbed
from verification.chaos.lab import open_lab, working_folder
from verification.chaos.schedules import EXPERIMENTS


@pytest.fixture(scope="package")
def lab(forks):
    with working_folder() as folder, open_lab(forks, folder, supervised=False) as running:
        yield running


@pytest.fixture(scope="package")
def expected(lab):
    return run_undisturbed(lab, EXPERIMENTS[-1:])
