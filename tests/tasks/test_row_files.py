import csv
import json
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow.parquet import write_table

from modnorm.errors import InvalidInputError
from modnorm.tasks import columns, get_task
from modnorm.tasks.columns import rows_digest
from modnorm.tasks.row_files import read_file
from modnorm.tasks.row_loading import parse_question
from tests.faults import error_at


def read(path):
    return list(read_file(path, path.name, field="task.heldout"))


def test_csv_columns_are_named_by_the_first_line(tmp_path):
    path = tmp_path / "stories.csv"
    path.write_text('\ufeffstoryid,title\n1,"A, b"\n2,"two\nlines"\n', encoding="utf-8")
    assert read(path) == [
        ("line 2", {"storyid": "1", "title": "A, b"}),
        ("line 4", {"storyid": "2", "title": "two\nlines"}),
    ]


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (b"a,b\n1\n", "line 2: not as many columns"),
        (b"a,b\n1,2,3\n", "line 2: not as many columns"),
        (b'a,b\n1,"2"3\n', "no readable CSV"),
        (b"a,b\n\xff,1\n", "no UTF-8 text"),
        (b"a,b,a\n1,2,3\n", "line 1: two columns are named 'a'"),
    ],
)
def test_broken_csv_is_refused_by_line(tmp_path, content, fault):
    path = tmp_path / "rows.csv"
    path.write_bytes(content)
    with pytest.raises(InvalidInputError, match=fault):
        read(path)


@pytest.mark.parametrize(
    ("name", "content", "fault"),
    [
        ("rows.jsonl", '{"a": 1}\n{"a": 2\n', "line 2: .*: column 8"),
        ("rows.json", '{"a": 1}\n{"a": 2}', r"\.jsonl"),
    ],
)
def test_broken_json_is_refused_at_one_place(tmp_path, name, content, fault):
    path = tmp_path / name
    path.write_text(content)
    with error_at("task.heldout", fault):
        read(path)


def test_parquet_columns_of_one_name_are_refused(tmp_path):
    path = tmp_path / "rows.parquet"
    write_table(pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"]), path)
    with pytest.raises(InvalidInputError, match="two columns are named 'a'"):
        list(read_file(path, "rows.parquet", field="task.heldout"))


@pytest.mark.parametrize(
    "column",
    [
        pa.Array.from_buffers(pa.string(), 1, pa.array([b"\xff"]).buffers()),
        pa.array([2**31 - 1], pa.int32()).cast(pa.date32()),
        pa.array([2**62]).cast(pa.timestamp("us")),
    ],
    ids=["no UTF-8", "no date", "no time"],
)
def test_parquet_values_that_python_does_not_have_are_refused(tmp_path, column):
    path = tmp_path / "rows.parquet"
    write_table(pa.table({"question": column}), path)
    with pytest.raises(InvalidInputError, match="no readable Parquet"):
        read(path)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32"])
@pytest.mark.parametrize("name", ["rows.jsonl", "rows.json"])
def test_json_of_another_encoding_is_refused_like_csv(tmp_path, encoding, name):
    path = tmp_path / name
    text = '{"a": 1}' if name == "rows.jsonl" else '[{"a": 1}]'
    path.write_text(text, encoding=encoding)
    with error_at("task.heldout", "no UTF-8 text.*save it as UTF-8"):
        read(path)
    path.write_text(text, encoding="utf-8-sig")
    assert [row for _, row in read(path)] == [{"a": 1}]


CAPITALS = Path(__file__).parents[2] / "examples" / "my-task.yaml"


def write(path, rows):
    """Write rows as the libraries of each format do."""
    if path.suffix == ".csv":
        cells = [{key: _cell(value) for key, value in row.items()} for row in rows]
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, rows[0])
            writer.writeheader()
            writer.writerows(cells)
    elif path.suffix == ".parquet":
        write_table(pa.Table.from_pylist(rows), path)
    else:
        lines = list(map(json.dumps, rows))
        path.write_text("\n".join(lines) if path.suffix == ".jsonl" else f"[{','.join(lines)}]")


def _cell(value):
    is_json = isinstance(value, list | bool)
    return json.dumps(value) if is_json else "" if value is None else str(value)


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.json", "rows.csv", "rows.parquet"])
@pytest.mark.parametrize(
    ("task", "written", "parsed"),
    [
        (
            "countdown",
            {"numbers": [44.0, 19.0, 35.0], "target": 98.0},
            {"numbers": [44, 19, 35], "target": 98},
        ),
        (
            "countdown",
            {"numbers": [98, 47], "target": 27.4},
            {"numbers": [98, 47], "target": 27.4},
        ),
        ("gsm8k", {"question": "q", "answer": 18}, {"question": "q", "answer": "18"}),
        ("gsm8k", {"question": "q", "answer": 18.0}, {"question": "q", "answer": "18"}),
        ("math500", {"problem": "p", "answer": 18}, {"problem": "p", "answer": "18"}),
        ("math500", {"problem": "p", "answer": 18.0}, {"problem": "p", "answer": "18"}),
        ("math500", {"problem": "p", "answer": 2.5}, {"problem": "p", "answer": "2.5"}),
        (
            "olympiadbench",
            {"question": "q", "final_answer": [18.0], "is_multiple_answer": None},
            {"question": "q", "final_answer": ["18"], "is_multiple_answer": False},
        ),
        (
            "olympiadbench",
            {"question": "q", "final_answer": [18], "is_multiple_answer": 1.0},
            {"question": "q", "final_answer": ["18"], "is_multiple_answer": True},
        ),
        ("uspto50k", {"rxn_smiles": "C>>N", "class": 8.0}, {"rxn_smiles": "C>>N", "class": 8}),
        (
            "rocstories",
            {
                "title": 1984.0,
                "shuffled_sentences": list("abcde"),
                "gold_order": [1.0, 0.0, 4.0, 2.0, 3.0],
            },
            {"title": "1984", "shuffled_sentences": list("abcde"), "gold_order": [1, 0, 4, 2, 3]},
        ),
        (str(CAPITALS), {"country": 98.0, "capital": 5}, {"country": "98", "capital": "5"}),
        (
            str(CAPITALS),
            {"country": 2**53 + 1, "capital": -(2**62) - 1},
            {"country": "9007199254740993", "capital": "-4611686018427387905"},
        ),
        (
            str(CAPITALS),
            {"country": 1e-7, "capital": True},
            {"country": "0.0000001", "capital": "true"},
        ),
    ],
)
def test_values_take_one_form_in_every_format(tmp_path, task, written, parsed, name):
    path = tmp_path / name
    write(path, [written])
    ((_, raw),) = read(path)
    row = get_task(task).parse(raw)
    assert rows_digest([row]) == rows_digest([parsed])


def test_a_list_of_texts_may_be_json():
    assert columns.texts({"tests": '["assert a", "b"]'}, "tests") == ["assert a", "b"]
    with error_at("tests", "must be a list of texts"):
        columns.texts({"tests": "assert a"}, "tests")


@pytest.mark.parametrize(
    ("cell", "is_multiple"),
    [
        *(("True", True), ("true", True), ("1", True), ("yes", True)),
        *(("FALSE", False), (" false ", False), ("0", False), ("No", False), ("", False)),
    ],
)
def test_truth_values_in_csv_are_those_of_json(tmp_path, cell, is_multiple):
    path = tmp_path / "rows.csv"
    path.write_text(f'question,final_answer,is_multiple_answer\nq,"[""5""]",{cell}\n')
    ((_, raw),) = read(path)
    task = get_task("olympiadbench")
    of_json = {"question": "q", "final_answer": ["5"], "is_multiple_answer": is_multiple}
    assert task.parse(raw) == task.parse(of_json) == of_json
    assert parse_question(task, raw, "row 1")["is_multiple_answer"] is is_multiple
