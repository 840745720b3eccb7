import hashlib

import pytest

from modnorm.errors import InvalidInputError
from modnorm.spec import DataSpec
from modnorm.tasks import get_task
from modnorm.tasks.columns import encode_rows, prompts_digest, rows_digest
from modnorm.tasks.protocol import Message
from modnorm.tasks.row_loading import load_data
from tests.faults import error_at

TASK = get_task("countdown")
FIELD = "task.selection"
FORMATS = ["rows.jsonl", "rows.json", "rows.parquet"]
EXPECTED = tuple({"numbers": [n, 2, 3], "target": n + 5} for n in range(1, 6))


def load(path, **options):
    return load_data(TASK, DataSpec(source=str(path), **options), field=FIELD).rows


@pytest.mark.parametrize("name", FORMATS)
def test_offset_and_limit_cut_the_rows(write_rows, name):
    path = write_rows(name)
    assert load(path, offset=1, limit=3) == EXPECTED[1:4]
    assert load(path, offset=3) == EXPECTED[3:]
    assert load(path, limit=5) == EXPECTED


@pytest.mark.parametrize("name", FORMATS)
def test_fewer_rows_than_the_limit_are_refused(write_rows, name):
    with error_at(f"{FIELD}.limit", "has 4 rows after the first 1") as caught:
        load(write_rows(name), offset=1, limit=5)
    assert caught.value.remedy == "at most 4"


@pytest.mark.parametrize(
    ("name", "content"), [("a.jsonl", ""), ("a.jsonl", "\n"), ("a.json", "[]")]
)
def test_an_empty_file_is_refused(tmp_path, name, content):
    path = tmp_path / name
    path.write_text(content)
    with pytest.raises(InvalidInputError, match="has no rows"):
        load(path)


def test_a_row_that_breaks_the_schema_is_named_by_line_and_column(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text('{"numbers": [1], "target": 1}\n\n{"numbers": [1]}\n')
    with error_at(FIELD, "line 3, column 'target': is missing"):
        load(path)
    path = tmp_path / "rows.json"
    path.write_text('[{"numbers": [1], "target": 1}, {"target": 1}]')
    with pytest.raises(InvalidInputError, match="row 2, column 'numbers'"):
        load(path)


def test_encoding_is_canonical_and_the_digest_is_of_its_lines():
    rows = ({"target": 1, "numbers": [2, 3]}, {"question": "caf\u00e9"})
    assert encode_rows(rows) == ['{"numbers":[2,3],"target":1}', '{"question":"caf\\u00e9"}']
    assert rows_digest(rows) == hashlib.sha256("\n".join(encode_rows(rows)).encode()).hexdigest()
    assert rows_digest(reversed(rows)) != rows_digest(rows)


def test_the_digest_of_prompts_depends_on_order_roles_and_texts():
    ask, tell = (Message("user", "caf\u00e9?"),), (Message("system", "s"), Message("user", "u"))
    lines = '[["user", "caf\\u00e9?"]]\n[["system", "s"], ["user", "u"]]'
    assert prompts_digest([ask, tell]) == hashlib.sha256(lines.encode()).hexdigest()
    others: list[list[tuple[Message, ...]]] = [
        [tell, ask],
        [ask, tell[::-1]],
        [ask, tell[1:]],
        [(*ask, *tell)],
    ]
    assert prompts_digest([ask, tell]) not in [prompts_digest(other) for other in others]
