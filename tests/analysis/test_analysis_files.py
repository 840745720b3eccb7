import pandas as pd

from modnorm.analysis.figures import FORMATS, write_table


def test_a_table_is_written_in_every_format(tmp_path):
    table = pd.DataFrame({"method": ["a_b", "c"], "mean": [1 / 3, None], "N": [25, 300]})
    paths = write_table(tmp_path / "new", "name", table)
    assert [path.name for path in paths] == [f"name.{kind}" for kind in FORMATS]
    csv, parquet, markdown, latex = paths
    pd.testing.assert_frame_equal(pd.read_csv(csv), table)
    pd.testing.assert_frame_equal(pd.read_parquet(parquet), table)
    rows = ["".join(line.split()) for line in markdown.read_text().splitlines()]
    assert rows[2:] == ["|a_b|0.3333|25|", "|c|-|300|"]
    assert r"a\_b&0.3333&25\\" in "".join(latex.read_text().split())
