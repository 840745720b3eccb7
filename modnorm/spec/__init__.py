"""The experiment spec: what a user writes in YAML and what a service stores.

Every limit is checked here, so that the command line, the client and the aggregator refuse the
same things with the same words. What needs a model or data at hand (the prompt fits, the profile
belongs to the model) is checked by the services before anything is stored.
"""

from modnorm.spec.experiment import ExperimentSpec
from modnorm.spec.iterative import IterativeSpec
from modnorm.spec.method import (
    MAX_RADIUS,
    MIN_RADIUS,
    CalibrationSpec,
    Masses,
    MethodSpec,
    RadiusSource,
)
from modnorm.spec.population import MAX_POPULATION, PopulationSpec
from modnorm.spec.reading import load_spec, parse_section, parse_spec
from modnorm.spec.running import EngineSpec, FailureSpec
from modnorm.spec.task import MAX_DECLARATION, DataSpec, ModelSpec, TaskSpec
from modnorm.spec.yaml_text import compose_yaml, read_yaml

__all__ = [
    "MAX_DECLARATION",
    "MAX_POPULATION",
    "MAX_RADIUS",
    "MIN_RADIUS",
    "CalibrationSpec",
    "DataSpec",
    "EngineSpec",
    "ExperimentSpec",
    "FailureSpec",
    "IterativeSpec",
    "Masses",
    "MethodSpec",
    "ModelSpec",
    "PopulationSpec",
    "RadiusSource",
    "TaskSpec",
    "compose_yaml",
    "load_spec",
    "parse_section",
    "parse_spec",
    "read_yaml",
]
