"""A worker class that vLLM cannot start."""

from modnorm.engines.vllm.rank_model import CandidateWorker


class _Refused:
    def __get__(self, instance: object, owner: type) -> None:
        raise ValueError("no room beside others")


class RefusedWorker(CandidateWorker):
    """The project's worker, with an attribute that fails."""

    modnorm_refused = _Refused()
