"""The experiment spec, which users write in YAML and services store.

This package checks every limit, so that command line, client and aggregator refuse a spec with
equal messages. Services also make the checks that need a model or data, before they store it.
"""

from modnorm.spec.experiment import (
    MAX_BATCH,
    DistillationSpec,
    ExperimentSpec,
    HarvestSpec,
    TrainingSpec,
)
from modnorm.spec.reading import (
    compose_yaml,
    load_spec,
    located,
    parse_section,
    parse_spec,
    read_yaml,
)
from modnorm.spec.search_sections import (
    MAX_DECLARATION,
    MAX_POPULATION,
    MAX_RADIUS,
    MIN_RADIUS,
    CalibrationSpec,
    DataSpec,
    EngineSpec,
    FailureSpec,
    IterativeSpec,
    Masses,
    MethodSpec,
    ModelSpec,
    PopulationSpec,
    RadiusSource,
    TargetModules,
    TaskSpec,
)

__all__ = [
    "MAX_BATCH",
    "MAX_DECLARATION",
    "MAX_POPULATION",
    "MAX_RADIUS",
    "MIN_RADIUS",
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
    "located",
    "parse_section",
    "parse_spec",
    "read_yaml",
]
