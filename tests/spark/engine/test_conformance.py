"""Delivery is the same with the engine on Spark: the stories of ``tests/conformance``, with one session (SPEC T-06)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from tests.api.world import World
from tests.conformance.conditions import Conditions
from tests.conformance.delivery import Delivery
from tests.spark.engine.running import EngineOnSpark

pytestmark = pytest.mark.integration


@pytest.fixture
def conditions(world: World, spark: SparkSession) -> Iterator[Conditions]:
    """A server with the engine."""
    made = Conditions(world, EngineOnSpark(spark))
    yield made
    made.kill_engine()


class TestDelivery(Delivery):
    """The engine on Spark."""
