"""`modnorm compare` of distillations with each other and with searches, and its remarks."""

import json

import pytest

from modnorm.analysis.distillation import compared_entries
from modnorm.analysis.run_files import DISTILLATION
from tests.analysis.distillations import make_document


@pytest.fixture
def write(tmp_path):
    def write(name, **provenance):
        document = make_document(0.2, [0.6], [0.5], name=name)
        document["provenance"] = {**document["provenance"], **provenance}
        directory = tmp_path / name
        directory.mkdir()
        (directory / DISTILLATION).write_text(json.dumps(document))
        return directory

    return write


def test_other_held_out_rows_are_named(write, modnorm, modnorm_json):
    directories = [
        write("one", heldout_digest="a", prompts_digest="p"),
        write("two", heldout_digest="b", prompts_digest="q"),
        write("three", heldout_digest="a", prompts_digest="q"),
    ]
    expected = [[], ["held-out rows"], ["prompts"]]
    assert [entry["differs"] for entry in compared_entries(directories)] == expected
    code, _, notes = modnorm("compare", *directories)
    assert code == 0
    assert "not comparable: two differs from one in held-out rows" in notes
    found = modnorm_json("compare", *directories)
    assert [entry["differs"] for entry in found] == expected
