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


@pytest.mark.parametrize("option", ["config", "revision", "split"])
def test_options_of_datasets_do_not_go_with_files(write_rows, option):
    for source in (write_rows("rows.jsonl"), "bundled:countdown-heldout", "split:gsm8k/heldout"):
        with error_at(f"{FIELD}.{option}", f"has no {option}") as caught:
            read(source, **{option: "main"})
        assert caught.value.remedy == f"remove {option}"


@pytest.mark.parametrize("options", [{}, {"split": "train"}])
@pytest.mark.parametrize("roots", [None, ["data"]])
def test_a_folder_is_no_source(tmp_path, monkeypatch, options, roots):
    (tmp_path / "data" / "dd").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "data" if roots is None else tmp_path)
    with error_at(f"{FIELD}.source", "^[^ ]* ./dd is a folder") as caught:
        read("./dd", roots=roots and [tmp_path / roots[0]], **options)
    assert caught.value.remedy == "name a file of it, for example ./dd/train.jsonl"


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        (b"[1]", ": not a JSON object"),
        (b"{", ": not valid JSON"),
        (b'{"a": NaN}', ": not valid JSON"),
        (b'{"a": 1, "b": 2, "a": 3}', ": not valid JSON: a appears twice"),
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
        outside.parent,
    ]
    for source in sources:
        with pytest.raises(InvalidInputError) as caught:
            read(source, roots=[root])
        assert caught.value.message == f"there is no file {source} under the data roots"
