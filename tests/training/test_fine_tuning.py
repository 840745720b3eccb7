"""Training by the real TRL and PEFT on a small model: students and resumption."""

from functools import cache

import pytest
import torch
from peft import PeftModel

from modnorm.checkpoint.pretrained import load_pretrained
from modnorm.checkpoint.prompts import PromptEncoder
from modnorm.checkpoint.reference import resolve_checkpoint
from modnorm.checkpoint.weights import CheckpointWeights, weights_sha256
from modnorm.errors import CandidateError, UnavailableError
from modnorm.spec import TrainingSpec
from modnorm.training import TrainingJob
from modnorm.training.fine_tuning import train, write_student
from modnorm.training.job import ADAPTER, STATE, STUDENT
from modnorm.training.trainer_setup import IGNORED, encode_examples, read_examples
from tests.faults import error_at
from tests.training.conftest import SHORT, write_dataset

FULL = TrainingSpec(method="full", batch_size=4, epochs=2, checkpoint_steps=2, learning_rate=1e-4)


def train_until(job, step):
    """Train and stop with an error once a step is reported."""

    def stop(now, _steps):
        if now == step:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(job, stop)


def weights_of(job):
    return (job.directory / STUDENT / "model.safetensors").read_bytes()


@pytest.fixture(scope="module")
def finished(model, dataset, tmp_path_factory):
    """Finished trainings by method: the job, its outcome and its progress."""

    @cache
    def finish(method):
        job = TrainingJob(
            model=model,
            dataset=dataset,
            training=FULL if method == "full" else SHORT,
            seed=3,
            directory=tmp_path_factory.mktemp(method),
            device="cpu",
        )
        reports: list[tuple[int, int]] = []
        return job, train(job, lambda *progress: reports.append(progress)), reports

    return finish


@pytest.mark.parametrize("method", ["lora", "full"])
def test_a_student_is_a_checkpoint_like_its_base(model, finished, method):
    job, student, reports = finished(method)
    base = resolve_checkpoint(model)
    written = resolve_checkpoint(str(job.directory / STUDENT))
    stored = CheckpointWeights(written)
    assert stored.dtype == torch.bfloat16
    assert student.digest == written.digest != base.digest == student.base_digest
    assert student.weights_sha256 == weights_sha256(stored.layout, stored.read)
    messages = read_examples(job.dataset)[0][0]
    assert PromptEncoder(written).encode(messages) == PromptEncoder(base).encode(messages)
    assert reports == [(step, 6) for step in range(1, 7)]
    assert student.losses[-1].loss < student.losses[0].loss
    assert (student.steps, student.examples, student.left_out) == (6, 12, 0)
    assert student.tokens > 0
    assert student.flops > 0
    assert (job.directory / STUDENT / ADAPTER).is_dir() == (method == "lora")
    assert not (job.directory / STATE).exists()


@pytest.mark.parametrize(("method", "step", "resumed"), [("lora", 3, 3), ("full", 6, 5)])
def test_an_interrupted_training_ends_in_the_same_bytes(finished, make_job, method, step, resumed):
    whole, expected, _ = finished(method)
    interrupted = make_job("interrupted", whole.training)
    train_until(interrupted, step)
    steps: list[int] = []
    outcome = train(interrupted, lambda step, _: steps.append(step))
    assert steps[0] == resumed  # the step after the last checkpoint
    assert weights_of(interrupted) == weights_of(whole)
    assert outcome.model_copy(update={"seconds": 0}) == expected.model_copy(update={"seconds": 0})


def test_a_checkpoint_that_cannot_be_written_names_its_folder(make_job):
    job = make_job()
    train_until(job, 1)
    blocked = job.directory / STATE / "checkpoint-2" / "optimizer.pt"
    blocked.mkdir(parents=True)
    with pytest.raises(UnavailableError, match=f"cannot write {job.directory / STATE}") as refused:
        train(job)
    assert "free disk space" in str(refused.value)


def test_another_job_in_the_same_directory_starts_anew(finished, make_job):
    train_until(make_job(), 3)
    other = train(make_job(seed=4))
    assert other.weights_sha256 != finished("lora")[1].weights_sha256
    assert other.digest == resolve_checkpoint(str(make_job().directory / STUDENT)).digest


def test_the_adapter_and_the_merged_weights_are_one_model(model, finished):
    job, _, _ = finished("lora")
    student = resolve_checkpoint(str(job.directory / STUDENT))
    base = load_pretrained(resolve_checkpoint(model), dtype=torch.float32, attention="sdpa")
    adapted = PeftModel.from_pretrained(base, str(job.directory / STUDENT / ADAPTER))
    merged = load_pretrained(student, dtype=torch.float32, attention="sdpa")
    ids = torch.tensor([PromptEncoder(student).encode(read_examples(job.dataset)[0][0])])
    with torch.inference_mode():
        difference = adapted(ids).logits - merged(ids).logits
    assert difference.abs().max() < 0.1  # the merged weights are rounded to bfloat16


def test_a_tied_head_stays_tied_in_full_training(finished):
    job, _, _ = finished("full")
    student = resolve_checkpoint(str(job.directory / STUDENT))
    names = {part.name for tensor in CheckpointWeights(student).layout for part in tensor.parts}
    assert "lm_head.weight" not in names
    model = load_pretrained(student, dtype=torch.float32, attention="sdpa")
    assert model.get_input_embeddings().weight is model.get_output_embeddings().weight


def test_the_loss_is_the_mean_over_the_tokens_of_all_answers(model, make_job, dataset):
    """Neither prompts nor padding count, and a long answer counts more than a short one."""
    base = resolve_checkpoint(model)
    encoded = encode_examples(read_examples(dataset), PromptEncoder(base), base.max_position)
    loaded = load_pretrained(base, dtype=torch.float32, attention="sdpa")
    losses: list[float] = []
    for ids, labels in zip(encoded.input_ids, encoded.labels, strict=True):
        logits = loaded(input_ids=torch.tensor([ids])).logits[0, :-1]
        wanted = torch.tensor(labels[1:])
        losses += torch.nn.functional.cross_entropy(logits, wanted, reduction="none").tolist()
    counted = sum(label != IGNORED for labels in encoded.labels for label in labels)
    whole = FULL.model_copy(update={"batch_size": 12, "epochs": 1.0})
    (first,) = train(make_job(training=whole)).losses
    assert first.loss == pytest.approx(sum(losses) / counted, rel=1e-4)


def test_micro_batches_change_only_the_rounding(finished, make_job, monkeypatch):
    _, whole, _ = finished("lora")
    monkeypatch.setattr("modnorm.training.trainer_setup.CPU_BYTES", 1)
    parts = train(make_job("parts"))
    assert (whole.micro_batch, parts.micro_batch) == (4, 1)
    expected = [each.loss for each in whole.losses]
    assert [each.loss for each in parts.losses] == pytest.approx(expected, rel=1e-2)
    assert parts.tokens == whole.tokens


def test_a_diverging_training_fails_with_a_remedy(make_job):
    extreme = FULL.model_copy(update={"learning_rate": 1e36, "warmup": 0.0})
    with error_at("training.learning_rate", "diverged", kind=CandidateError):
        train(make_job(training=extreme))


def test_examples_beyond_the_longest_sequence_are_left_out(model, make_job, tmp_path):
    lengths = sorted(
        len(PromptEncoder(resolve_checkpoint(model)).encode(prompt))
        for prompt, _ in read_examples(write_dataset(tmp_path / "examples.jsonl"))
    )
    short = SHORT.model_copy(update={"max_length": lengths[-1] + 18})
    outcome = train(make_job(training=short))
    assert outcome.left_out > 0
    assert outcome.examples + outcome.left_out == 12
    with error_at("training.max_length"):
        train(make_job("none", training=SHORT.model_copy(update={"max_length": 4})))


def test_a_place_that_cannot_be_written_names_the_setting(tmp_path):
    base = resolve_checkpoint("tiny-thicket")
    state = load_pretrained(base, dtype=torch.bfloat16, attention="sdpa").state_dict()
    (tmp_path / "taken").write_text("a file")
    with error_at("out", "cannot write", kind=UnavailableError) as refused:
        write_student(base, state, tmp_path / "taken" / "student", {})
    assert "--out" in (refused.value.remedy or "")
