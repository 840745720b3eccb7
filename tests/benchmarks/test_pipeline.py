"""The pipeline benchmark adds up what its processes noted; variants of `worth` can run."""

from pkgutil import resolve_name

import pytest

from benchmarks.pipeline import __main__ as pipeline
from benchmarks.pipeline.recording import Event, EventLog, GpuBusy, first_gpu, read_events
from benchmarks.worth import VARIANTS


def _model(began, first_row, rows):
    """Return the events of one model, which has tokens after 0.5 s and ends after 2 s."""
    return [
        Event("answer", began, rows, first_row),
        Event("token", began + 0.5),
        Event("answered", began + 2),
    ]


EVENTS = [
    Event("load", 1.0),
    Event("loaded", 3.0),
    *_model(4.0, "a", 2),  # a check with the first selection rows
    *_model(10.0, "a", 5),
    *_model(12.5, "a", 5),
    *_model(20.0, "b", 7),
    *_model(22.25, "b", 7),
]


def test_checks_of_the_engine_are_no_models_and_gaps_end_with_first_tokens():
    models = pipeline._models(EVENTS, 5)
    assert [one.began for one in models["selection"]] == [10.0, 12.5]
    assert [one.began for one in models["heldout"]] == [20.0, 22.25]
    assert pipeline._gaps(models["selection"]) == {"median": 1000.0, "p90": 1000.0}
    assert pipeline._gaps(models["heldout"]) == {"median": 750.0, "p90": 750.0}
    assert pipeline._gaps(models["heldout"][:1]) == {"median": None, "p90": None}


def test_events_are_read_as_they_were_noted(tmp_path):
    log = EventLog(tmp_path / "events.json")
    log.note("answer", 5, "a")
    log.write(experts=2)
    events, figures = read_events(tmp_path / "events.json")
    assert [(one.name, one.rows, one.first) for one in events] == [("answer", 5, "a")]
    assert figures == {"experts": 2}
    with pytest.raises(SystemExit, match="was not written"):
        read_events(tmp_path / "absent.json")


def test_a_part_of_the_work_is_extrapolated_and_marked():
    begins = {"start": 0.0, "calibrate": 10.0, "load": 12.0, "search": 20.0, "vote": 30.0}
    factors = {"search": 25.0, "vote": 2.0}
    side = pipeline.Side({**begins, "report": 34.0}, 35.0, {"factors": factors})
    found = pipeline._summary(side, GpuBusy(0))
    assert found["seconds"] == {
        "start": 10.0,
        "calibrate": 2.0,
        "load": 8.0,
        "search": 250.0,
        "vote": 8.0,
        "report": 1.0,
        "total": 279.0,
    }
    assert found["extrapolated"] is True
    whole = pipeline._summary(pipeline.Side({**begins, "report": 34.0}, 35.0, {}), GpuBusy(0))
    assert isinstance(whole["seconds"], dict)
    assert (whole["seconds"]["total"], whole["extrapolated"]) == (35.0, False)
    table = pipeline.render({"device": "D", "published": found, "ours": whole})
    assert "| search | 250.0 |  | 10.0 |  |" in table
    assert "search 25.0, vote 2.0, total 8.0" in table
    assert "published: search and vote are extrapolated" in table
    assert "ours: search and vote are extrapolated" not in table


@pytest.mark.parametrize(("visible", "index"), [("", 0), ("3", 3), ("2,1", 2), ("GPU-12ab", 0)])
def test_the_first_visible_gpu_is_watched(visible, index):
    assert first_gpu(visible) == index


def test_a_process_that_fails_is_named(tmp_path):
    with pytest.raises(SystemExit, match=r"ours ended with 1: see .*ours\.log"):
        pipeline._run("no_such_module", [], tmp_path, "ours")
    assert "no_such_module" in (tmp_path / "ours.log").read_text()


def test_what_a_variant_of_worth_replaces_exists():
    for variant in VARIANTS.values():
        assert all(callable(resolve_name(target)) for target in variant.patches)
