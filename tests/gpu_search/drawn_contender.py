"""A contender without a model: it takes no time and knows what was drawn."""

from multiprocessing.connection import Connection

from benchmarks.gpu_search.candidate_outcome import CandidateOutcome
from benchmarks.gpu_search.driver_messages import ContenderSettings, EvaluateCandidate, Free
from benchmarks.gpu_search.workload import drawn_scores


def serve(connection: Connection, settings: ContenderSettings) -> None:
    """Stop candidates whose whole score does not pass the threshold that they began with."""
    scores = drawn_scores(settings.workload, settings.population)
    while (message := connection.recv()) is not None:
        if message == "fail":
            raise RuntimeError("as told")
        if isinstance(message, EvaluateCandidate):
            score, threshold = scores[message.candidate], message.threshold
            out = threshold is not None and threshold.excludes(score, message.candidate)
            found = None if out else score
            connection.send(
                CandidateOutcome(
                    message.candidate, found, 0.0, 1.0, 0.1, 0.8, 0.1, {4: (9, 1.0, 0.5)}
                )
            )
            connection.send(Free())
