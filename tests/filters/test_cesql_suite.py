"""The conformance suite of CESQL, where a copy of it is at hand (SPEC U-04).

It is looked for in WANDERBUS_CESQL, else in ../shared/corpora/cesql beside the project.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from wanderbus.filters import cesql

BESIDE: Final = Path(__file__).resolve().parents[3] / "shared" / "corpora" / "cesql"
SUITE: Final = Path(os.environ.get("WANDERBUS_CESQL", BESIDE))
needs_suite = pytest.mark.skipif(
    not SUITE.is_dir(), reason="no conformance suite: set WANDERBUS_CESQL to a directory with that of CESQL 1.0.0"
)

ANY_EVENT: Final = {"specversion": "1.0", "id": "1", "source": "/here", "type": "any"}


class Loader(yaml.SafeLoader):
    """YAML without its dates: the suite means texts by them."""


Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in found if tag != "tag:yaml.org,2002:timestamp"]
    for first, found in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def cases() -> list[Any]:
    return [
        pytest.param(case, id=f"{path.stem}: {case['name']}")
        for path in sorted(SUITE.glob("*.yaml"))
        for case in yaml.load(path.read_text("utf-8"), Loader)["tests"]
    ]


@needs_suite
@pytest.mark.parametrize("case", cases())
def test_the_suite_gives_the_value_and_the_error_that_it_names(case: dict[str, Any]) -> None:
    event = case.get("event", ANY_EVENT) | case.get("eventOverrides", {})
    value, error = cesql.evaluate(str(case["expression"]), event)  # YAML reads a bare TRUE or 0 as more than text
    assert error == case.get("error")
    if "result" in case:
        assert (type(value), value) == (type(case["result"]), case["result"])


@needs_suite
def test_the_suite_is_there() -> None:
    assert len(cases()) > 100
