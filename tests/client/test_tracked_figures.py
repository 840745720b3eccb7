"""The figures of a distillation that a tracker gets."""

from modnorm.client.tracking import distillation_figures
from tests.analysis.distillations import make_document


def test_every_round_and_the_best_student_have_figures_with_bounds():
    values = distillation_figures(make_document(0.2, [0.6, 0.7], [0.5, 0.65]))
    assert values["heldout/base"] == 0.2
    assert values["heldout/student"] == values["heldout/round_1_student"] == 0.5
    assert values["heldout/round_2_vote"] == 0.7
    assert values["heldout/round_1_rank_1"] == 0.6 - 0.05
    assert values["development/round_2_student"] == 0.3
    assert values["heldout/student_lower"] < 0.5 < values["heldout/student_upper"]
