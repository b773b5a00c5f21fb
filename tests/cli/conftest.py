"""The shell of a test, and the Spark session for the commands that it runs itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import pytest
from pyspark.sql import SparkSession

from tests.cli.fleet import Fleet
from tests.cli.shell import Shell


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    shell = Shell(tmp_path)
    yield shell
    shell.close()


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """Three servers of a domain, which the tests of a module share."""
    fleet = Fleet(tmp_path_factory.mktemp("fleet"))
    try:
        yield fleet
    finally:
        fleet.close()


@pytest.fixture
def use_session(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Return a function that lets the commands of modules use the session of the tests."""

    @contextmanager
    def session(*_: object) -> Iterator[SparkSession]:
        yield spark

    def use(*commands: ModuleType) -> None:
        for each in commands:
            monkeypatch.setattr(each, "session", session)

    return use
