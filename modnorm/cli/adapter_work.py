"""The work of `modnorm export --adapters`."""

import shlex
from pathlib import Path

import typer

from modnorm.checkpoint.reference import Checkpoint
from modnorm.checkpoint.writing import require_new
from modnorm.cli.console import emit_json
from modnorm.cli.export_work import warn_of_tokenizer
from modnorm.cli.predict import EnsembleChoice
from modnorm.cli.runs import opened_run
from modnorm.client.export_card import check_tokenizer
from modnorm.perturbation.adapters import require_adapters
from modnorm.perturbation.model_card import TokenizerFinding
from modnorm.prediction.base_model import BasePlace
from modnorm.prediction.ensemble_adapters import export_adapters, serving_command
from modnorm.prediction.ensemble_definition import EnsembleDefinition, define_ensemble
from modnorm.prediction.expert_cards import check_example
from modnorm.prediction.manifest import read_ensemble_manifest


def write_adapters(choice: EnsembleChoice, place: BasePlace, out: Path, *, as_json: bool) -> None:
    """Write the experts of an ensemble as adapters, and print the command that serves them.

    Args:
        choice: The ensemble.
        place: Where the base is.
        out: Directory of the adapters.
        as_json: Print a document.

    Raises:
        InvalidInputError: the experts cannot be adapters.
    """
    require_new(out)
    ensemble, base, finding = _find(choice, place)
    names = export_adapters(ensemble, base, out, finding)
    warn_of_tokenizer(finding)
    command = serving_command(base, ensemble.scale_map, out, names)
    if as_json:
        experts = dict(zip(names, ensemble.indices, strict=True))
        emit_json({"directory": str(out), "experts": experts, "command": list(command)})
        return
    for name, index in zip(names, ensemble.indices, strict=True):
        typer.echo(f"{out / name}  candidate {index}")
    typer.echo(shlex.join(command))


def _find(
    choice: EnsembleChoice, place: BasePlace
) -> tuple[EnsembleDefinition, Checkpoint, TokenizerFinding]:
    """Return the ensemble, its base, and whether `AutoTokenizer` can be used."""
    if choice.is_manifest:
        manifest = read_ensemble_manifest(Path(choice.source))
        ensemble = manifest.narrowed(choice.population, choice.size)
        base = _base(ensemble, place)
        manifest.prompt.check(ensemble, base)
        return ensemble, base, check_example(manifest, base)
    with opened_run(choice.source, choice.server) as run:
        ensemble = define_ensemble(run, choice.population, choice.size)
        base = _base(ensemble, place)
        return ensemble, base, check_tokenizer(run, base)


def _base(ensemble: EnsembleDefinition, place: BasePlace) -> Checkpoint:
    require_adapters(ensemble.scale_map)
    return place.find(ensemble.model, ensemble.model_digest)
