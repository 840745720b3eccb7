"""A candidate of a finished experiment by its rank, with all that its weights are made from."""

from dataclasses import dataclass

from modnorm.client.client import ModnormClient
from modnorm.client.convert import descriptor_from_proto
from modnorm.errors import InvalidInputError, PreconditionError
from modnorm.geometry.scale_map import ScaleMap
from modnorm.perturbation.descriptor import Descriptor
from modnorm.search.stopping import Interval, certain_ranks
from modnorm.v1 import experiment_pb2 as experiments


@dataclass(frozen=True, slots=True)
class Ranked:
    """One candidate."""

    index: int
    selection_reward: float
    descriptor: Descriptor
    """With the coefficients that whoever evaluated it first resolved."""
    scale_map: ScaleMap


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
        InvalidInputError: no candidate has that rank for certain.
    """
    if experiment.state != experiments.EXPERIMENT_STATE_SUCCEEDED:
        raise PreconditionError(
            "the run is not finished", field="run", remedy="`modnorm run` goes on with it"
        )
    found = [one for one in client.candidates(experiment.id) if one.index >= 0]
    ranks = _ranks(found)
    index = next((index for index, place in ranks.items() if place == rank), None)
    if index is None:
        raise InvalidInputError(
            f"no candidate has rank {rank} for certain",
            field="rank",
            remedy="candidates.csv has the ranks; one that depends on candidates that were "
            "stopped early is known with population.statistics: full",
        )
    chosen = next(one for one in found if one.index == index)
    text = client.artifact(experiment.id, experiments.ARTIFACT_KIND_SCALE_MAP).decode()
    return Ranked(
        index=index,
        selection_reward=chosen.selection_reward,
        descriptor=descriptor_from_proto(chosen.descriptor),
        scale_map=ScaleMap.from_json(text),
    )


def _ranks(candidates: list[experiments.Candidate]) -> dict[int, int]:
    scored, stopped = experiments.CANDIDATE_STATE_SCORED, experiments.CANDIDATE_STATE_STOPPED
    return certain_ranks(
        [one.selection_reward if one.state == scored else None for one in candidates],
        {
            one.index: Interval(one.reward_lower, one.reward_upper)
            for one in candidates
            if one.state == stopped
        },
    )
