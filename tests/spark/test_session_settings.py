"""Each setting of the session holds, and matters where it can be seen."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark import SparkContext
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from wanderbus.pipeline import session
from wanderbus.pipeline.cluster import connection
from wanderbus.pipeline.cluster.connection import ENVIRONMENT
from wanderbus.pipeline.session import SETTINGS, spark_session

pytestmark = pytest.mark.spark

PREFIX = "spark.sql.streaming."
START_S = 1_700_000_000


@contextmanager
def changed(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Change settings of a session for the block."""
    before = {name: spark.conf.get(name) for name in settings}
    try:
        for name, value in settings.items():
            spark.conf.set(name, value)
        yield
    finally:
        for name, kept in before.items():
            spark.conf.set(name, kept or "")


class Waiting(StatefulProcessor):
    """Reports a user who has done A and nothing for a minute."""

    fields = "first bigint"

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        self._state = handle.getValueState("waiting", self.fields)

    def values(self, row: Row) -> tuple[Any, ...]:
        return (row["us"],)

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803
        for row in rows:
            if row["action"] == "A":
                self._state.update(self.values(row))
                self._handle.registerTimer(row["us"] // 1_000 + 60_000)
        return iter(())

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:  # noqa: N802, N803
        values = self._state.get()
        assert values is not None
        yield Row(user=key[0], first=values[0])

    def close(self) -> None:
        pass


class WaitingLonger(Waiting):
    """The same with one more field in its state."""

    fields = "first bigint, place string"

    def values(self, row: Row) -> tuple[Any, ...]:
        return (row["us"], "here")


def run(spark: SparkSession, work: Path, rows: list[tuple[str, str, int]], processor: StatefulProcessor) -> list[Any]:
    """Run an available-now query with timers over rows of (user, action, second); return all results so far."""
    table = spark.createDataFrame(rows, "user string, action string, s bigint")
    table.selectExpr("user", "action", "timestamp_seconds(s) ts").coalesce(1).write.mode("append").parquet(
        str(work / "in")
    )
    stream = spark.readStream.schema("user string, action string, ts timestamp").parquet(str(work / "in"))
    stream = stream.withWatermark("ts", "1 second").withColumn("us", F.unix_micros("ts"))
    found = stream.groupBy("user").transformWithState(
        statefulProcessor=processor, outputStructType="user string, first bigint", outputMode="Append",
        timeMode="EventTime",
    )  # fmt: skip
    query = (
        found.writeStream.format("parquet")
        .option("path", str(work / "out"))
        .option("checkpointLocation", str(work / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return sorted(
        tuple(row) for row in spark.read.schema("user string, first bigint").parquet(str(work / "out")).collect()
    )


def test_timers_fire_at_the_end_of_an_available_now_query(spark: SparkSession, tmp_path: Path) -> None:
    """Needs protobuf, RocksDB and batches without data; the state's fields may change later because of avro."""
    assert run(spark, tmp_path, [("u", "A", START_S), ("w", "x", START_S + 300)], Waiting()) == [("u", START_S * 10**6)]
    assert list((tmp_path / "checkpoint" / "state").rglob("*.changelog")), "changes are uploaded, not whole snapshots"
    rows = [("v", "A", START_S + 400), ("w", "x", START_S + 900)]
    wanted = [("u", START_S * 10**6), ("v", (START_S + 400) * 10**6)]
    assert run(spark, tmp_path, rows, WaitingLonger()) == wanted


def test_without_batches_without_data_the_timers_would_not_fire(spark: SparkSession, tmp_path: Path) -> None:
    with changed(spark, {PREFIX + "noDataMicroBatches.enabled": "false"}):
        assert run(spark, tmp_path, [("u", "A", START_S), ("w", "x", START_S + 300)], Waiting()) == []


def test_variants_are_written_unshredded(spark: SparkSession, tmp_path: Path) -> None:
    """Readers other than Spark know the two columns of a plain variant only."""
    variants = spark.range(100).selectExpr("parse_json(concat('{\"a\":', id, '}')) v").coalesce(1)
    variants.write.parquet(str(tmp_path / "plain"))
    assert columns_of(tmp_path / "plain") == {"v.value", "v.metadata"}
    shredding = {"spark.sql.variant.writeShredding.enabled": "true", "spark.sql.variant.inferShreddingSchema": "true"}
    with changed(spark, shredding):
        variants.write.parquet(str(tmp_path / "shredded"))
    assert columns_of(tmp_path / "shredded") > {"v.value", "v.metadata"}


def columns_of(table: Path) -> set[str]:
    [file] = table.glob("*.parquet")
    return {column.path for column in pq.ParquetFile(file).schema}


def test_pandas_is_made_of_arrow(spark: SparkSession) -> None:
    """Without Arrow every row would be pickled; the plan of Java shows no difference, the types do."""
    assert spark.conf.get("spark.sql.execution.arrow.pyspark.enabled") == "true"
    table: Any = spark.range(3).toPandas()
    assert str(table["id"].dtype) == "int64"


def test_every_setting_is_in_force(spark: SparkSession) -> None:
    known = {name: spark.conf.get(name, None) for name in SETTINGS}
    assert known == dict(SETTINGS)


class Builder:
    """Takes the place of Spark's builder, and notes what it was given."""

    def __init__(self) -> None:
        self.values: dict[str, str] = {}
        self.launch_options: str | None = None

    def master(self, master: str) -> Builder:
        self.values["master"] = master
        return self

    def appName(self, name: str) -> Builder:  # noqa: N802
        return self

    def config(self, name: str, value: str) -> Builder:
        self.values[name] = value
        return self

    def getOrCreate(self) -> Any:  # noqa: N802
        self.values["PYSPARK_PYTHON"] = os.environ["PYSPARK_PYTHON"]
        self.values["working directory"] = str(Path.cwd())
        self.launch_options = os.environ.get("SPARK_SUBMIT_OPTS")
        raise Started


class Started(Exception):
    """Spark would have started."""


@pytest.fixture
def builder(monkeypatch: pytest.MonkeyPatch) -> Builder:
    made = Builder()

    class Session:
        builder = made

    monkeypatch.setattr(session, "SparkSession", Session)
    monkeypatch.setattr(session, "check_master", lambda master: None)
    monkeypatch.setattr(SparkContext, "_gateway", None)
    monkeypatch.setattr(connection, "_directories", [])
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "PYTHONPATH", "SPARK_LOCAL_IP", "SPARK_SUBMIT_OPTS"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    return made


def test_java_reads_the_results_of_workers_without_the_checks_of_arrow(spark: SparkSession) -> None:
    arrow = spark.sparkContext._jvm.org.apache.arrow  # type: ignore[union-attr]
    assert not arrow.memory.BoundsChecking.BOUNDS_CHECKING_ENABLED
    assert not arrow.vector.NullCheckingForGet.NULL_CHECKING_ENABLED


def test_on_a_cluster_nothing_names_this_machine(builder: Builder) -> None:
    here = Path.cwd()
    with pytest.raises(Started):
        spark_session(
            master="spark://elsewhere:7077", environment="hdfs:///e.tar.gz", settings={"spark.cores.max": "8"}
        )
    assert Path.cwd() == here
    values = builder.values
    directory = Path(values.pop("working directory"))
    assert (values["master"], values["spark.cores.max"]) == ("spark://elsewhere:7077", "8")
    assert values["spark.archives"] == f"hdfs:///e.tar.gz#{ENVIRONMENT}"
    assert values["PYSPARK_PYTHON"] == f"./{ENVIRONMENT}/bin/python"
    assert (directory / values["PYSPARK_PYTHON"]).exists(), "the driver plans with the same name"
    own = [name for name, value in values.items() if "127.0.0.1" in value or "localhost" in value or "/home" in value]
    own += [name for name, value in values.items() if str(here) in value or str(Path(session.__file__).parent) in value]
    assert own == []
    assert builder.launch_options == f"-Dlog4j2.configurationFile={log_settings().as_uri()}", "of this Java alone"
    assert not {"SPARK_LOCAL_IP", "SPARK_SUBMIT_OPTS"} & set(os.environ)
    assert "PYTHONPATH" not in os.environ


def log_settings() -> Path:
    return Path(session.__file__).with_name("log4j2.properties")


def test_a_second_session_on_a_cluster_starts_where_its_java_runs(builder: Builder) -> None:
    for _ in range(2):
        with pytest.raises(Started):
            spark_session(master="spark://elsewhere:7077", environment="hdfs:///e.tar.gz")
        found = builder.values["working directory"]
        SparkContext._gateway = object()
        assert found == connection._directories[0].name
    assert len(connection._directories) == 1


def test_a_cluster_without_an_environment_runs_its_own_python(builder: Builder) -> None:
    with pytest.raises(Started):
        spark_session(master="spark://elsewhere:7077")
    assert builder.values["PYSPARK_PYTHON"] == "python3"
    assert "spark.archives" not in builder.values


def test_on_this_machine_the_session_listens_on_loopback(builder: Builder) -> None:
    with pytest.raises(Started):
        spark_session(cores=3)
    values = builder.values
    assert values["master"] == "local[3]"
    assert values["spark.driver.host"] == values["spark.driver.bindAddress"] == "127.0.0.1"
    assert values["PYSPARK_PYTHON"] == sys.executable
