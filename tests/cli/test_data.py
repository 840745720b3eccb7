import json

import pytest

from modnorm.tasks import catalogue, get_task
from modnorm.tasks.catalogue import DATASETS, Dataset, Part, Split
from modnorm.tasks.columns import rows_digest

QUESTIONS = [{"question": f"q{n}?", "answer": f"so\n#### {n}"} for n in range(5)]
STORY = {"storyid": "s", "storytitle": "t"} | {f"sentence{n}": f"Line {n}." for n in range(1, 6)}


def digest(rows):
    return rows_digest([get_task("gsm8k").parse(row) for row in rows])


@pytest.fixture
def small(monkeypatch, tmp_path):
    """Put a small pinned data set and a data set without an open licence into the catalogue."""
    gsm8k = Dataset(
        task="gsm8k",
        licence="MIT",
        hub="a/b",
        revision="f" * 40,
        splits={
            "selection": Split(2, digest(QUESTIONS[:2]), (Part("train"),), "the first"),
            "heldout": Split(3, digest(QUESTIONS[2:]), (Part("test"),), "the others"),
        },
    )
    rocstories = Dataset(
        task="rocstories",
        licence="by request",
        splits={"selection": Split(1, None, (Part("train"),), "one")},
    )
    monkeypatch.setattr(catalogue, "DATASETS", {"gsm8k": gsm8k, "rocstories": rocstories})
    monkeypatch.setenv("MODNORM_CACHE_DIR", str(tmp_path))


@pytest.fixture
def own(small, tmp_path):
    """Write the small data set's own files into a folder."""
    place = tmp_path / "own" / "gsm8k"
    place.mkdir(parents=True)
    for name, rows in (("train", QUESTIONS[:2]), ("test", QUESTIONS[2:])):
        (place / f"{name}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return place.parent


@pytest.fixture
def fetched(own, modnorm_json, tmp_path):
    """Fetch the small data set from its own files; returns the folder."""
    modnorm_json("data", "fetch", "gsm8k", "--from", own, "--to", tmp_path / "data")
    return tmp_path / "data"


def test_the_list_names_every_split_and_its_home(modnorm, modnorm_json, tmp_path):
    listed = {each["split"]: each for each in modnorm_json("data", "list", "--folder", tmp_path)}
    assert set(listed) == {f"{t}/{name}" for t, data in DATASETS.items() for name in data.splits}
    assert listed["gsm8k/heldout"] == {
        "split": "gsm8k/heldout",
        "rows": 1319,
        "digest": DATASETS["gsm8k"].splits["heldout"].digest,
        "rule": "all test rows, the paper's",
        "licence": "MIT",
        "source": "openai/gsm8k",
        "config": "main",
        "revision": DATASETS["gsm8k"].revision,
        "state": "absent",
    }
    code, out, err = modnorm("data", "list", "--folder", tmp_path)
    assert (code, err) == (0, f"folder: {tmp_path}\n")
    assert f"openai/gsm8k (main) at {DATASETS['gsm8k'].revision}; MIT" in out
    assert "pingzhili/uspto-50k, not pinned; MIT" in out
    assert "rocstories: not public; by request" in out


def test_a_fetched_folder_checks(fetched, modnorm, modnorm_json):
    (document,) = modnorm_json("data", "check", "gsm8k", "--folder", fetched)
    assert document["sound"]
    code, out, err = modnorm("data", "check", "--all", "--folder", fetched)
    assert (code, err) == (0, "rocstories: absent\n")
    assert out.startswith("gsm8k: sound\n  gsm8k/selection ")


def test_own_files_check_too(own, modnorm_json):
    (document,) = modnorm_json("data", "check", "gsm8k", "--folder", own)
    assert document["sound"]
    assert [split["file"] for split in document["splits"]] == ["train.jsonl", "test.jsonl"]


def test_a_changed_row_is_refused_by_file(fetched, modnorm):
    path = fetched / "gsm8k" / "heldout.jsonl"
    before = path.read_text()
    path.write_text(before.replace("q3?", "q7?"))
    assert path.read_text() != before
    code, out, err = modnorm("data", "check", "gsm8k", "--folder", fetched)
    assert (code, out) == (2, "")
    assert err.startswith(f"error: folder: {path}")
    code, out, _ = modnorm("data", "check", "gsm8k", "--folder", fetched, "--json")
    assert code == 2
    (document,) = json.loads(out)
    assert not document["sound"]
    assert str(path) in document["error"]


def test_what_is_not_public_is_left_out_or_has_a_remedy(
    own, fetched, modnorm, printed, refusal, modnorm_json
):
    code, out, err = modnorm("data", "fetch", "--all", "--to", fetched)
    assert code == 0
    assert out.startswith("gsm8k: already there, sound; ")
    assert err.startswith("rocstories: left out, not public; get them (by request)")
    err = refusal("data", "fetch", "rocstories", "--to", fetched)
    assert "`modnorm data fetch rocstories --from FOLDER`" in err
    (own / "rocstories").mkdir()
    (own / "rocstories" / "train.json").write_text(json.dumps([STORY]))
    assert len(modnorm_json("data", "fetch", "--all", "--from", own, "--to", fetched)) == 2


def test_rows_of_unknown_content_are_not_called_sound(own, fetched, printed, modnorm_json):
    (own / "rocstories").mkdir()
    (own / "rocstories" / "train.json").write_text(json.dumps([STORY]))
    fetch = ("data", "fetch", "rocstories", "--to", fetched)
    out = printed(*fetch, "--from", own)
    assert out.startswith(f"rocstories: fetched from {own}, 1 rows, content not known; ")
    path = fetched / "rocstories" / "selection.jsonl"
    path.write_text(path.read_text().replace("Line 1.", "Line 7."))
    out = printed(*fetch)
    assert out.startswith("rocstories: already there, 1 rows, content not known; ")
    out = printed("data", "check", "rocstories", "--folder", fetched)
    assert out.startswith("rocstories: 1 rows, content not known\n")
    assert out.endswith("  not compared: the catalogue knows no digest\n")
    (document,) = modnorm_json("data", "check", "rocstories", "--folder", fetched)
    assert document["sound"] is None


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        (["fetch"], "task"),
        (["check"], "task"),
        (["fetch", "gsm8k", "--all"], "task"),
        (["check", "gsm8k", "chess"], "task"),
        (["fetch", "gsm8k", "chess"], "task"),
        (["check", "--all"], "folder"),
        (["check", "gsm8k"], "folder"),
        (["check", "gsm8k", "--folder", "~nobody-here/x"], "folder"),
        (["fetch", "gsm8k", "--from", "no/such/folder"], "from"),
        (["fetch", "--all", "--from", "no/such/folder"], "from"),
        (["fetch", "gsm8k", "--from", "{own}", "--to", "{own}/gsm8k/train.jsonl"], "to"),
    ],
)
def test_wrong_arguments_are_named(own, refusal, arguments, field):
    err = refusal("data", *(each.format(own=own) for each in arguments))
    assert f"error: {field}: " in err
    assert "Traceback" not in err
