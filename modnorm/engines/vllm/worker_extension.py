"""The extension of vLLM's workers; `worker_extension_cls` names its class.

`collective_rpc` calls its methods by name on every rank. The names begin with `modnorm_`, because
the class shares a namespace with vLLM's worker.
"""

from pathlib import Path
from typing import TYPE_CHECKING

from modnorm.engines.vllm.internals.drafting import connect_drafts, install_speculator
from modnorm.engines.vllm.internals.linear_weights import keep_plain_weights
from modnorm.engines.vllm.internals.message_queues import fix_queues
from modnorm.engines.vllm.internals.register import check_stage
from modnorm.engines.vllm.internals.register_entry import Stage
from modnorm.engines.vllm.internals.worker_errors import write_worker_errors
from modnorm.engines.vllm.rank_model import RankModel
from modnorm.engines.vllm.serialization import Answer, Value, answer

if TYPE_CHECKING:
    import torch
    from vllm.config import ModelConfig
    from vllm.v1.worker.gpu_model_runner import GPUModelRunner


# vLLM imports this module before it loads a model. It has no later hook.
write_worker_errors()
keep_plain_weights()
fix_queues()
install_speculator()


class CandidateWorker:
    """Candidate weights on one rank; mixed into vLLM's worker class."""

    if TYPE_CHECKING:
        model_config: ModelConfig
        model_runner: GPUModelRunner
        modnorm_rank: RankModel

        def get_model(self) -> torch.nn.Module:
            """Return vLLM's model."""

    def modnorm_hold(self, model_digest: str) -> Answer:
        """Check the layout and copy the pristine weights; call it once, before any other."""

        def hold() -> Value:
            check_stage(Stage.WORKER, self)
            directory = Path(self.model_config.model)
            caches = self.model_runner.kv_caches
            self.modnorm_rank = RankModel(
                directory, model_digest, self.get_model(), caches, connect_drafts(self)
            )
            return {"kernels": int(self.modnorm_rank.weights.has_kernels)}

        return answer(hold)

    def modnorm_call(self, method: str, *arguments: Value) -> Answer:
        """Call a method of `RankModel`; arguments and answer are plain values."""
        return answer(lambda: getattr(self.modnorm_rank, method)(*arguments))
