"""What is declared of a step, and what Spark itself then does of it, in the local session."""

from __future__ import annotations

from pathlib import Path

import pytest

from sunshower.spark_integration.steps import parquet, spark


@pytest.mark.parametrize("elsewhere", ["s3a://bucket/pages", "hdfs:///pages", "file:/pages", "/p"])
def test_paths_are_those_of_where_they_were_declared(
    elsewhere: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    step = spark(lambda df, _: df, tables={"a": "pages", "b": Path("x/pages"), "c": elsewhere})
    assert step.step.tables == {
        "a": f"{tmp_path}/pages",
        "b": f"{tmp_path}/x/pages",
        "c": elsewhere,
    }
    assert str(parquet("out/totals")) == f"parquet('{tmp_path}/out/totals')"
    assert str(parquet(elsewhere)) == f"parquet({elsewhere!r})"
