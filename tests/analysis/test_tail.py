"""Tails against the paper's published figures (facts 10), and terms against exact sums."""

import math
from statistics import fmean, stdev

import pandas as pd
import pytest

from modnorm.analysis.seeds import cutoff, required_population, survival

POPULATION = 300
# Candidates of 300 above each threshold on GSM8K, seeds 42 to 44, and the published N_req.
RANDOPT = {
    0.0: ((157, 161, 144), (25, 24, 27)),
    0.5: ((142, 141, 120), (28, 28, 33)),
    1.0: ((115, 103, 98), (35, 39, 41)),
    1.5: ((93, 87, 79), (44, 47, 52)),
    2.0: ((69, 64, 70), (60, 64, 59)),
    2.5: ((56, 51, 54), (74, 81, 77)),
    3.0: ((42, 33, 38), (99, 127, 110)),
    3.5: ((25, 24, 27), (168, 175, 156)),
    4.0: ((15, 20, 19), (282, 211, 222)),
    4.5: ((13, 14, 14), (326, 302, 302)),
    5.0: ((11, 10, 9), (385, 424, 471)),
    5.5: ((7, 5, 6), (607, 850, 708)),
}
MODULAR = {
    0.0: ((164, 175, 139), (23, 22, 28)),
    0.5: ((144, 159, 123), (27, 24, 32)),
    1.0: ((129, 144, 102), (31, 27, 39)),
    1.5: ((109, 122, 82), (37, 33, 50)),
    2.0: ((81, 103, 63), (50, 39, 65)),
    2.5: ((71, 80, 51), (58, 51, 81)),
    3.0: ((60, 63, 42), (69, 65, 99)),
    3.5: ((42, 49, 30), (99, 85, 140)),
    4.0: ((32, 40, 21), (131, 104, 201)),
    4.5: ((22, 25, 16), (192, 168, 264)),
    5.0: ((19, 23, 13), (222, 183, 326)),
    5.5: ((13, 13, 8), (326, 326, 531)),
}
# Mean and sample SD of the three ratios, as published.
RATIOS = {
    1.5: (1.217810537810538, 0.1937135677865708),
    2.0: (1.2495726495726496, 0.3691714102333548),
    2.5: (1.2715715490112605, 0.31883065747109235),
    3.0: (1.499913291217639, 0.42512597241022976),
    3.5: (1.6233596468890585, 0.47655193909523513),
    4.0: (1.7619985071705477, 0.5727857284085102),
    4.5: (1.546491702741703, 0.35216673917825553),
    5.0: (1.8319864670060788, 0.4442184622648643),
}


def required(above):
    found = required_population(above / POPULATION)
    assert found is not None
    return found


@pytest.mark.parametrize("table", [RANDOPT, MODULAR])
def test_required_populations_are_the_published_ones(table):
    for above, published in table.values():
        assert tuple(map(required, above)) == published


def test_ratios_are_the_published_ones():
    for threshold, (mean, sd) in RATIOS.items():
        pairs = zip(RANDOPT[threshold][0], MODULAR[threshold][0], strict=True)
        ratios = [required(r) / required(m) for r, m in pairs]
        assert fmean(ratios) == pytest.approx(mean, abs=1e-12)
        assert stdev(ratios) == pytest.approx(sd, abs=1e-12)


def test_no_population_is_enough_where_nobody_is_above():
    assert required_population(0.0) is None
    assert required_population(1.0) == 10


def test_a_gain_that_equals_the_threshold_counts_in_spite_of_rounding():
    points = [100 * (0.3 + steps * 0.005 - 0.3) for steps in range(10)]
    assert points[9] < 4.5
    assert survival(points, (0.0, 0.5, 4.5, 5.0)).tolist() == [1.0, 0.9, 0.1, 0.0]
    assert math.isnan(survival([], (1.0,))[0])


def gains_of(above):
    """Return gains of a population, in steps of half a point, from the published counts."""
    thresholds = sorted(above)
    more = [*(above[threshold] for threshold in thresholds[1:]), 0]
    return pd.Series(
        threshold
        for threshold, after in zip(thresholds, more, strict=True)
        for _ in range(above[threshold] - after)
    )


def test_cutoffs_of_the_top_ten_are_the_published_ones():
    cutoffs = [
        cutoff(gains_of({t: counts[seed] for t, (counts, _) in RANDOPT.items()}), 10)
        for seed in range(3)
    ]
    assert fmean(cutoffs) == pytest.approx(4.8333333333333375)
    assert stdev(cutoffs) == pytest.approx(0.2886751345948134)


def test_the_cutoff_is_the_gain_of_the_last_one_selected():
    gains = pd.Series([0.5, 3.0, 2.0, -1.0, None])
    assert cutoff(gains, 2) == 2.0
    assert math.isnan(cutoff(gains, 5))
