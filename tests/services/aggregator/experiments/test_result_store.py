import dataclasses
import json

import pytest

from modnorm.search.voting import Ballot, count_votes
from modnorm.services.aggregator.storage.states import ArtifactKind, Split
from tests.faults import error_at


def test_every_counted_vote_is_stored(world, monkeypatch):
    report_of = world.report_of

    def oddly(claim):
        report = report_of(claim)
        if claim.job.split is Split.SELECTION:
            return report
        votes = (None, "", "a\0b", "'é\n", '{"}', "\\", "%s", "NULL", "1")
        odd = [
            dataclasses.replace(answer, vote=vote, correct=answer.correct and vote is not None)
            for answer, vote in zip(report.answers, votes, strict=True)
        ]
        return dataclasses.replace(report, answers=odd)

    monkeypatch.setattr(world, "report_of", oddly)
    created = world.select(statistics="full")
    world.work(created)
    results = world.stores.results
    ensembles = world.stores.experiments.get(created).ensembles
    assert len(ensembles) == 2
    for one in ensembles:
        sheets = [
            results.answers(created, expert, Split.HELDOUT) for expert in json.loads(one.experts)
        ]
        counted = count_votes([Ballot.from_answers(sheet) for sheet in sheets])
        stored = results.votes(created, one.population, one.ensemble_size)
        assert [vote.row for vote in stored] == list(range(9))
        for vote, expected in zip(stored, counted, strict=True):
            wanted = dataclasses.asdict(expected)
            wanted["answer"] = wanted["answer"] and wanted["answer"].replace("\0", "\ufffd")
            assert {name: getattr(vote, name) for name in wanted} == wanted


def test_rows_and_scale_maps_are_stored_once_by_content(world):
    first, second = world.select("a"), world.select("b")
    one = world.stores.experiments.get(first).experiment
    other = world.stores.experiments.get(second).experiment
    assert one.selection_digest == other.selection_digest
    text = world.stores.results.artifact(one.selection_digest, ArtifactKind.ROWS)
    assert len(text.split("\n")) == 6
    assert world.stores.results.artifact(one.scale_map_digest, ArtifactKind.SCALE_MAP)


@pytest.mark.parametrize("cursor", [-1, 4])
def test_an_unknown_cursor_is_refused(world, cursor):
    created = world.select()
    with error_at("cursor"):
        world.stores.results.events(created, cursor, 10)
