"""Lineage has the form of OpenLineage, by the classes that its project makes of its JSON schema (SPEC T-03)."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import attrs
import msgspec
import pytest
from openlineage.client.generated import base
from openlineage.client.generated.dataset_version_dataset import DatasetVersionDatasetFacet
from openlineage.client.generated.error_message_run import ErrorMessageRunFacet
from openlineage.client.generated.output_statistics_output_dataset import OutputStatisticsOutputDatasetFacet
from openlineage.client.generated.schema_dataset import SchemaDatasetFacet
from pyspark.sql import SparkSession

from tests.log_files import write_records
from tests.spark.lake.conftest import START_US, departure
from tests.spark.operation.conftest import records
from wanderbus.pipeline.lake import Ingestion
from wanderbus.pipeline.lineage import LINEAGE_FILE, LineageRun, recorded
from wanderbus.pipeline.operation.backfill import backfill
from wanderbus.pipeline.operation.log_run import PipelineFailed
from wanderbus.pipeline.operation.run import PipelineRun
from wanderbus.pipeline.operation.status import lake_status
from wanderbus.pipeline.tables import RECORDS, named

pytestmark = pytest.mark.spark

STANDARD: Final[Mapping[str, type]] = {
    "errorMessage": ErrorMessageRunFacet,
    "outputStatistics": OutputStatisticsOutputDatasetFacet,
    "schema": SchemaDatasetFacet,
    "version": DatasetVersionDatasetFacet,
}
KINDS: Final[Mapping[str, type]] = {
    "facets": base.DatasetFacet,
    "inputFacets": base.InputDatasetFacet,
    "outputFacets": base.OutputDatasetFacet,
}


def check(event: dict[str, Any]) -> None:
    """Raise if an event has an item that the schema does not have, lacks one, or has one of another type."""
    converted(event, base.RunEvent)
    converted(event["job"], base.Job)
    converted(event["run"], base.Run)
    for name, facet in event["run"].get("facets", {}).items():
        check_facet(name, facet, base.RunFacet)
    for side, kind in (("inputs", base.InputDataset), ("outputs", base.OutputDataset)):
        for dataset in event[side]:
            converted(dataset, kind)
            for key in KINDS.keys() & dataset.keys():
                for name, facet in dataset[key].items():
                    check_facet(name, facet, KINDS[key])


def check_facet(name: str, facet: dict[str, Any], kind: type) -> None:
    if name.startswith("wanderbus_"):
        assert facet["_schemaURL"] == kind._get_schema()  # type: ignore[attr-defined]
        msgspec.convert(facet, kind)
        return
    assert issubclass(STANDARD[name], kind), name
    converted(facet, STANDARD[name])
    assert facet["_schemaURL"] == STANDARD[name]._get_schema()  # type: ignore[attr-defined]


def converted(value: dict[str, Any], kind: type) -> None:
    """Raise unless ``value`` has exactly the items of a class of the specification."""
    assert value.keys() <= {field.name for field in attrs.fields(kind)}, kind
    assert {"_producer", "_schemaURL"} <= value.keys() or not issubclass(kind, base.BaseFacet)
    msgspec.convert(value, kind)


@pytest.fixture(scope="module")
def lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a lake with a run that ended, one that failed, and a backfill; its log and its copy are beside it."""
    work = tmp_path_factory.mktemp("lineage")
    lake = work / "lake"
    written = [*records(4), departure(4, START_US, Delay="late"), departure(5, START_US)]
    log = write_records(work / "log", written, durable=5)
    PipelineRun(spark, log, lake, lineage_copy=work / "copy.jsonl").run()
    write_records(work / "log", written)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Ingestion, "store", lambda *_: spark.sql("select raise_error('no room')").collect())
        with pytest.raises(PipelineFailed):
            PipelineRun(spark, log, lake).run()
    with recorded(LineageRun(lake, "backfill", tables=[named("events")], inputs=[RECORDS])):
        backfill(spark, lake, "events", is_forced=True)
    return lake


@pytest.fixture(scope="module")
def events(lake: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (lake / LINEAGE_FILE).read_text().splitlines()]


def test_every_event_meets_the_schema(events: list[dict[str, Any]]) -> None:
    jobs = [(event["job"]["name"], event["eventType"]) for event in events]
    assert jobs == [
        *(("run", "START"), ("run", "COMPLETE"), ("run", "START"), ("run", "FAIL")),
        *(("backfill", "START"), ("backfill", "COMPLETE")),
    ]
    for event in events:
        check(event)
        assert event["schemaURL"] == base.RunEvent._get_schema()
    standard = {name for event in events for each in event["outputs"] for key in KINDS for name in each.get(key, ())}
    assert {*STANDARD} <= standard | events[3]["run"]["facets"].keys(), "every facet is in some event"


@pytest.mark.parametrize(
    "spoil",
    [
        lambda event: event.update(eventType="ENDED"),
        lambda event: event["run"].update(runId="1"),
        lambda event: event["job"].pop("namespace"),
        lambda event: event.update(more=1),
        lambda event: event["outputs"][0]["facets"]["version"].update(datasetVersion=1),
        lambda event: event["outputs"][0]["facets"]["schema"]["fields"][0].pop("name"),
        lambda event: event["outputs"][0]["facets"]["schema"].pop("_producer"),
        lambda event: event["outputs"][0]["outputFacets"]["outputStatistics"].update(rows=1),
        lambda event: event["outputs"][0]["facets"].update(event["outputs"][0]["outputFacets"]),
        lambda event: event["outputs"][0]["facets"].update(invented=event["outputs"][0]["facets"]["version"]),
    ],
)
def test_the_check_finds_what_is_wrong(events: list[dict[str, Any]], spoil: Callable[[dict[str, Any]], None]) -> None:
    event = json.loads(json.dumps(events[1]))
    check(event)
    spoil(event)
    with pytest.raises((AssertionError, KeyError, msgspec.ValidationError)):
        check(event)


def test_a_run_names_its_offsets_and_its_tables(lake: Path, events: list[dict[str, Any]]) -> None:
    start, complete, _, failed, *_ = events
    copy = (lake.parent / "copy.jsonl").read_text()
    assert (lake / LINEAGE_FILE).read_text().startswith(copy)
    assert start["run"]["runId"] == complete["run"]["runId"] != failed["run"]["runId"]
    assert (start["outputs"], complete["job"]["namespace"]) == ([], "wanderbus")
    (source,) = complete["inputs"]
    assert (source["name"], source["inputFacets"]["wanderbus_offsets"]["end"]) == (str(lake.parent / "log"), 5)
    table = next(each for each in complete["outputs"] if each["name"].endswith("silver/events"))
    assert table["outputFacets"]["outputStatistics"]["rowCount"] == 4
    assert table["outputFacets"]["outputStatistics"]["size"] > 0
    found = table["facets"]["schema"]["fields"]
    assert ("Delay", "bigint") in [(each["name"], each["type"]) for each in found]
    quality = table["facets"]["wanderbus_quality"]
    assert quality["misfits"] == lake_status(lake, 6).tables[1].misfits == 1
    assert {"assertion": "no_rows_rejected", "success": True} in quality["assertions"]
    assert "no room" in failed["run"]["facets"]["errorMessage"]["message"]
