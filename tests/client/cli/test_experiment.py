from unittest.mock import Mock

import pytest

from modnorm.client.cli.experiment import follow_to_end
from modnorm.client.client import ModnormClient
from modnorm.v1 import experiment_pb2 as experiments

STATE = experiments.EXPERIMENT_STATE_SUCCEEDED


@pytest.mark.parametrize(
    ("name", "title", "shown"),
    [("named", "file", "named"), ("", "file", "file"), ("", None, "an-id")],
)
def test_progress_names_an_experiment_by_its_name_or_its_file(capsys, name, title, shown):
    ended = experiments.Experiment(id="an-id", state=STATE)
    ended.spec.name = name
    client = Mock(spec=ModnormClient)
    client.watch.return_value = [experiments.WatchExperimentResponse(state=STATE)]
    client.get.return_value = ended
    assert follow_to_end(client, ended, quiet=False, title=title) is ended
    assert capsys.readouterr().err.startswith(f"{shown}: succeeded")
