"""Name of the domain of a lake: its servers write it beside their logs (SPEC M-01, T-03)."""

from __future__ import annotations

from pathlib import Path

import pytest

from wanderbus.errors import StorageError
from wanderbus.pipeline.lake.lake_domain import domain_in, store_domain
from wanderbus.pipeline.lake.logs import add_logs
from wanderbus.runtime.log.log_name import write_log_name


def named(directory: Path, server: str, domain: str) -> Path:
    """Return a log without records whose server has named its domain."""
    directory.mkdir(exist_ok=True)
    write_log_name(directory, server, 7, domain)
    return directory


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """The lake of the servers s1 and s2."""
    add_logs(tmp_path / "lake", ["s1-7", "s2-7"])
    return tmp_path / "lake"


def test_the_domain_of_a_lake_is_the_one_that_its_logs_name(lake: Path, tmp_path: Path) -> None:
    assert domain_in(lake) == ""
    unnamed = tmp_path / "earlier"
    store_domain(lake, [unnamed, named(tmp_path / "s1", "s1", "a.example")])
    assert domain_in(lake) == "a.example"
    store_domain(lake, [unnamed])
    assert domain_in(lake) == "a.example"
    store_domain(lake, [named(tmp_path / "s1", "s1", "b.example")])
    assert domain_in(lake) == "b.example", "its operator has renamed it"


def test_a_log_of_another_lake_does_not_name_the_domain(lake: Path, tmp_path: Path) -> None:
    store_domain(lake, [named(tmp_path / "s3", "s3", "a.example")])
    assert domain_in(lake) == ""


def test_logs_of_two_domains_make_no_lake(lake: Path, tmp_path: Path) -> None:
    logs = [named(tmp_path / "s1", "s1", "a.example"), named(tmp_path / "s2", "s2", "b.example")]
    with pytest.raises(StorageError, match=r"s1 is of a\.example and .*s2 is of b\.example; make a lake for each"):
        store_domain(lake, logs)


def test_a_damaged_name_of_the_domain_is_one_line(lake: Path) -> None:
    (lake / "_domain").write_bytes(b"\xff")
    with pytest.raises(StorageError, match="_domain is damaged; remove it"):
        domain_in(lake)
