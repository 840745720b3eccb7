import pytest

from modnorm.errors import InvalidInputError
from modnorm.spec import DataSpec
from modnorm.tasks.row_loading import bundled_names, open_source
from tests.faults import error_at

FIELD = "task.heldout"


def read(source, roots=None, **options):
    spec = DataSpec(source=str(source), **options)
    return list(open_source(spec, field=FIELD, roots=roots).rows)


def test_bundled_data_are_read_by_name():
    assert {"countdown-heldout", "word-problems-heldout"} <= set(bundled_names())
    rows = read("bundled:word-problems-heldout", roots=[])
    assert rows[0][0] == "line 1"
    assert set(rows[0][1]) == {"question", "answer"}


@pytest.mark.parametrize("name", ["", "nothing", "../data/countdown-heldout", "README"])
def test_unknown_bundled_data_are_refused_with_the_known_names(name):
    with error_at(f"{FIELD}.source", "countdown-heldout"):
        read(f"bundled:{name}")


def test_a_folder_without_a_split_is_refused(write_rows, tmp_path, monkeypatch):
    root = write_rows("data/train.jsonl").parent
    write_rows("data/test.json")
    (root / "notes.txt").write_text("")
    (tmp_path / "rows.jsonl").mkdir()
    monkeypatch.chdir(tmp_path)
    cases = {str(root): None, "./data": None, "rows.jsonl": (tmp_path,)}
    for source, roots in cases.items():
        with error_at(f"{FIELD}.split", "is a folder and needs a split") as caught:
            read(source, roots)
        there = "put a file of rows" if source == "rows.jsonl" else "one of test, train"
        assert there in str(caught.value)
    with pytest.raises(InvalidInputError, match=r"there is no file .* under the data roots"):
        read(root, [root / "elsewhere"])


@pytest.mark.parametrize("option", ["config", "revision"])
def test_options_of_datasets_do_not_go_with_files(write_rows, option):
    for source in (write_rows("rows.jsonl"), "bundled:countdown-heldout", "split:gsm8k/heldout"):
        with error_at(f"{FIELD}.{option}", f"has no {option}"):
            read(source, **{option: "main"})
    with pytest.raises(InvalidInputError, match="has no split"):
        read("bundled:countdown-heldout", split="main")


@pytest.mark.parametrize("name", ["train.jsonl", "train.json", "train.parquet"])
def test_a_split_of_a_folder_is_its_file_of_that_name(write_rows, name, tmp_path):
    root = write_rows(f"data/{name}").parent
    for roots in (None, [tmp_path]):
        rows = read(root, roots, split="train")
        assert [row["target"] for _, row in rows] == [6, 7, 8, 9, 10]
    assert len(read("./data", [tmp_path], split="train")) == 5


def test_a_folder_without_the_split_is_refused(write_rows, tmp_path):
    root = write_rows("data/train.jsonl").parent
    with error_at(f"{FIELD}.split", f"no file of rows named test in {root}"):
        read(root, split="test")
    (tmp_path / "roots").mkdir()
    for source, split in ((root, "train"), (tmp_path / "roots", "../data/train")):
        with pytest.raises(InvalidInputError, match="under the data roots"):
            read(source, [tmp_path / "roots"], split=split)


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        (b"[1]", ": not a JSON object"),
        (b"{", ": not valid JSON"),
        (b'{"a": NaN}', ": not valid JSON"),
        (b'{"a": "\xff"}', " is no UTF-8 text"),
        (b"[" * 100_000, ": not valid JSON"),
        (b'{"a": ' + b"9" * 5000 + b"}", ": not valid JSON"),
    ],
)
def test_a_malformed_line_is_named(tmp_path, line, fault):
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b'{"a": 1}\n' * 16 + line + b"\n")
    with error_at(FIELD, f"line 17{fault}"):
        read(path)


def test_files_under_a_root_are_read_by_any_path_to_them(write_rows, tmp_path, monkeypatch):
    path = write_rows("data/rows.jsonl")
    root = tmp_path / "data"
    (root / "link.jsonl").symlink_to(path)
    assert len(read(path, roots=[root])) == 5
    assert len(read("rows.jsonl", roots=[tmp_path / "none", root])) == 5
    assert len(read("../data/rows.jsonl", roots=[root])) == 5
    assert len(read(root / "link.jsonl", roots=[root])) == 5
    monkeypatch.chdir(root)
    assert len(read("./rows.jsonl", roots=[root])) == 5


def test_a_file_outside_the_roots_counts_as_missing(write_rows, tmp_path):
    outside = write_rows("secret/rows.jsonl")
    root = tmp_path / "data"
    root.mkdir()
    (root / "link.jsonl").symlink_to(outside)
    (root / "folder").symlink_to(outside.parent)
    sources = [
        outside,
        outside.with_name("none.jsonl"),
        "../secret/rows.jsonl",
        "link.jsonl",
        root / "link.jsonl",
        "folder/rows.jsonl",
    ]
    for source in sources:
        with pytest.raises(InvalidInputError) as caught:
            read(source, roots=[root])
        assert caught.value.message == f"there is no file {source} under the data roots"
