"""Delivery in a domain is the same with engines on Spark beside its servers, in one session (SPEC T-06, K-01)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.conformance.conditions import Conditions
from tests.conformance.delivery import Delivery
from tests.conformance.domain_conditions import APART, Combination, Placement
from tests.conformance.domain_delivery import DomainDelivery
from tests.spark.engine.running import EngineOnSpark
from wanderbus.pipeline.engine.query import load_in_workers

pytestmark = pytest.mark.integration

TWO_ENGINES = Combination(Placement(1, 1), "perfect", engines=(0, 1))
DECENTRALISED = Combination(APART, "imperfect", engines=(2,), model="decentralised")


@pytest.fixture(scope="module")
def warm(spark: SparkSession) -> SparkSession:
    """Spark, whose workers have the kernel of the index."""
    load_in_workers(spark)
    return spark


@pytest.fixture(params=[DECENTRALISED], ids=str)
def conditions(
    request: pytest.FixtureRequest, tmp_path: Path, warm: SparkSession, pace_of_spark: None
) -> Iterator[Conditions]:
    """A domain of this kind."""
    made = request.param.conditions(tmp_path, lambda: EngineOnSpark(warm))
    yield made
    made.kill_engine()


class TestDelivery(DomainDelivery):
    """An engine on Spark beside the server that the events of a decentralised channel arrive at."""


@pytest.mark.parametrize("conditions", [TWO_ENGINES], ids=str, indirect=True)
class TestTwoEngines:
    """Two engines in one session: what a domain of ordered channels has of its own, and what begins a query again."""

    test_t06_every_match_comes_once_and_in_order = Delivery.test_t06_every_match_comes_once_and_in_order
    test_t06_an_engine_that_is_killed_misses_and_repeats_nothing = (
        Delivery.test_t06_an_engine_that_is_killed_misses_and_repeats_nothing
    )
    test_t06_history_goes_on_where_it_was_when_servers_are_started_again = (
        Delivery.test_t06_history_goes_on_where_it_was_when_servers_are_started_again
    )
