"""`modnorm calibrate`, `prepare`, `scales` and `cast`: a model, measured or written anew."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

from modnorm.cli.console import STARTS_AGAIN, echo_table, emit, emit_json, interruptible, stderr
from modnorm.cli.options import Model, Revision, check_output_file, opt, settings
from modnorm.errors import InvalidInputError
from modnorm.files import write_file
from modnorm.spec_limits import MAX_RANK, MAX_TWO_SIDED_SEED


def calibrate(
    *,
    model: Model,
    task: Annotated[str, opt("--task NAME", "Task whose prompts are used.")],
    data: Annotated[str, opt("--data SOURCE", "Rows of the task.")],
    out: Annotated[Path, opt("--out FILE", "Where the profile goes.")],
    revision: Revision = None,
    examples: Annotated[int, opt("--examples NUMBER", "Number of prompts.", min=1)] = 64,
    seed: Annotated[int, opt("--seed NUMBER", "Seed of the estimator.", min=0)] = 1729,
    maps: Annotated[
        str,
        opt("--maps NAME", "Functional maps: default, or published (they differ for Gemma 3)."),
    ] = "default",
) -> None:
    """Calibrate sensitivities and write the profile.

    An interrupted calibration leaves nothing. Fewer `--examples` finish earlier.
    """
    from modnorm.spec import CalibrationSpec, DataSpec, parse_section

    how = parse_section(
        CalibrationSpec, {"examples": examples, "seed": seed, "maps": maps}, field="calibration"
    )
    source = parse_section(DataSpec, {"source": data}, field="data")
    check_output_file(out, Path(data))
    with interruptible(STARTS_AGAIN):
        from modnorm.cli.progress import Screen, loading

        with loading("torch"):
            from modnorm.calibration import calibrate as calibration
            from modnorm.checkpoint.prompts import PromptEncoder
            from modnorm.checkpoint.reference import resolve_checkpoint
            from modnorm.tasks import get_task
            from modnorm.tasks.row_loading import load_data
            from modnorm.tasks.task_errors import render_prompts

        found = get_task(task)
        checkpoint = resolve_checkpoint(model, revision)
        rows = load_data(found, source, field="data", folders=settings().split_folders).rows
        encoder = PromptEncoder(checkpoint)
        asked = render_prompts(found, rows[:examples], "row")
        prompts = [encoder.encode(messages) for messages in asked]
        with Screen(stderr()) as screen:
            show = partial(screen.show, f"{model}: calibrating")
            show(0, len(prompts))
            profile = calibration.calibrate(
                checkpoint, prompts, how, task=found.name, on_progress=show
            )
    write_file(out, profile.to_json().encode())
    document = {"digest": profile.digest, "file": str(out), "model_digest": profile.model_digest}
    emit(document, f"{profile.fingerprint}  {out}")


def prepare(
    *,
    model: Model,
    data: Annotated[str, opt("--data SOURCE", "Countdown rows with a column solution.")],
    out: Annotated[Path, opt("--out FILE", "Where the generator goes.")],
    revision: Revision = None,
    limit: Annotated[int | None, opt("--limit NUMBER", "Number of rows.", min=1)] = None,
    epochs: Annotated[int, opt("--epochs NUMBER", "Passes over the examples.", min=1)] = 15,
    seed: Annotated[
        int,
        opt("--seed NUMBER", "Seed of weights, order and noise.", min=0, max=MAX_TWO_SIDED_SEED),
    ] = 38,
) -> None:
    """Prepare the generator of zo_finetuner on solved puzzles.

    It takes gradients, once per model. An interrupted preparation leaves nothing. Fewer `--epochs`
    finish earlier.
    """
    from modnorm.spec import DataSpec, parse_section

    rows = parse_section(DataSpec, {"source": data, "limit": limit}, field="data")
    check_output_file(out, Path(data))
    with interruptible(STARTS_AGAIN):
        from modnorm.cli.progress import Screen, loading

        with loading("torch"):
            from modnorm.baselines.preparation import PreparationSettings
            from modnorm.client.preparing import prepare_generator
        with Screen(stderr()) as screen:
            generator = prepare_generator(
                model,
                revision,
                rows,
                replace(PreparationSettings(), epochs=epochs, seed=seed),
                on_batch=partial(screen.show, f"{model}: preparing"),
                folders=settings().split_folders,
            )
    write_file(out, generator.canonical.encode())
    document = {"digest": generator.digest, "file": str(out)}
    emit(document, f"{generator.digest[:16]}  {out}")


def scales(
    *,
    radius: Annotated[float, opt("--radius NUMBER", "R, or sigma for randopt.")],
    model: Model,
    revision: Revision = None,
    profile: Annotated[Path | None, opt("--profile FILE", "Profile of the model.")] = None,
    method: Annotated[str, opt("--method NAME", "Name of the method.")] = "modular_norm",
    rank: Annotated[
        int | None,
        opt("--rank RANK", "Rank of the noise [default: full rank].", min=1, max=MAX_RANK),
    ] = None,
    target_modules: Annotated[
        Literal["all", "all-linear"],
        opt("--target-modules all|all-linear", "The matrices that noise of a rank perturbs."),
    ] = "all",
) -> None:
    """Print masses and scales of every physical tensor.

    A method may need the model's profile. With --rank, tensors without low-rank noise have no
    scale.
    """
    if not 0 < radius < float("inf"):
        raise InvalidInputError("must be greater than 0 and finite", field="radius")
    if rank is None and target_modules != "all":
        raise InvalidInputError("needs low-rank noise; give --rank", field="target-modules")
    from modnorm.calibration.profile import Profile
    from modnorm.checkpoint.reference import resolve_checkpoint
    from modnorm.geometry.scales import scale_table
    from modnorm.perturbation.methods import build_scale_map

    checkpoint = resolve_checkpoint(model, revision)
    found = Profile.load(profile) if profile else None
    if found is not None:
        found.check_matches(checkpoint)
    scale_map = build_scale_map(
        method,
        checkpoint,
        sensitivities=found.sensitivities if found else None,
        rank=rank,
        target_modules=target_modules,
    )
    rows = scale_table(scale_map, radius)
    if emit_json(rows):
        return
    headings = ("tensor", "group", "role", "mass", "base", "correction", "scale", "R/s")
    names = ("mass", "base_scale", "correction", "scale", "radius_over_scale")
    lines = []
    for tensor, row in rows.items():
        figures = (row[name] for name in names)
        texts = (f"{each:.6g}" if isinstance(each, float) else "-" for each in figures)
        lines.append((tensor, str(row["group"]), str(row["role"]), *texts))
    echo_table(headings, lines)


@interruptible(STARTS_AGAIN)
def cast(
    *,
    model: Model,
    dtype: Annotated[
        Literal["bfloat16", "float16", "float32"],
        opt("--dtype bfloat16|float16|float32", "Dtype of the weights."),
    ],
    out: Annotated[Path, opt("--out DIR", "Where the checkpoint goes.")],
    revision: Revision = None,
) -> None:
    """Write a model with its weights in another dtype.

    Perturbations and updates are rounded to this dtype. The paper runs MeZO and the ZO-Finetuner
    in float16.
    """
    import torch

    from modnorm.checkpoint.reference import resolve_checkpoint
    from modnorm.checkpoint.writing import cast_checkpoint

    checkpoint = resolve_checkpoint(model, revision)
    digest = cast_checkpoint(checkpoint, getattr(torch, dtype), out)
    document = {"directory": str(out), "dtype": dtype, "weights_sha256": digest}
    emit(document, f"{dtype}  {digest[:16]}  {out}")
