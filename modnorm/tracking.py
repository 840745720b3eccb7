"""Logs a finished run to MLflow or to Weights & Biases, whose own settings apply.

A directory that is logged again continues the run of its digest.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from types import MappingProxyType

from modnorm.analysis.distillation import DistillationDocument, load_distillation
from modnorm.analysis.document import ResultsDocument
from modnorm.analysis.run import load_run
from modnorm.analysis.run_files import DISTILLATION, RESULTS
from modnorm.client.run_directory import lock_file, state_directory
from modnorm.errors import ModnormError, PreconditionError, UnavailableError
from modnorm.hints import require_name
from modnorm.spec.reading import leaves

_GROUP = "modnorm"
_TAG = "modnorm.run"
_LONGEST = 6_000
"""Characters of a parameter that MLflow accepts."""
_BATCH = 100
"""Parameters that MLflow accepts in one call."""
_LOCAL_MODES = frozenset({"offline", "disabled"})


@dataclass(frozen=True, slots=True)
class _Logged:
    """What a tracker gets of a directory."""

    digest: str
    """SHA-256 of the results."""
    name: str
    parameters: Mapping[str, object]
    """The spec by dotted path; lists as text, without fields that are unset."""
    figures: Mapping[str, float]
    files: Mapping[str, Path]
    """By path inside the directory."""


def log_run(directory: Path | str, tracker: str) -> None:
    """Log spec, held-out figures and files of a finished run."""
    require_name(tracker, TRACKERS, "to", "tracker")
    library = find_spec(tracker)
    # A folder of this name in the working directory, such as wandb's own, is no library.
    if library is None or library.origin is None:
        raise PreconditionError(
            f"{tracker} is not installed",
            field="to",
            remedy=f"pip install -e '.[{tracker}]' in the checkout",
        )
    logged = _read(Path(directory))
    try:
        TRACKERS[tracker](logged)
    except ModnormError:
        raise
    except Exception as error:  # a tracker's library raises anything
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise UnavailableError(f"{tracker} failed: {lines[0]}", field="to") from error


def _log_to_mlflow(run: _Logged) -> None:
    from mlflow.entities import Metric, Param  # noqa: PLC0415 - an extra
    from mlflow.environment_variables import MLFLOW_EXPERIMENT_NAME  # noqa: PLC0415 - as above
    from mlflow.tracking import MlflowClient  # noqa: PLC0415 - as above
    from mlflow.utils.time import get_current_time_millis  # noqa: PLC0415 - as above

    client, group = MlflowClient(), MLFLOW_EXPERIMENT_NAME.get() or _GROUP
    found = client.get_experiment_by_name(group)
    group_id = client.create_experiment(group) if found is None else found.experiment_id
    earlier = client.search_runs([group_id], f"tags.`{_TAG}` = '{run.digest}'")
    created = (
        earlier[0]
        if earlier
        else client.create_run(group_id, tags={_TAG: run.digest}, run_name=run.name)
    )
    identity, now = created.info.run_id, get_current_time_millis()
    parameters = [Param(key, str(value)[:_LONGEST]) for key, value in run.parameters.items()]
    for start in range(0, len(parameters), _BATCH):
        client.log_batch(identity, params=parameters[start : start + _BATCH])
    figures = [Metric(name, value, now, 0) for name, value in run.figures.items()]
    for start in range(0, len(figures), _BATCH):
        client.log_batch(identity, metrics=figures[start : start + _BATCH])
    for name, path in run.files.items():
        folder = str(PurePosixPath(name).parent)
        client.log_artifact(identity, str(path), None if folder == "." else folder)
    client.set_terminated(identity, "FINISHED")


def _log_to_wandb(run: _Logged) -> None:
    import wandb  # noqa: PLC0415 - an extra

    settings = wandb.setup().settings
    if settings.mode not in _LOCAL_MODES and not wandb.login(prompt=False, verify=False):
        raise PreconditionError(
            "wandb has no credentials",
            field="to",
            remedy="`wandb login`, or set WANDB_MODE=offline",
        )
    started = wandb.init(
        project=settings.project or _GROUP,
        id=run.digest[:16],
        name=run.name,
        resume="allow",
        config=dict(run.parameters),
        # The output of this process and the load of this machine are not the run's.
        settings=wandb.Settings(console="off", silent=True, x_disable_stats=True),
    )
    started.summary.update(dict(run.figures))
    artifact = wandb.Artifact(f"run-{started.id}", type="run")
    for name, path in run.files.items():
        artifact.add_file(str(path), name=name)
    started.log_artifact(artifact)
    started.finish()


TRACKERS: Mapping[str, Callable[[_Logged], None]] = MappingProxyType(
    {"mlflow": _log_to_mlflow, "wandb": _log_to_wandb}
)
"""What logs a run, by the name of the library, which is that of its extra too."""


def _read(directory: Path) -> _Logged:
    if (directory / DISTILLATION).is_file():
        distillation = load_distillation(directory)
        results, spec = DISTILLATION, distillation["spec"]
        figures = distillation_figures(distillation)
    else:
        document = load_run(directory).document
        results, spec, figures = RESULTS, document["spec"], run_figures(document)
    state, lock = state_directory(directory), lock_file(directory)
    files = {
        path.relative_to(directory).as_posix(): path
        for path in sorted(directory.rglob("*"))
        if path.is_file() and path != lock and state not in path.parents
    }
    digest = sha256((directory / results).read_bytes()).hexdigest()
    name = str(spec.get("name") or directory.resolve().name)
    parameters = {
        path: ", ".join(map(str, value)) if isinstance(value, list) else value
        for path, value in leaves(dict(spec))
        if value is not None
    }
    return _Logged(digest, name, parameters, figures, files)


def run_figures(document: ResultsDocument) -> dict[str, float]:
    """Return the held-out figures of a run by name, each with the bounds of its interval."""
    base, experts = document["base"], document["experts"]
    found: list[tuple[str, object, object]] = [
        ("base", base["heldout_metric"], base["heldout_interval"])
    ]
    if experts:
        found.append(("rank_1", experts[0]["heldout_metric"], experts[0]["heldout_interval"]))
    found += [
        (f"N{each['population']}_K{each['ensemble_size']}", each["metric"], each["interval"])
        for each in document["ensembles"]
    ]
    iterative = document["iterative"]
    found += [
        (f"after_{state['updates']}", state["heldout_metric"], state["heldout_interval"])
        for state in (iterative["states"] if iterative else ())
    ]
    return _bounded((f"heldout/{name}", metric, interval) for name, metric, interval in found)


def distillation_figures(document: DistillationDocument) -> dict[str, float]:
    """Return the figures of a distillation by name, each with the bounds of its interval."""
    rounds, best = document["rounds"], document["best_round"]
    named = [("heldout/base", rounds[0]["heldout"])]
    named += [("heldout/student", each["heldout"]) for each in rounds if each["round"] == best]
    for each in rounds[1:]:
        number, search = f"round_{each['round']}", each["search"]
        if search:
            named.append((f"heldout/{number}_rank_1", search["best_expert"]))
            named.append((f"heldout/{number}_vote", search["vote"]))
        named.append((f"heldout/{number}_student", each["heldout"]))
        named.append((f"development/{number}_student", each["development"]))
    return _bounded((name, figure["metric"], figure["interval"]) for name, figure in named)


def _bounded(named: Iterable[tuple[str, object, object]]) -> dict[str, float]:
    """Return known figures and the bounds of their intervals, by name."""
    values: dict[str, float] = {}
    for name, value, interval in named:
        if isinstance(value, float):
            values[name] = value
        if isinstance(interval, list | tuple):
            values[f"{name}_lower"], values[f"{name}_upper"] = interval
    return values
