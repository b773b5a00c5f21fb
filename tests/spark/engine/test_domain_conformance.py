"""Delivery in a domain is the same with engines on Spark beside its servers, in one session (SPEC T-06, K-01)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.conformance.conditions import Conditions
from tests.conformance.domain_conditions import APART, Combination, Placement
from tests.conformance.domain_delivery import DomainDelivery
from tests.spark.engine.running import EngineOnSpark
from wanderbus.pipeline.engine.query import load_in_workers

pytestmark = pytest.mark.integration

COMBINATIONS = [
    Combination(Placement(1, 1), "perfect", engines=(0, 1)),
    Combination(APART, "imperfect", engines=(2,), model="decentralised"),
]


@pytest.fixture(scope="module")
def warm(spark: SparkSession) -> SparkSession:
    """Spark, whose workers have the kernel of the index."""
    load_in_workers(spark)
    return spark


@pytest.fixture(params=COMBINATIONS, ids=str)
def conditions(
    request: pytest.FixtureRequest, tmp_path: Path, warm: SparkSession, pace_of_spark: None
) -> Iterator[Conditions]:
    """A domain with one of the combinations."""
    made = request.param.conditions(tmp_path, lambda: EngineOnSpark(warm))
    yield made
    made.kill_engine()


class TestDelivery(DomainDelivery):
    """Engines on Spark."""
