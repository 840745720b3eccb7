"""The experiment spec, which users write in YAML and services store.

This package checks every limit, so that command line, client and aggregator refuse a spec with
equal messages. Services also make the checks that need a model or data, before they store it.
"""

from modnorm.spec.distillation import DistillationSpec, HarvestSpec
from modnorm.spec.experiment import ExperimentSpec
from modnorm.spec.iterative import IterativeSpec
from modnorm.spec.method import (
    MAX_RADIUS,
    MIN_RADIUS,
    CalibrationSpec,
    Masses,
    MethodSpec,
    RadiusSource,
    TargetModules,
)
from modnorm.spec.population import MAX_POPULATION, PopulationSpec
from modnorm.spec.reading import (
    load_spec,
    load_stored_spec,
    located,
    parse_section,
    parse_spec,
    parse_stored_spec,
)
from modnorm.spec.running import EngineSpec, FailureSpec
from modnorm.spec.section import STORED
from modnorm.spec.task import MAX_DECLARATION, DataSpec, ModelSpec, TaskSpec
from modnorm.spec.training import MAX_BATCH, TrainingSpec
from modnorm.spec.yaml_text import compose_yaml, read_yaml

__all__ = [
    "MAX_BATCH",
    "MAX_DECLARATION",
    "MAX_POPULATION",
    "MAX_RADIUS",
    "MIN_RADIUS",
    "STORED",
    "CalibrationSpec",
    "DataSpec",
    "DistillationSpec",
    "EngineSpec",
    "ExperimentSpec",
    "FailureSpec",
    "HarvestSpec",
    "IterativeSpec",
    "Masses",
    "MethodSpec",
    "ModelSpec",
    "PopulationSpec",
    "RadiusSource",
    "TargetModules",
    "TaskSpec",
    "TrainingSpec",
    "compose_yaml",
    "load_spec",
    "load_stored_spec",
    "located",
    "parse_section",
    "parse_spec",
    "parse_stored_spec",
    "read_yaml",
]
