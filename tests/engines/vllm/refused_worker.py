"""A worker that does not start: vLLM fails when it looks at what the class has."""

from modnorm.engines.vllm.worker_extension import CandidateWorker


class _Refused:
    def __get__(self, instance: object, owner: type) -> None:
        raise ValueError("no room beside others")


class RefusedWorker(CandidateWorker):
    """Otherwise the project's."""

    modnorm_refused = _Refused()
