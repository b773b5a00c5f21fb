"""Every path gives the same answer to the same question, or refuses it with one line (SPEC U-19)."""

from __future__ import annotations

from pathlib import Path as Directory

import pytest
from pyspark.sql import SparkSession

from tests.conformance.paths.cases import small_case
from tests.conformance.paths.commands import using
from tests.conformance.paths.counts import count_differences
from tests.conformance.paths.suite import differences, prepared, small_form

pytestmark = pytest.mark.integration


def test_u19_paths_without_spark_answer_as_the_reference_does(tmp_path: Directory) -> None:
    worlds = prepared(small_case(), tmp_path)
    assert list(differences(worlds, lambda path, _: not path.needs_spark)) == []
    assert count_differences(worlds) == []


@pytest.mark.spark
def test_u19_paths_with_spark_answer_as_the_reference_does(spark: SparkSession, tmp_path: Directory) -> None:
    case = small_case()
    worlds = prepared(case, tmp_path, spark)
    chosen = small_form(case)
    with using(spark):
        found = list(differences(worlds, lambda path, asked: path.needs_spark and chosen(path, asked)))
        found += count_differences(worlds)
    assert found == []
