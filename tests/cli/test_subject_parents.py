"""Commands on the past of a domain honour the parents of its subjects, as live subscriptions do (SPEC J-13)."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.log_files import write_records
from tests.published import published
from wanderbus.cli.application import run
from wanderbus.cli.pattern.detection_publisher import require_no_loop
from wanderbus.cli.pattern.pattern_input import with_parents
from wanderbus.cli.pipeline import past_events
from wanderbus.cli.pipeline.subject_parents import parents_for, parents_given
from wanderbus.errors import ConfigurationError, StorageError
from wanderbus.event import Event
from wanderbus.patterns import compile_pattern
from wanderbus.pipeline.lake.lake_parents import FILE, parents_in, store_parents
from wanderbus.pipeline.operation.run import PipelineRun
from wanderbus.pipeline.subject_children import children_of
from wanderbus.records import Record, Started, Subscribed
from wanderbus.runtime.files.domain_file import create_domain, data_directory
from wanderbus.subscription import Subscription

START_US = 1_700_000_000_000_000
PARENTS = {"Answer": "Position", "Reply": "Answer"}
PATTERN = "pattern twice match A: Position (n == 1) then B: Answer (n == 2) within 1 hour"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """The log of the server s1 of a domain with parents, in the directory of ``domain up``."""
    file = create_domain(tmp_path / "domain", "example.org", 1)
    file.write_text(file.read_text() + "\n[parents]\n" + "".join(f'{a} = "{b}"\n' for a, b in PARENTS.items()))
    subjects = ["Position", "Answer", "Reply", "Other", "Reply"]
    subscription = Subscription("s1-1-1", "sip:a@b", "s", "Position", "n > 1")
    records: list[Record] = [
        Started(at_us=START_US, server="s1", incarnation=1),
        Subscribed(at_us=START_US, subscription=subscription, number=1),
    ]
    records += [
        published(Event(subject, {"n": number}), number=number, at_us=START_US + number * 1_000_000)
        for number, subject in enumerate(subjects)
    ]
    return write_records(data_directory(tmp_path / "domain", "s1") / "log", records)


def test_the_parents_are_those_of_the_file_of_the_data_directory_or_of_the_lake(log: Path, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    lake.mkdir()
    assert parents_for(None, (), log) == PARENTS
    assert parents_for(None, [lake], None) == {}
    store_parents(lake, PARENTS)
    assert parents_for(None, [lake], None) == parents_in(lake) == PARENTS
    elsewhere = write_records(tmp_path / "elsewhere" / "log", [])
    assert parents_given(None, [elsewhere]) is None
    assert parents_given(tmp_path / "domain" / "domain.toml", [elsewhere]) == PARENTS
    (lake / FILE).write_text("[")
    with pytest.raises(StorageError, match="is damaged; 'wanderbus pipeline run --event-domain' writes it"):
        parents_in(lake)


def test_a_pattern_whose_detections_are_below_a_step_is_a_loop() -> None:
    pattern = compile_pattern("match A: Position then B: Answer within 1 hour emit Reply with k = A.n")
    require_no_loop(pattern)
    with pytest.raises(ConfigurationError, match="takes the subject 'Position'"):
        require_no_loop(with_parents(pattern, PARENTS))
    assert children_of(PARENTS) == {"Position": ("Answer", "Reply"), "Answer": ("Reply",)}


@pytest.mark.spark
def test_j13_the_past_has_the_matches_of_the_children_in_log_and_lake(
    use_session: Callable[..., None],
    spark: SparkSession,
    log: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    use_session(past_events)
    lake = tmp_path / "lake"
    PipelineRun(spark, log, lake, parents=parents_given(None, [log])).run()

    def lines(*arguments: str) -> list[str]:
        assert run(list(arguments)) == 0
        return capsys.readouterr().out.splitlines()

    places = (["--log", str(log.parent)], ["--lake", str(lake)])
    for where, how in product(places, ("--spark", "--no-spark")):
        for command, expected in (
            (["match", "n > 0", "--subject", "Position", "--json"], [3, 4, 6]),
            (["match", "", "--subject", "Answer", "--json"], [3, 4, 6]),
            (["sample", "n > 1", "--subject", "Position", "-n", "9", "--json"], [4, 6]),
            (["replay", "s1-1-1", "--json"], [4, 6]),
        ):
            found = [json.loads(line)["offset"] for line in lines("history", *command, *where, how)]
            assert found == expected, (command, where, how)
        assert lines("history", "count", "", "--subject", "Position", *where, how) == ["4"]
        explained = lines("history", "explain", "n > 1", "--offset", "4", "--subject", "Position", *where, how)
        assert explained[0].startswith("matches")
        assert lines("pattern", "run", PATTERN, *where)
