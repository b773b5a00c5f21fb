"""Shared setup of all tests: Hypothesis without deadlines, since a loaded machine is no fault of the code.

All tests with Spark in a process share one session, since a session takes seconds to start and to become fast.

Programs that tests start react to signals also under ``nohup`` and in the background of a script. A child inherits that
a signal is ignored, but not that it is handled. So the tests handle the signals that they shall ignore.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import pytest
from hypothesis import HealthCheck, Phase, settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_IGNORED: Final = "WANDERBUS_TESTS_IGNORE"
"""Names of the signals that the tests ignore, for the processes that share the tests out."""


def _pass_over(number: int, frame: object) -> None:
    """Do nothing about a signal."""


def _handle_what_is_ignored() -> None:
    named = os.environ.get(_IGNORED, "").split()
    for each in (signal.SIGHUP, signal.SIGINT):
        if each.name in named or signal.getsignal(each) is signal.SIG_IGN:
            signal.signal(each, _pass_over)
            named.append(each.name)
    os.environ[_IGNORED] = " ".join(dict.fromkeys(named))


_handle_what_is_ignored()

settings.register_profile("house", deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow])
# It finds a failure as fast as it can, and always the same.
settings.register_profile(
    "sabotage",
    settings.get_profile("house"),
    derandomize=True,
    database=None,
    phases=(Phase.explicit, Phase.generate),
)
settings.load_profile("house")


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The Spark session of all tests of this process."""
    from wanderbus.pipeline.session import spark_session

    session = spark_session("wanderbus-tests")
    yield session
    session.stop()


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark every test with a session, so that no other run starts Java by oversight."""
    if "spark" in getattr(item, "fixturenames", ()):
        item.add_marker(pytest.mark.spark)
