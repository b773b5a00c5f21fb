"""``wanderbus pattern follow``: detections in a growing log, published once whatever is killed (SPEC T-07, S-06)."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from faults.process_tree import descendants, kill, named
from tests.cli.pipeline_jobs import wait_for, wait_until_gone
from tests.cli.shell import Shell
from tests.log_files import write_records
from wanderbus.cli.application import run
from wanderbus.cli.connection_options import ConnectionOptions
from wanderbus.cli.pattern.detection_publisher import BATCH_FILE, DetectionPublisher
from wanderbus.errors import Refused, StorageError
from wanderbus.event import Event
from wanderbus.patterns import Detection, StepEvent
from wanderbus.pipeline.source.log_files import LogFiles, read_slice
from wanderbus.records import Published, decode_record
from wanderbus.runtime.segment_files import durable_end

PATTERN = (
    "pattern turned by k match A: turn (phase == 1) then B: turn (phase == 2) within 1 hour emit turned with k = A.k"
)
ENDED_S_MAX = 200.0


def published(shell: Shell, subject: str = "turned") -> list[Event]:
    """Return the events of a subject in the log of the server."""
    log = shell.directory / "data" / "log"
    files, found = LogFiles(log), list[Event]()
    for part in files.slices(files.oldest(), durable_end(log), 1_000):
        for group in read_slice(part):
            records = [decode_record(payload) for payload in group.payloads if payload]
            found += [each.event for each in records if isinstance(each, Published) and each.event.subject == subject]
    return found


def detection(number: int) -> Detection:
    return Detection("turned", "[1]", number, (StepEvent("A", number, f"s-1-{number}"),), "turned", {"k": number})


DETECTIONS = [detection(number) for number in range(20)]


class Killed(Exception):
    pass


class Dying(DetectionPublisher):
    """A publisher that ends after it has stored some events."""

    stores = 0

    async def _is_stored(self, event: Event) -> bool:
        if self.stores == 0:
            raise Killed
        self.stores -= 1
        return await super()._is_stored(event)


def connection(shell: Shell) -> ConnectionOptions:
    return ConnectionOptions(user="sip:alice@localhost", password="secret", server=f"127.0.0.1:{shell.port}")


@pytest.mark.integration
def test_a_batch_that_is_repeated_is_published_once_wherever_the_first_attempt_ended(shell: Shell) -> None:
    shell.up()
    for stores in (0, 1, 19, 20):
        directory = shell.directory / f"checkpoint{stores}"
        dying = Dying(connection(shell), directory)
        dying.stores = stores
        with dying:
            if stores < 20:
                with pytest.raises(Killed):
                    dying.publish(3, DETECTIONS)
            else:
                dying.publish(3, DETECTIONS)
        with DetectionPublisher(connection(shell), directory) as again:
            again.publish(3, DETECTIONS)
            again.publish(4, DETECTIONS[:1])
            again.publish(5, [])
            again.publish(4, DETECTIONS[:1])
    numbers = [each["k"] for each in published(shell)]
    assert numbers == [*range(20), 0] * 4
    first = published(shell)[0]
    assert (first["detection"], first["events"], first.published_us) == (detection(0).id, ["s-1-0"], 0)


@pytest.mark.integration
def test_an_outbox_that_is_not_that_of_the_batch_is_refused(shell: Shell) -> None:
    shell.up()
    directory = shell.directory / "checkpoint"
    with DetectionPublisher(connection(shell), directory) as publisher:
        publisher.publish(3, DETECTIONS)
        with pytest.raises(StorageError, match="begin with a new checkpoint"):
            publisher.publish(2, DETECTIONS)
    (directory / "outbox.db").unlink()
    with (
        DetectionPublisher(connection(shell), directory) as publisher,
        pytest.raises(StorageError, match="is not of this outbox"),
    ):
        publisher.publish(3, DETECTIONS)
    (directory / BATCH_FILE).write_text("{")
    with (
        DetectionPublisher(connection(shell), directory) as publisher,
        pytest.raises(StorageError, match="is damaged"),
    ):
        publisher.publish(3, DETECTIONS)
    assert [each["k"] for each in published(shell)] == list(range(20))


@pytest.mark.integration
def test_a_detection_that_cannot_be_published_is_reported(shell: Shell, capsys: pytest.CaptureFixture[str]) -> None:
    shell.up()
    wrong = Detection("turned", "[1]", 1, (StepEvent("A", 1, "s-1-1"),), "turned", {"k": [1] * 2_000})
    publisher = DetectionPublisher(connection(shell), shell.directory / "checkpoint")
    with pytest.raises(Refused, match="refused 1 detections; the first: attribute 'k' lists more"), publisher:
        publisher.publish(3, [wrong, *DETECTIONS])
    assert f"{wrong.id} is not published: attribute 'k'" in capsys.readouterr().err
    assert len(published(shell)) == 20


@pytest.mark.parametrize("subject", ["turn", "*"])
def test_a_pattern_that_would_find_its_own_detections_is_not_published(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], subject: str
) -> None:
    text = f"match A: other then B: {subject} (k == 1) within 1 hour emit turn"
    log = write_records(tmp_path / "log", [])
    arguments = ["--log", str(log), "--checkpoint", str(tmp_path / "c"), "--publish", "--user", "sip:a@b"]
    assert run(["pattern", "follow", text, *arguments]) == 2
    assert "would find its own detections, which have the subject 'turn'" in capsys.readouterr().err
    assert not (tmp_path / "c").exists()


def test_once_has_no_pause(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--log", str(tmp_path), "--checkpoint", str(tmp_path / "c"), "--once", "--every", "2"]
    assert run(["pattern", "follow", PATTERN, *arguments]) == 2
    assert "--once ends at the present end of the log" in capsys.readouterr().err


@pytest.mark.spark
@pytest.mark.integration
def test_detections_are_published_once_though_driver_and_worker_are_killed(shell: Shell) -> None:
    shell.up()
    publisher = shell.start("pub", "turn", "-", *shell.as_user(), stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    publish(publisher, range(40))
    given = ["--log", "data", "--checkpoint", "checkpoint", "--every", "0.1", "--rows-per-batch", "30", "--publish"]
    given += [*shell.as_user("bob", "hunter2")[:-2], "--json"]
    first = shell.start("pattern", "follow", PATTERN, *given)
    wait_for(lambda: len(published(shell)) > 0, first)
    left = descendants(first.pid)
    first.kill()
    publish(publisher, range(40, 60))
    second = shell.start("pattern", "follow", PATTERN, *given)
    wait_for(lambda: has(shell, publisher, 60), second)
    wait_for(lambda: kill_worker(second.pid), second)
    publish(publisher, range(60, 80))
    wait_for(lambda: has(shell, publisher, 80), second)
    second.send_signal(signal.SIGINT)
    out, err = second.communicate(timeout=ENDED_S_MAX)
    assert (second.returncode, "Traceback" in err) == (0, False), err
    said = [line for line in err.splitlines() if line.strip()]
    assert all(line.startswith("wanderbus: ") for line in said), err
    assert any(re.fullmatch(r"wanderbus: record \d+, \d+ records/s, \d+ behind", line) for line in said), err
    assert sorted(each["k"] for each in published(shell)) == list(range(80))
    printed = [json.loads(line)["attributes"]["k"] for line in out.splitlines()]
    assert len(set(printed)) == len(printed) >= 20
    wait_until_gone(left)


def publish(publisher: subprocess.Popen[str], keys: Sequence[int], phases: Sequence[int] = (1, 2)) -> None:
    assert publisher.stdin is not None
    publisher.stdin.writelines(f'{{"k": {key}, "phase": {phase}}}\n' for phase in phases for key in keys)
    publisher.stdin.flush()


def has(shell: Shell, publisher: subprocess.Popen[str], count: int) -> bool:
    """Let the watermark move; return whether so many detections were published."""
    publish(publisher, [-1], [0])
    time.sleep(0.2)
    return len(published(shell)) >= count


def kill_worker(pid: int) -> bool:
    """Kill a Python process of Spark's that has no child: a worker, not what starts them. Return whether one lived."""
    workers = [each for each in named(descendants(pid), "python") if not descendants(each)]
    kill(workers[:1])
    return bool(workers)
