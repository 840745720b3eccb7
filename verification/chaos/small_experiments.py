"""Small experiments with the bundled model, which take seconds and have votes."""

from collections.abc import Mapping

from modnorm.spec import ExperimentSpec, parse_spec
from verification.chaos.fault_schedule import DRAFTS, PREDICTED

_POPULATION: Mapping[str, object] = {
    "size": 8,
    "prefixes": [4, 8],
    "ensemble_sizes": [1, 3],
    "statistics": "full",  # runs are compared byte by byte
    "seed": 11,
}
JOBS = 11
"""Least number of jobs: the base and eight candidates, then the base and an expert."""

_TASK: Mapping[str, object] = {
    "name": "gsm8k",
    "selection": {"source": "bundled:word-problems-selection", "limit": 4},
    "heldout": {"source": "bundled:word-problems-heldout", "limit": 4},
    "max_tokens": 24,  # enough for an answer, unlike for one of Countdown
}
_SEARCHES: Mapping[str, Mapping[str, object]] = {
    "randopt": {"task": _TASK, "method": {"name": "randopt", "sigma": 0.02}},
    "modular_norm": {
        "task": _TASK,
        "method": {"name": "modular_norm", "radius": 2.0},
        "calibration": {"examples": 2, "max_length": 32},
    },
}
"""Their noise is so strong that scores differ and some votes are wrong."""

_DRAFTS: Mapping[str, object] = {
    "task": {**_TASK, "max_tokens": 64},
    "method": {"name": "randopt", "sigma": 0.01},
    "engine": {"name": "vllm", "drafts": "population", "max_model_len": 512, "max_num_seqs": 8},
}
PREDICTION_JOBS = 5
"""Jobs of a prediction, one for each expert."""
_PREDICTED: Mapping[str, object] = {
    "task": {**_TASK, "max_tokens": 48},
    "method": {"name": "randopt", "sigma": 0.01},
    "population": {**_POPULATION, "prefixes": [8], "ensemble_sizes": [1, PREDICTION_JOBS]},
}


def make_experiment(name: str) -> ExperimentSpec:
    """Return the spec of an experiment by name.

    Its attempts suffice for a schedule that ends the lease of one job ten times.
    """
    sections = {**_SEARCHES, DRAFTS: _DRAFTS, PREDICTED: _PREDICTED}[name]
    return parse_spec(
        {
            "name": name,
            "model": "tiny-thicket",
            "population": dict(_POPULATION),
            "failures": {"max_attempts": 100},
            "reuse": False,  # the searches of many schedules share a lab
            **sections,
        }
    )
