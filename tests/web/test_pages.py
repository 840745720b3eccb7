"""The pages of a real run: what they show, and how they refuse."""

import json
import shutil
from dataclasses import replace

import pandas as pd
import pytest

from modnorm.analysis.parquet_files import read_answers, read_votes, write_answers
from modnorm.web.app import build_app
from modnorm.web.run_directories import DirectoryCatalog
from tests.pages import Page


@pytest.fixture
def read(get):
    """Return the parsed page at an address that must answer."""

    def read(address):
        answer = get(address)
        assert answer.status_code == 200, answer.text
        return Page(answer.text)

    return read


def test_runs_are_listed_finished_or_not(read):
    page = read("/")
    assert {"/runs/first", "/runs/second"} <= set(page.links)
    assert "not finished" in page.words
    unfinished = read("/runs/second")
    assert "has not finished" in unfinished.words
    assert "/runs/second/candidates" not in unfinished.links


def test_runs_of_one_name_hide_no_other(send, tmp_path):
    places = [tmp_path / place for place in ("a/x", "b/x", "c/1-x", "c/2-x")]
    for place in places:
        place.mkdir(parents=True)
        (place / "spec.json").write_text("{}")
    app = build_app(DirectoryCatalog([tmp_path / folder for folder in "abc"]))
    links = set(Page(send(app, "GET", "/").text).links)
    assert len([link for link in links if link.startswith("/runs/")]) == len(places)


def test_a_run_shows_votes_with_intervals_and_its_figures(read, get, runs):
    document = json.loads((runs / "first" / "results.json").read_text())
    page = read("/runs/first")
    for ensemble in document["ensembles"]:
        low, high = ensemble["interval"]
        shown = f"{100 * ensemble['metric']:.1f} % [{100 * low:.1f}, {100 * high:.1f}]"
        assert shown in page.words
    names = ["accuracy-by-ensemble-size", "accuracy-by-population", "reward-histogram"]
    drawn = [f"/runs/first/figures/{name}.svg" for name in [*names, "vote-support"]]
    figures = [each for each in page.links if each.startswith("/runs/") and each.endswith(".svg")]
    assert list(dict.fromkeys(figures)) == drawn
    for address in drawn:
        answer = get(address)
        assert answer.headers["content-type"] == "image/svg+xml"
        assert "script-src" not in answer.headers["content-security-policy"]
        assert b"prefers-color-scheme: dark" in answer.content
    assert get("/runs/first/figures/absent.svg").status_code == 404


def test_question_17_is_three_clicks_away(read, runs):
    assert "/runs/first" in read("/").links
    assert "/runs/first/questions" in read("/runs/first").links
    address = "/runs/first/questions/17?n=4&k=2"
    assert address in read("/runs/first/questions").links
    page = read(address)
    (vote,) = read_votes(runs / "first", row=17, population=4, ensemble_size=2)
    assert ("no expert gave a valid answer" in page.words) is (vote.answer is None)
    cut = 0
    for candidate in (-1, *vote.experts):
        (answer,) = read_answers(runs / "first", candidate=candidate, split="heldout", row=17)
        assert " ".join(answer.completion.split()) in page.words
        cut += answer.truncated
    assert page.words.count("cut off by the cap") == cut
    assert f"gold {vote.gold}" in page.words
    assert "it does not vote" in page.words


@pytest.mark.parametrize("column", ["rank", "gain"])
@pytest.mark.parametrize("descending", [False, True])
def test_candidates_are_sorted_with_the_unmeasured_last(read, runs, column, descending):
    path = runs / "first" / "candidates.csv"
    lines = pd.read_csv(path, dtype=str).set_index("index")
    lines.loc["3", ["rank", "gain", "selection_reward"]] = None
    lines.reset_index().to_csv(path, index=False)
    address = f"/runs/first/candidates?sort={column}{'&descending=1' if descending else ''}"
    shown = [link.rpartition("/")[2] for link in read(address).links if "/candidates/" in link]
    known = lines[column].dropna().map(float).to_dict()
    assert shown == [*sorted(known, key=lambda each: known[each], reverse=descending), "3"]


def test_candidates_have_pages_and_the_last_one_stands_for_later_ones(read, runs):
    path = runs / "first" / "candidates.csv"
    lines = pd.read_csv(path, dtype=str)
    many = pd.concat([lines.iloc[:1]] * 101, ignore_index=True).assign(index=range(101), rank=None)
    many.to_csv(path, index=False)
    address = "/runs/first/candidates?page="
    for number, shown, words in ((2, 50, "page 2 of 3"), (3, 1, "3 of 3"), (1000, 1, "3 of 3")):
        page = read(f"{address}{number}")
        assert sum("/candidates/" in link for link in page.links) == shown
        assert words in page.words
        assert any("page=2" in link for link in page.links) is (number != 2)


def test_all_answers_of_a_candidate_are_shown(read, runs):
    page = read("/runs/first/candidates/-1")
    assert "/runs/first/candidates/-1/heldout/17" in page.links
    (answer,) = read_answers(runs / "first", candidate=-1, split="heldout", row=17)
    single = read("/runs/first/candidates/-1/heldout/17")
    assert " ".join((answer.prompt or "").split()) in single.words
    assert " ".join(answer.completion.split()) in single.words
    selection = read("/runs/first/candidates/0?split=selection")
    assert len([link for link in selection.links if "/0/selection/" in link]) == 4
    assert not any("/heldout/" in link for link in selection.links)


def test_what_models_write_is_text(read, runs):
    hostile = "</pre><script>alert(1)</script><img src=x onerror=alert(1)>{{ 7 * 7 }}"
    run = runs / "first"
    answers = [
        replace(each, completion=hostile, vote=hostile, gold=hostile, prompt=hostile)
        for each in read_answers(run)
    ]
    write_answers(run, answers)
    for address in (
        "/runs/first/questions/17",
        "/runs/first/candidates/-1",
        "/runs/first/candidates/-1/heldout/17",
    ):
        page = read(address)
        assert hostile in page.words
        assert not {"script", "img"} & set(page.tags)
        assert not [name for name in page.attributes if name.startswith("on") or name == "style"]


def test_the_name_of_a_run_is_text(get, runs):
    name = 'a b"><script>?#%2f'
    (runs / "second").rename(runs / name)
    page = Page(get("/").text)
    assert "script" not in page.tags
    (link,) = [link for link in page.links if "script" in link]
    assert get(link).status_code == 200


def test_runs_are_compared_and_flagged_where_they_differ(read, runs):
    shutil.copytree(runs / "first", runs / "third")
    assert "Not comparable" not in read("/compare?run=first&run=third").words
    path = runs / "third" / "results.json"
    document = json.loads(path.read_text())
    document["provenance"]["prompts_digest"] = "0" * 64
    path.write_text(json.dumps(document))
    page = read("/compare?run=first&run=third")
    assert "Not comparable: third differs from first in prompts." in page.words
    document["provenance"]["scorer"] = "another"
    path.write_text(json.dumps(document))
    page = read("/compare?run=first&run=third")
    assert "Not comparable: third differs from first in scorer, prompts." in page.words
    assert "first and third are not paired" in page.words


@pytest.mark.parametrize(
    ("address", "status", "words"),
    [
        ("/runs/none", 404, "there is no run"),
        ("/runs/second/candidates", 409, "only an experiment that succeeded"),
        ("/runs/second/questions", 409, "only an experiment that succeeded"),
        ("/runs/second/questions/x", 409, "only an experiment that succeeded"),
        ("/runs/first/questions/18", 404, "no row 18 was voted on"),
        ("/runs/first/questions/x", 400, "Field: row"),
        ("/runs/first/questions?n=3", 404, "the run has no ensemble N=3"),
        ("/runs/first/candidates?sort=completion", 400, "Field: sort"),
        ("/runs/first/candidates?page=0", 400, "Field: page"),
        ("/runs/first/candidates?page=0", 400, "a whole number from 1 to 2147483647"),
        ("/runs/first/candidates/99999999999", 400, "Field: candidate"),
        ("/runs/first/candidates/3/other/0", 400, "Field: split"),
        ("/runs/first/candidates/3/selection/9", 404, "the run has no row 9"),
        ("/compare?run=first", 400, "1 runs are chosen"),
        ("/compare?run=first&run=second", 409, "only an experiment that succeeded"),
    ],
)
def test_a_wrong_address_is_refused_with_its_field_and_remedy(get, address, status, words):
    answer = get(address)
    assert answer.status_code == status
    assert words in Page(answer.text).words


@pytest.mark.parametrize(
    "address",
    ["candidates/%20", "candidates/%20/heldout/17", "candidates/0/heldout/%20", "questions/%20"],
)
def test_an_address_names_one_candidate_and_one_row(get, address):
    """Without a candidate the page would read the answers of the whole population."""
    answer = get(f"/runs/first/{address}")
    assert answer.status_code == 400
    assert "a whole number" in answer.text


DAMAGES = [
    ("spec.json", '{"model": "tiny-thicket"}', "population: must be given"),
    ("spec.json", "[]", "spec.json"),
    ("spec.json", "{", "spec.json"),
    ("spec.json", None, "has no spec.json"),
    ("results.json", "{", "results.json"),
    ("distillation.json", "{}", "distillation.json"),
]


@pytest.mark.parametrize(("name", "content", "told"), DAMAGES)
def test_a_damaged_run_says_so_and_hides_no_other_run(read, runs, name, content, told):
    damaged = shutil.copytree(runs / "first", runs / "third")
    if content is None:
        (damaged / name).unlink()
    else:
        (damaged / name).write_text(content)
    assert "third" in read("/").words
    assert "/runs/first" in read("/").links
    page = read("/runs/third")
    assert "damaged" in page.words
    assert told in page.words
