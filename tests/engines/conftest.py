"""Checkpoints: the bundled one, its float32 version, and a random Llama with its own head."""

import gc
import json
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM, PreTrainedModel

from modnorm.checkpoint.prompts import PromptEncoder
from modnorm.checkpoint.reference import Checkpoint, resolve_checkpoint
from modnorm.engines import Drafts, Engine, EngineSettings, GenerationLimits, load_engine
from modnorm.engines.transformers_engine import TransformersEngine
from modnorm.engines.vllm import worker_context
from modnorm.geometry.scale_map import ScaleMap
from modnorm.perturbation.descriptor import Descriptor
from modnorm.perturbation.exports import write_adapter
from modnorm.perturbation.methods import build_scale_map
from modnorm.tasks.protocol import Message
from tests.engines.exported_adapters import ANSWER_TOKENS, Adapter

VLLM = {
    # The scheduler in this process, one thread, no network.
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_LOGGING_LEVEL": "WARNING",
    "HF_HUB_OFFLINE": "1",
}
DRAFTING = "vllm with drafts"
ENGINES = ["transformers"]
if find_spec("vllm"):
    os.environ.update(VLLM)
    ENGINES = ["vllm", DRAFTING]
    if not torch.cuda.is_available():
        ENGINES.append("vllm as on a GPU")

WORKER_MODULES = (
    "vllm.model_executor.models.qwen2",
    "vllm.v1.engine.core",
    "vllm.v1.worker.cpu_worker",
    "modnorm.engines.vllm.internals.layers",
    "modnorm.perturbation.candidate_weights",
)

ONE_CHECKPOINT = {DRAFTING: "bundled", "vllm as on a GPU": "llama"}
"""Engines that differ from another in what does not depend on the layout: each takes one."""

QUESTIONS = (
    "Hi.",
    "Using the numbers [3, 5, 7], create an equation that equals 15.",
    "Tom has 3 apples and buys 4 more. How many apples does he have now?",
    "What is 2 + 2? Please reason step by step, and put your final answer within \\boxed{}.",
    "Using the numbers [19, 36, 55, 7], create an equation that equals 65. " + "Think well. " * 9,
    "A",
    "Count from one to ten, then back.",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave out engines with a checkpoint that is not theirs: a start takes many seconds."""
    items[:] = [item for item in items if _is_paired(getattr(item, "callspec", None))]


def _is_paired(called: Any) -> bool:
    chosen = called.params if called else {}
    engine, checkpoint = chosen.get("engine"), chosen.get("checkpoint")
    return not isinstance(engine, str) or checkpoint in (
        None,
        ONE_CHECKPOINT.get(engine, checkpoint),
    )


@pytest.fixture(scope="session", autouse=True)
def vllm_starts_faster() -> Iterator[None]:
    """Leave out work of vLLM's start that a process of tests does not need."""
    with pytest.MonkeyPatch.context() as patch:
        if find_spec("vllm") and not torch.cuda.is_available():
            # vLLM inspects the class of each architecture in a process, lest CUDA be initialised.
            registry = "vllm.model_executor.models.registry"
            patch.setattr(f"{registry}._run_in_subprocess", lambda inspect: inspect())
            # The end of an engine would unfreeze what tests.garbage froze: a million objects, in
            # each of the ten collections of the next start and end.
            patch.setattr(gc, "freeze", lambda: None)
            patch.setattr(gc, "unfreeze", lambda: None)
        yield


@pytest.fixture(scope="session")
def bundled() -> Checkpoint:
    return resolve_checkpoint("tiny-thicket")


@pytest.fixture
def bundled_engine(bundled: Checkpoint) -> Iterator[TransformersEngine]:
    engine = TransformersEngine(bundled)
    yield engine
    engine.close()


@pytest.fixture(scope="session")
def float32(bundled: Checkpoint, tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    """The bundled model in float32, where rounding does not decide an argmax."""
    directory = tmp_path_factory.mktemp("float32")
    model = AutoModelForCausalLM.from_pretrained(bundled.directory, dtype=torch.float32)
    return _save(model, bundled, directory)


@pytest.fixture(scope="session")
def make_checkpoint(
    bundled: Checkpoint, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[PreTrainedModel], Checkpoint]:
    """Save a model with the bundled tokenizer."""
    return lambda model: _save(model, bundled, tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="session")
def make_llama(
    make_checkpoint: Callable[[PreTrainedModel], Checkpoint],
) -> Callable[..., Checkpoint]:
    """Make a random Llama in float32: no biases, an untied head, no grouped heads."""

    def make(**sizes: int) -> Checkpoint:
        torch.manual_seed(3)
        chosen = {"vocab_size": 1024, "hidden_size": 64, "num_hidden_layers": 2, **sizes}
        config = LlamaConfig.from_dict(
            {
                **chosen,
                "intermediate_size": 96,
                "num_attention_heads": 2,
                "num_key_value_heads": 2,
                "max_position_embeddings": 512,
                "tie_word_embeddings": False,
                "eos_token_id": 2,
            }
        )
        return make_checkpoint(LlamaForCausalLM(config))

    return make


@pytest.fixture(scope="session")
def llama(make_llama: Callable[..., Checkpoint]) -> Checkpoint:
    return make_llama()


@pytest.fixture(scope="session", params=["bundled", "llama"])
def checkpoint(request: pytest.FixtureRequest) -> Checkpoint:
    found: Checkpoint = request.getfixturevalue(request.param)
    return found


@contextmanager
def _forked() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(worker_context, "MODULES", WORKER_MODULES)
        worker_context.preload_workers()
        for module in ("vllm.v1.engine.utils", "vllm.v1.executor.multiproc_executor"):
            patch.setattr(f"{module}.get_mp_context", worker_context.WorkerContext)
        yield


@pytest.fixture(scope="session")
def forked_processes() -> Callable[[], AbstractContextManager[None]]:
    """Fork the processes of vLLM's CPU build, each of which would import it for ten seconds."""
    return nullcontext if torch.cuda.is_available() else _forked


@contextmanager
def _as_on_gpu() -> Iterator[None]:
    from modnorm.engines.vllm import start  # noqa: PLC0415 - loads vLLM

    usual, require = start.engine_arguments, start._require_settings

    def arguments(*given: Any) -> dict[str, object]:
        return {**usual(*given), "distributed_executor_backend": "mp"}

    def ahead(config: Any) -> None:
        require(config)
        # Set after vLLM has refused it on a CPU; the rest then runs as on a GPU.
        config.scheduler_config.async_scheduling = True

    with _forked(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(start, "engine_arguments", arguments)
        patch.setattr(start, "_require_settings", ahead)
        yield


@pytest.fixture(scope="session")
def as_on_gpu() -> Callable[[], AbstractContextManager[None]]:
    """Start vLLM's CPU build as on a GPU: a worker process and several steps in flight."""
    return nullcontext if torch.cuda.is_available() else _as_on_gpu


@pytest.fixture(scope="session", params=ENGINES)
def engine(
    request: pytest.FixtureRequest,
    checkpoint: Checkpoint,
    as_on_gpu: Callable[[], AbstractContextManager[None]],
) -> Iterator[Engine]:
    """The engine under test: vLLM's in the environment that has vLLM."""
    name, _, how = request.param.partition(" ")
    drafts = Drafts.POPULATION if request.param == DRAFTING else Drafts.NONE
    with as_on_gpu() if how == "as on a GPU" else nullcontext():
        engine = load_engine(name, checkpoint, EngineSettings(drafts=drafts))
    yield engine
    engine.close()


@pytest.fixture(scope="session")
def prompts(bundled: Checkpoint) -> Sequence[Sequence[int]]:
    """Prompts of very different lengths; all models here share one tokenizer."""
    encoder = PromptEncoder(bundled)
    return [encoder.encode((Message("user", question),)) for question in QUESTIONS]


@pytest.fixture(scope="session")
def make_scale_map(checkpoint: Checkpoint) -> Callable[[str], ScaleMap]:
    """Build the scale map of a method without a profile."""
    return lambda method: build_scale_map(method, checkpoint)


@pytest.fixture(scope="session")
def scale_map(make_scale_map: Callable[[str], ScaleMap]) -> ScaleMap:
    return make_scale_map("randopt")


@pytest.fixture(scope="session")
def draw() -> Callable[..., Descriptor]:
    def draw(scale_map: ScaleMap, seed: int, radius: float = 0.02) -> Descriptor:
        return Descriptor("portable-v1", seed, scale_map.method, radius, scale_map.digest)

    return draw


@pytest.fixture(scope="session")
def low_rank_map(float32: Checkpoint) -> ScaleMap:
    """Isotropic noise of rank 16 on all linear layers."""
    return build_scale_map("randopt", float32, rank=16, target_modules="all-linear")


@pytest.fixture(scope="session")
def adapters(
    float32: Checkpoint,
    low_rank_map: ScaleMap,
    prompts: Sequence[Sequence[int]],
    draw: Callable[..., Descriptor],
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[Adapter, ...]:
    """Two candidates as adapters of the bundled model in float32."""
    engine, made = TransformersEngine(float32), []
    for seed in (1, 2):
        with (
            engine.candidate(draw(low_rank_map, seed, 0.01), low_rank_map) as resolved,
            closing(engine.generate(prompts, GenerationLimits(ANSWER_TOKENS))) as completions,
        ):
            answers = sorted(completions, key=lambda each: each.index)
        directory = tmp_path_factory.mktemp("adapter") / f"expert-{seed}"
        write_adapter(float32, resolved, low_rank_map, directory)
        made.append(Adapter(directory, tuple(each.text for each in answers)))
    engine.close()
    return tuple(made)


def _save(model: PreTrainedModel, tokenizer: Checkpoint, directory: Path) -> Checkpoint:
    model.save_pretrained(directory)
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        shutil.copy(tokenizer.directory / name, directory / name)
    settings = json.loads((directory / "config.json").read_text())
    assert settings["dtype"] == "float32"
    return resolve_checkpoint(str(directory))
