"""Jobs, tokens and hours of a spec, estimated before it runs.

A decode step on a GPU reads all weights once, and takes time for each of its sequences. The
constants are fitted to Qwen2.5-Coder-0.5B and 1.5B in bfloat16 on an H200.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import pairwise
from pathlib import Path
from typing import cast

import pandas as pd

from modnorm.analysis.run import load_run
from modnorm.analysis.run_files import STARTING, TIMINGS, unreadable
from modnorm.checkpoint.families import physical_layout
from modnorm.checkpoint.reference import find_local_checkpoint
from modnorm.errors import InvalidInputError, ModnormError
from modnorm.hints import one_of
from modnorm.search.budgets import Budget, ensemble_budget, iterative_budget
from modnorm.spec import DataSpec, DistillationSpec, ExperimentSpec
from modnorm.spec_checks import rows_of, task_of
from modnorm.suites.cells import Cell, calibrates, ensembles_of, naming_cell
from modnorm.tasks.catalogue import find_split
from modnorm.tasks.row_loading import is_dataset, open_source

BANDWIDTH = {"H100": 3.35e12, "H200": 4.8e12}
"""Bytes a second that the memory of a known GPU delivers."""
SEQUENCES = 1_024
"""Most sequences of a step, if the spec does not say: so many fit beside models of some billion
weights."""
START_SECONDS = 27.0
"""Start of vLLM, graphs included: the median of 43 recorded cells. The first on a machine compiles
for half a minute more."""
CALIBRATION_SECONDS = 0.5
"""Calibration on one prompt."""

_STEP_SECONDS = 0.25e-3
"""A step apart from weights and sequences."""
_PASSES = 2.2
"""Time of a step for the weights, in passes over them."""
_SEQUENCE_SECONDS = 11.4e-6
"""vLLM's scheduler, for each sequence of a step."""
_TOKEN_SECONDS = 7.4e-15
"""The GPU's work on a token for each weight, which exceeds the scheduler's from 1.5e9 weights."""
_GAP_SECONDS = 0.2
"""Between two candidates, and while the last sequences of one leave the batch small."""
_BYTES = 2
"""Of a weight in bfloat16."""
_TOKENS = {"countdown": 680, "gsm8k": 300, "math500": 600, "olympiadbench": 800, "mbpp": 200}
"""Tokens of an answer by task, less those that drafts save, where the cap is no lower; otherwise
answers reach the cap."""
_DRIVER = Path("/proc/driver/nvidia/gpus")
_CPU_SECONDS = 7.1
"""Seconds of one evaluation for 1e9 weights on two CPU cores: the demo takes 2.82 s for 64 rows
and 6.2e6 weights."""


@dataclass(frozen=True, slots=True)
class Rate:
    """How long one model-prompt evaluation takes."""

    seconds: float
    """Of one selection row."""
    basis: str
    """Description of the measured machine or run."""
    heldout_seconds: float | None = None
    """Of one held-out row; as long as a selection row if it was not measured."""
    start_seconds: float = 0.0
    """Of the start of an engine."""
    calibration_seconds: float = 0.0
    measured: tuple[str, str] | None = None
    """Model and task of the measured run, which decide the speed."""

    def phases(self, searched: float, voted: float) -> dict[str, float]:
        """Return the seconds by phase for numbers of evaluations."""
        heldout = self.seconds if self.heldout_seconds is None else self.heldout_seconds
        return {
            "start": self.start_seconds,
            "calibrate": self.calibration_seconds,
            "search": searched * self.seconds,
            "vote": voted * heldout,
        }


@dataclass(frozen=True, slots=True)
class CostEstimate:
    """The cost of one experiment; upper bounds if ensembles share experts."""

    candidates: int
    jobs: int
    """Jobs of evaluators: one candidate, or the base, on the rows of one split."""
    evaluations: int
    """Model-prompt evaluations of all jobs."""
    tokens: int
    """Completion tokens if every answer reaches the cap."""
    phases: Mapping[str, float] | None
    """Seconds by phase with one worker; None if no rate is known."""
    hours: float | None
    """Hours of all phases."""
    basis: str | None
    """Description of the measurement that the hours are scaled from."""


def estimate_cost(
    spec: ExperimentSpec, rate: Rate | None = None, *, gpu: str | None = None
) -> CostEstimate:
    """Estimate the cost of a spec; no weights are read.

    A task file of the spec has been read.
    """
    rows = {field: _count(data, field) for field, data in rows_of(spec).items()}
    selection, heldout = rows["task.selection"], rows["task.heldout"]
    plan = _plan(spec, rows)
    counts = (plan.search, plan.development, plan.monitoring, plan.final_at_most, plan.base)
    # All are known, as the numbers of rows are.
    search, development, monitoring, final, base = (count or 0 for count in counts)
    evaluations = search + development + monitoring + final + base
    if (settings := spec.distillation) is not None:
        first = estimate_cost(spec.model_copy(update={"distillation": None}), rate, gpu=gpu)
        harvests = _harvests(spec, settings)
        jobs = settings.rounds * (first.jobs + harvests) + 2 * (settings.rounds + 1)
        searched, voted = float(evaluations), 0.0
    else:
        iterative, checkpoints = spec.iterative, 0
        if iterative is not None and iterative.development is not None:
            checkpoints = -(-iterative.updates // iterative.evaluate_every) + 1
        jobs = search // selection + (monitoring + final) // heldout + 2 + checkpoints
        searched = float(search + development + selection)
        voting = final if iterative else _expected_experts(spec) * heldout
        voted = voting + monitoring + heldout
    rate = rate or _scaled_rate(spec, rows.get("distillation.rows", selection), heldout, gpu)
    phases = None if rate is None else rate.phases(searched, voted)
    return CostEstimate(
        candidates=plan.candidates,
        jobs=jobs,
        evaluations=evaluations,
        tokens=evaluations * _cap(spec),
        phases=phases,
        hours=None if phases is None else sum(phases.values()) / 3600,
        basis=None if rate is None else rate.basis,
    )


def _cap(spec: ExperimentSpec) -> int:
    return spec.task.max_tokens or task_of(spec).max_tokens


def _expected_experts(spec: ExperimentSpec) -> float:
    """Return the expected number of experts: those of a prefix are of the smaller one too."""
    prefixes = spec.population.reported_prefixes
    kept = sum(smaller / larger for smaller, larger in pairwise(prefixes))
    return spec.population.ensemble_sizes[-1] * (len(prefixes) - kept)


def _count(data: DataSpec, field: str) -> int:
    """Return the number of rows of a source; at least one."""
    count = count_rows(data, field)
    if count is None and not is_dataset(data.source):
        list(open_source(data, field=field, roots=None).rows)  # raises the fault of the file
    if count == 0:
        passed = f" after the first {data.offset}" if data.offset else ""
        raise InvalidInputError(f"{data.source} has no rows{passed}", field=field)
    if count is None:
        raise InvalidInputError(
            f"the number of rows of {data.source} is not known on this machine",
            field=f"{field}.limit",
            remedy="give a limit",
        )
    return count


def rate_of_run(directory: Path) -> Rate:
    """Return the mean time of an evaluation in a finished run."""
    run = load_run(directory)
    data = run.document["data"]
    timings = run.timings()
    try:
        timed = pd.DataFrame(cast("list[dict[str, float]]", timings["candidates"]))
        whole = timed["seconds"][timed["seconds"] > 0]
        voted = timed["heldout_seconds"][timed["heldout_seconds"] > 0]
    except KeyError as error:
        raise unreadable(directory / TIMINGS, error) from error
    if not len(whole):
        raise InvalidInputError(f"no candidate of {directory} was scored", field="like")
    phases = cast("Mapping[str, float]", timings.get("phases", {}))
    spec = run.document["spec"]
    return Rate(
        float(whole.mean()) / data["selection"]["rows"],
        str(directory),
        heldout_seconds=float(voted.mean()) / data["heldout"]["rows"] if len(voted) else None,
        start_seconds=phases.get(STARTING, 0.0),
        calibration_seconds=phases.get("calibrating", 0.0),
        measured=(spec["model"]["name"], spec["task"]["name"]),
    )


def _scaled_rate(
    spec: ExperimentSpec, selection: int, heldout: int, gpu: str | None
) -> Rate | None:
    """Return the speed that follows from the size of a model; None if it is not known."""
    checkpoint = find_local_checkpoint(spec.model.name, spec.model.revision)
    if checkpoint is None:
        return None
    weights = sum(tensor.numel for tensor in physical_layout(checkpoint.config))
    gpu = gpu or gpu_here()
    if gpu is None:
        return Rate(_CPU_SECONDS * weights / 1e9, "measurements on two CPU cores")
    tokens = answer_tokens(spec.task.name, _cap(spec))
    seconds = partial(
        candidate_seconds,
        *(gpu, weights),
        tokens=tokens,
        sequences=spec.engine.max_num_seqs or SEQUENCES,
    )
    examples = spec.calibration.examples if calibrates(spec) else 0
    return Rate(
        seconds(selection) / selection,
        f"measurements on an {gpu}, at {tokens} tokens an answer",
        heldout_seconds=seconds(heldout) / heldout,
        start_seconds=START_SECONDS,
        calibration_seconds=CALIBRATION_SECONDS * examples,
    )


def candidate_seconds(
    gpu: str, weights: int, rows: int, tokens: int, sequences: int = SEQUENCES
) -> float:
    """Return the seconds of one candidate on a known GPU, at most some sequences a step."""
    batch = min(rows, sequences)
    passes = _PASSES * weights * _BYTES / BANDWIDTH[gpu]
    sequence = max(_SEQUENCE_SECONDS, _TOKEN_SECONDS * weights)
    step = _STEP_SECONDS + passes + sequence * batch
    return _GAP_SECONDS + tokens * rows / batch * step


def answer_tokens(task: str, cap: int) -> int:
    """Return the expected tokens of an answer: those typical of the task, or the cap."""
    return min(cap, _TOKENS.get(task, cap))


def require_known(gpu: str | None) -> None:
    """Refuse the name of an unknown GPU."""
    if gpu is not None and gpu not in BANDWIDTH:
        raise InvalidInputError(
            f"the speed of {gpu!r} is not known", field="gpu", remedy=one_of(gpu, BANDWIDTH)
        )


def gpu_here() -> str | None:
    """Return the known GPU of this machine that is most like its own; None without a GPU."""
    try:
        text = "".join(each.read_text() for each in _DRIVER.glob("*/information"))
    except OSError:
        return None
    if not text:
        return None
    return next((name for name in BANDWIDTH if name in text), "H100")


_SPLIT = "split:"


@dataclass(frozen=True, slots=True)
class Plan:
    """Work of one experiment; no evaluations if only the hub knows the number of some rows."""

    candidates: int
    selection_rows: int | None
    heldout_rows: int | None
    search: int | None = None
    """Evaluations of the candidates, or of training."""
    development: int | None = None
    """Evaluations of checkpoints on development rows."""
    monitoring: int | None = None
    """Evaluations of states that are only monitored, outside the budget."""
    final_at_most: int | None = None
    """Evaluations of the experts: fewer if ensembles share them."""
    base: int | None = None
    """Evaluations of the unperturbed model, outside the budget."""


def plan_cells(cells: Sequence[Cell]) -> dict[str, Plan]:
    """Count the work of cells (`modnorm.search.budgets`), by cell."""
    counted = cache(count_rows)
    plans = {}
    for cell in cells:
        with naming_cell(cell.labels):
            rows = {field: counted(data, field) for field, data in rows_of(cell.spec).items()}
        plans[cell.id] = _plan(cell.spec, rows)
    return plans


def _plan(spec: ExperimentSpec, rows: Mapping[str, int | None]) -> Plan:
    """Return the work of a spec from the numbers of its rows by field.

    The answers to training rows count as search.
    """
    settings, iterative = spec.distillation, spec.iterative
    rounds = settings.rounds if settings else 1
    candidates = rounds * max(population for population, _ in ensembles_of(spec))
    plan = Plan(candidates, rows["task.selection"], rows["task.heldout"])
    known = {field: count for field, count in rows.items() if count is not None}
    if len(known) < len(rows):
        return plan
    selection, heldout = known["task.selection"], known["task.heldout"]
    budget = _budget(spec, selection, heldout, known.get("iterative.development", 0))
    answers = development = students = monitored = 0
    if settings is not None:
        answers = known["distillation.rows"] * _harvests(spec, settings)
        development = (rounds + 1) * known["distillation.development"]
        students = (rounds + 1) * heldout
    if iterative is not None:
        # The reported state answers the held-out rows in the budget.
        reported = {iterative.updates} if iterative.report == "last" else set()
        monitored = len(set(iterative.monitor) - reported)
    return replace(
        plan,
        search=rounds * (budget.search + answers),
        development=budget.development + development,
        monitoring=monitored * heldout,
        final_at_most=rounds * budget.final + students,
        base=rounds * (selection + heldout),
    )


def _harvests(spec: ExperimentSpec, settings: DistillationSpec) -> int:
    """Return the answers to a training row in a round."""
    harvest = settings.harvest
    experts = harvest.experts or max(spec.population.ensemble_sizes)
    return experts * harvest.samples + harvest.only_wrong


def _budget(spec: ExperimentSpec, selection: int, heldout: int, development: int) -> Budget:
    """Count the search once, and the largest ensemble of each prefix."""
    if spec.iterative is not None:
        return iterative_budget(
            heldout,
            updates=spec.iterative.updates,
            candidates=spec.population.size,
            selection_rows=selection,
            development_interval=spec.iterative.evaluate_every,
            development_rows=development,
        )
    population, prefixes = spec.population, spec.population.reported_prefixes
    experts = min(len(prefixes) * max(population.ensemble_sizes), population.size)
    return ensemble_budget(prefixes[-1], experts, heldout, selection_rows=selection)


def count_rows(data: DataSpec, field: str) -> int | None:
    """Return the number of rows that a spec uses; None if only the hub knows it."""
    if data.limit is not None:
        return data.limit
    if data.source.startswith(_SPLIT):
        name = data.source.removeprefix(_SPLIT)
        dataset, split = find_split(name, field=f"{field}.source")
        return max(0, dataset.splits[split].rows - data.offset)
    if is_dataset(data.source):
        return None
    try:
        rows = open_source(data, field=field, roots=None).rows
        return max(0, sum(1 for _ in rows) - data.offset)
    except ModnormError:
        return None
