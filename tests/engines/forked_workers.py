"""Worker processes of vLLM, forked from a server that has imported their modules."""

import os
from multiprocessing.context import ForkServerContext, ForkServerProcess
from typing import Any

MODULES = [
    "vllm.model_executor.models.llama",
    "vllm.model_executor.models.qwen2",
    "vllm.v1.engine.core",
    "vllm.v1.executor.multiproc_executor",
    "vllm.v1.worker.cpu_worker",
    "modnorm.checkpoint.weights",
    "modnorm.engines.vllm.internals.drafting",
    "modnorm.engines.vllm.internals.layers",
    "modnorm.perturbation.candidate_weights",
]


class ForkedWorker(ForkServerProcess):
    """A process with the environment that its parent has when it makes it."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._environment = dict(os.environ)

    def run(self) -> None:
        os.environ.clear()
        os.environ.update(self._environment)
        super().run()


class ForkedWorkers(ForkServerContext):
    """Stands in for the context with which vLLM spawns its workers."""

    Process = ForkedWorker

    def __init__(self) -> None:
        super().__init__()
        self.set_forkserver_preload(MODULES)
