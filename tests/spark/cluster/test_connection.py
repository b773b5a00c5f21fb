"""Errors of a session on a cluster are one line, before Spark starts."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from pyspark import SparkContext

from tests.log_files import write_records
from wanderbus.cli.application import run
from wanderbus.errors import ConfigurationError
from wanderbus.pipeline.cluster import connection
from wanderbus.pipeline.cluster.connection import check_master, cluster_settings, python_of_workers


@pytest.mark.parametrize("master", ["", "spark:/host:7077", "spark://host", "spark://host:", "mesos://host:1", "spark"])
def test_an_invalid_master_is_refused(master: str) -> None:
    with pytest.raises(ConfigurationError, match=r"invalid master"):
        check_master(master)


@pytest.mark.parametrize("master", ["yarn", "k8s://https://elsewhere:6443"])
def test_other_clusters_are_found_by_spark(master: str) -> None:
    check_master(master)


def test_a_master_that_does_not_answer_is_refused() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        check_master(f"spark://127.0.0.1:{port}")
    with pytest.raises(ConfigurationError, match=rf"the master spark://127.0.0.1:{port} does not answer: .*refused"):
        check_master(f"spark://127.0.0.1:{port}")


def test_one_of_several_masters_is_enough() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_server(("127.0.0.1", 0)) as other:
        unused = other.getsockname()[1]
        other.close()
        check_master(f"spark://127.0.0.1:{unused},127.0.0.1:{server.getsockname()[1]}")


def test_an_environment_is_an_existing_file_or_an_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert cluster_settings(None) == {}
    assert cluster_settings("s3a://bucket/e.tgz") == {"spark.archives": "s3a://bucket/e.tgz#environment"}
    with pytest.raises(ConfigurationError, match=r"e.tar.gz does not exist; make it with: wanderbus pipeline environ"):
        cluster_settings("e.tar.gz")
    (tmp_path / "e.tar.gz").touch()
    assert cluster_settings("e.tar.gz") == {"spark.archives": f"{tmp_path}/e.tar.gz#environment"}
    with pytest.raises(ConfigurationError, match=r"e.zip must end with .tar.gz or .tgz"):
        cluster_settings("e.zip")


def test_a_process_with_spark_on_this_machine_cannot_use_a_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    """Java would look for the environment in the directory in which it was started."""
    monkeypatch.setattr(connection, "_directories", [])
    monkeypatch.setattr(SparkContext, "_gateway", object())
    with (
        pytest.raises(ConfigurationError, match=r"Spark already runs in this process"),
        python_of_workers("e.tar.gz", Path("/log4j2.properties")),
    ):
        raise AssertionError("the block must not run")


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--environment", "e.tar.gz"], "wanderbus: --environment is for a cluster; give --master too"),
        (
            ["--master", "here"],
            "wanderbus: invalid master 'here' (expected spark://HOST:PORT, yarn, k8s://... or local",
        ),
    ],
)
def test_commands_refuse_a_place_that_cannot_be(
    arguments: list[str], line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = write_records(tmp_path / "log", [])
    assert run(["history", "count", "", "--log", str(log), *arguments]) == 2
    assert capsys.readouterr().err.startswith(line)
