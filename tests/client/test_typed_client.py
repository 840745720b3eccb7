"""The client with typed results, against a service that the test plays."""

import pytest

from modnorm import Client
from modnorm.client import Event, Experiment, ExperimentState, ExperimentSummary
from modnorm.errors import PreconditionError
from modnorm.v1 import experiment_pb2 as messages
from modnorm.wire.conversions import spec_to_proto


def test_every_state_of_the_wire_is_a_state_of_the_client():
    names = {
        name.removeprefix("EXPERIMENT_STATE_") for name in dict(messages.ExperimentState.items())
    }
    assert names == {state.name for state in ExperimentState}
    assert [state.name for state in ExperimentState if state.is_final] == [
        "SUCCEEDED",
        "FAILED",
        "CANCELLED",
    ]


def test_experiments_are_listed_page_by_page_as_summaries(serve, servicer, spec):
    tokens: list[str] = []

    def answer(request, context):
        tokens.append(request.page_token)
        found = messages.Experiment(id=f"e{len(tokens)}", spec=spec_to_proto(spec))
        following = "" if request.page_token else "next"
        return messages.ListExperimentsResponse(experiments=[found], next_page_token=following)

    with Client(serve(servicer(ListExperiments=answer))) as client:
        listing = client.list()
        assert tokens == []
        assert [(one.id, one.task, type(one)) for one in listing] == [
            ("e1", spec.task.name, ExperimentSummary),
            ("e2", spec.task.name, ExperimentSummary),
        ]
        assert tokens == ["", "next"]
        assert list(listing.to_pandas()["id"]) == ["e3", "e4"]
        assert "e5" in listing._repr_html_()


def test_an_experiment_and_its_events_are_frozen_values(serve, servicer, spec):
    message = messages.Experiment(
        id="e1",
        spec=spec_to_proto(spec),
        state=messages.EXPERIMENT_STATE_FAILED,
        error="no disk",
        remedy="add one",
        ensembles=[messages.EnsembleResult(population=4, ensemble_size=2, experts=[3, 1])],
    )

    def watch(request, context):
        yield messages.WatchExperimentResponse(cursor=7, state=message.state, message="the end")

    service = servicer(
        GetExperiment=lambda request, context: messages.GetExperimentResponse(experiment=message),
        WatchExperiment=watch,
    )
    with Client(serve(service)) as client:
        experiment = client.get("e1")
        (event,) = client.watch("e1")
        with pytest.raises(PreconditionError, match="failed: no disk"):
            client.run("e1")
    assert isinstance(experiment, Experiment)
    assert (experiment.state, experiment.error) == (ExperimentState.FAILED, "no disk (add one)")
    assert experiment.spec == spec
    assert experiment.base is None
    assert experiment.ended is None
    assert experiment.ensembles[0].experts == (3, 1)
    assert isinstance(event, Event)
    assert (event.cursor, event.state.is_final, event.progress.best_reward) == (7, True, None)
    with pytest.raises(AttributeError):
        setattr(experiment, "state", ExperimentState.SUCCEEDED)  # noqa: B010 - mypy refuses it
