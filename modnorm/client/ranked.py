"""A candidate of a finished experiment by its rank, with all that its weights are made from."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from modnorm.client.client import ModnormClient
from modnorm.client.finished import check_succeeded
from modnorm.errors import InvalidInputError
from modnorm.geometry.scale_map import ScaleMap
from modnorm.perturbation.descriptor import Descriptor
from modnorm.search.stopping import Interval, certain_ranks
from modnorm.spec import ExperimentSpec
from modnorm.v1 import experiment_pb2 as experiments
from modnorm.wire.conversions import descriptor_from_proto, spec_from_proto

_FIELD = "rank"


@dataclass(frozen=True, slots=True)
class Ranked:
    """One candidate."""

    index: int
    selection_reward: float
    descriptor: Descriptor
    """With the coefficients that whoever evaluated it first resolved."""
    scale_map: ScaleMap


def check_has_ranks(spec: ExperimentSpec) -> None:
    """Make sure that candidates are what the experiment of a spec results in.

    Raises:
        InvalidInputError: it trains one model.
    """
    if spec.iterative is not None:
        raise InvalidInputError(
            f"{spec.method.name} trained one model, which has no rank",
            field=_FIELD,
            remedy="leave --rank out",
        )


def ranked_candidate(
    client: ModnormClient, experiment: experiments.Experiment, rank: int
) -> Ranked:
    """Return the candidate of a rank in the whole population, from 1, as `candidates.csv` has it.

    Args:
        client: Connection to the lab that ran the experiment.
        experiment: The experiment as `get` returns it.
        rank: The rank.

    Raises:
        PreconditionError: the experiment has not succeeded.
        InvalidInputError: it has no ranks, or no candidate has that one for certain.
    """
    check_has_ranks(spec_from_proto(experiment.spec))
    check_succeeded(experiment)
    found = [one for one in client.candidates(experiment.id) if one.index >= 0]
    ranks = _ranks(found)
    index = next((index for index, place in ranks.items() if place == rank), None)
    if index is None:
        raise _no_such_rank(rank, found, ranks.values())
    chosen = next(one for one in found if one.index == index)
    text = client.artifact(experiment.id, experiments.ARTIFACT_KIND_SCALE_MAP).decode()
    return Ranked(
        index=index,
        selection_reward=chosen.selection_reward,
        descriptor=descriptor_from_proto(chosen.descriptor),
        scale_map=ScaleMap.from_json(text),
    )


def _ranks(candidates: Sequence[experiments.Candidate]) -> dict[int, int]:
    scored = experiments.CANDIDATE_STATE_SCORED
    return certain_ranks(
        [one.selection_reward if one.state == scored else None for one in candidates],
        {
            one.index: Interval(one.reward_lower, one.reward_upper)
            for one in candidates
            if _is_stopped(one)
        },
    )


def _is_stopped(candidate: experiments.Candidate) -> bool:
    return candidate.state == experiments.CANDIDATE_STATE_STOPPED


def _no_such_rank(
    rank: int, candidates: Sequence[experiments.Candidate], known: Collection[int]
) -> InvalidInputError:
    """Return the error of a rank that nobody has, or that depends on unfinished scores."""
    stopped = sum(map(_is_stopped, candidates))
    scored = sum(one.state == experiments.CANDIDATE_STATE_SCORED for one in candidates)
    last = scored + stopped
    if rank > last:
        return InvalidInputError(
            f"there is no rank {rank}: {last} of {len(candidates)} candidates have a score",
            field=_FIELD,
            remedy=f"name a rank from 1 to {last}",
        )
    certain = next(place for place in range(last) if place + 1 not in known)
    return InvalidInputError(
        f"no candidate has rank {rank} for certain: {stopped} were stopped early, and their "
        "scores are intervals",
        field=_FIELD,
        remedy=f"ranks 1 to {certain} are certain; all are with population.statistics: full",
    )
