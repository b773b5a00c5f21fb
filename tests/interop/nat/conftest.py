"""The little internet that all tests of a file share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from harness.internet import Internet
from tests.interop.nat.places import HOSTS, ROUTERS
from tests.interop.nat.stage import Stage
from wanderbus.testbed import CannotRunError

SetStage = Callable[..., AbstractContextManager[Stage]]


@pytest.fixture(scope="module")
def internet() -> Iterator[Internet]:
    """Four NAT routers, and hosts to plug in; skips where there can be no namespaces."""
    built = Internet("wbnat", ROUTERS, HOSTS)
    try:
        built.open()
    except CannotRunError as error:
        pytest.skip(f"no network namespaces: {error}")
    yield built
    built.close()


@pytest.fixture
def set_stage(internet: Internet, tmp_path: Path) -> SetStage:
    """:meth:`Stage.set` on it."""

    def start(**given: Any) -> AbstractContextManager[Stage]:
        return Stage.set(internet, tmp_path, **given)

    return start
