"""A `results.json` that is JSON, but not whole: every reader works or names its field."""

import json
from copy import deepcopy
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from modnorm.analysis.analyses import analyze
from modnorm.analysis.comparison import compare_runs
from modnorm.analysis.export import write_run
from modnorm.analysis.parquet_files import write_answers
from modnorm.analysis.plots import plot_names
from modnorm.analysis.report import render_report
from modnorm.analysis.run import load_run
from modnorm.analysis.run_data import StateRow
from modnorm.cli.results import print_table
from modnorm.errors import InvalidInputError

DELETED = object()
VALUES: tuple[object, ...] = (None, True, 3, -0.5, "text", [], ["text"], {}, {"name": []})


@pytest.fixture(scope="module", params=["search", "iterative"])
def whole(request, make_run, tmp_path_factory):
    """Directory of a finished run, whose results each example replaces."""
    run = make_run(prefixes=(4, 8), sizes=(1, 2))
    if request.param == "iterative":
        states = [StateRow(3, "a" * 64, reported=True, heldout_metric=0.5, heldout_answers=60)]
        trained = replace(run.ensembles[0], experts=(-1,))  # the state, which is no candidate
        run = replace(run, ensembles=[trained], states=states)
    directory = tmp_path_factory.mktemp("runs") / request.param
    write_run(directory, run)
    write_answers(directory, ())
    (directory / "spec.json").write_text("{}")
    return directory, json.loads((directory / "results.json").read_text())


def places(content, path=()):
    """Yield the path of every value in a document."""
    steps = content.items() if isinstance(content, dict) else enumerate(content)
    for step, value in steps:
        yield (*path, step)
        if isinstance(value, dict | list):
            yield from places(value, (*path, step))


def parent(document, path):
    for step in path[:-1]:
        document = document[step]
    return document


def refusal_of(directory):
    """Read a run in every way; returns the message of a refusal."""
    try:
        read_all(directory)
    except InvalidInputError as error:
        return error.message
    return None


def read_all(directory):
    results = load_run(directory)
    compare_runs([results, results])
    analyze([results])
    print_table(results.document)
    render_report(results.document, {})
    plot_names(results.document)
    assert results.base
    assert len(results.ensembles) == len(results.document["ensembles"])


def write(directory, document):
    (directory / "results.json").write_text(json.dumps(document))


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_a_damaged_document_is_read_or_refused_with_its_place(whole, data):
    directory, document = whole
    damaged = deepcopy(document)
    path = data.draw(st.sampled_from(list(places(document))))
    holder, step = parent(damaged, path), path[-1]
    others = [each for each in VALUES if type(each) is not type(holder[step])]
    if (value := data.draw(st.sampled_from([DELETED, *others]))) is DELETED:
        del holder[step]
    else:
        holder[step] = value
    write(directory, damaged)
    refusal = refusal_of(directory)
    assert refusal is None or f"{directory / 'results.json'} " in refusal
    assert refusal is None or f" {path[0]}" in refusal


def test_fields_of_a_newer_version_are_kept(whole):
    directory, document = whole
    newer = {**deepcopy(document), "newer": "text"}
    for path in places(document):
        found = parent(newer, path)[path[-1]]
        if isinstance(found, dict) and path[-1] not in {"ledger", "mixed_environments"}:
            found["newer"] = 0
    write(directory, newer)
    assert load_run(directory).document == newer
    assert refusal_of(directory) is None
