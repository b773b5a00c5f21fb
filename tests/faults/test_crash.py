"""``./do crash``: real processes that are really killed; and a verdict that finds inserted faults."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from faults import crash
from faults.agents import DOMAIN, Role
from faults.kill_options import INTERRUPTED, kill_options
from faults.reckoning import reckon
from faults.verdict import Verdict
from tests.published import published as record_of
from wanderbus import records
from wanderbus.event import Event, EventId
from wanderbus.runtime.files.server_files import ServerFiles
from wanderbus.subscription import Subscription


@pytest.mark.integration
def test_kills_lose_nothing(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    assert crash.main(["--cycles", "5", "--federated", "--seed", "5", "--json", str(report), "--strict"]) == 0
    written = json.loads(report.read_text())
    assert {goal["name"] for goal in written["goals"]} == {
        *("lost", "repeated", "out_of_order", "integrity_errors"),
        *("seam_lost", "seam_repeated"),
    }
    assert written["results"][0]["cycles"] == 5
    assert written["results"][0]["acknowledged"] > 0
    assert written["results"][0]["removed"] > 0


def left(directory: Path, *, published: list[int], told: list[str], taken: list[str]) -> Verdict:
    """Create the files of a run, and compute the verdict; event N is at offset N - 1 in the log."""
    files = ServerFiles.open(directory / "data")
    files.log.append(
        [
            (
                offset,
                1,
                records.encode_record(
                    record_of(
                        Event("Trade", {"by": "p1", "n": n}),
                        at_us=1,
                        user="sip:p1@localhost",
                        device="p1",
                        epoch=1,
                        number=offset + 1,
                    )
                ),
            )
            for offset, n in enumerate(published)
        ]
    )
    files.log.sync()
    files.close()
    publisher = Role("p1", "p1", str(directory), "")
    consumer = Role("c1", "c1", str(directory), "", "everything")
    publisher.journal.write_text("".join(f"sent {n}\n" for n in range(1, 9)) + "".join(f"{line}\n" for line in told))
    consumer.journal.write_text("".join(f"took 1 {line}\n" for line in taken))
    verdict = Verdict()
    reckon(verdict, directory / "data", [publisher], [consumer])
    return verdict


GOOD_TOLD = ["acknowledged 1 0", "acknowledged 2 1"]
GOOD_TAKEN = ["1 0", "2 1", "3 2"]


@pytest.mark.parametrize(
    ("published", "told", "taken", "kind"),
    [
        ([1, 2, 3], GOOD_TOLD, GOOD_TAKEN, None),
        ([1, 3, 2], GOOD_TOLD, GOOD_TAKEN, "lost"),
        ([1, 2, 3], [*GOOD_TOLD, "acknowledged 4 3"], GOOD_TAKEN, "lost"),
        ([1, 2, 2], GOOD_TOLD, GOOD_TAKEN, "repeated"),
        ([2, 1, 3], ["acknowledged 1 1", "acknowledged 2 0"], GOOD_TAKEN, "out_of_order"),
        ([1, 2, 99], GOOD_TOLD, GOOD_TAKEN, "integrity_errors"),
        ([1, 2, 3], GOOD_TOLD, ["1 0", "3 2"], "lost"),
        ([1, 2, 3], GOOD_TOLD, ["1 0", "2 1", "2 1", "3 2"], "repeated"),
        ([1, 2, 3], GOOD_TOLD, ["1 0", "2 2", "3 1"], "out_of_order"),
        ([1, 2, 3], GOOD_TOLD, ["1 0", "2 1", "3 2", "4 gap"], "lost"),
    ],
)
def test_the_reckoning_complains(
    tmp_path: Path, published: list[int], told: list[str], taken: list[str], kind: str | None
) -> None:
    verdict = left(tmp_path, published=published, told=told, taken=taken)
    assert verdict.good if kind is None else verdict.counts[kind] > 0, verdict.words  # type: ignore[index]


def test_a_damaged_log_is_an_integrity_error(tmp_path: Path) -> None:
    left(tmp_path, published=[1, 2, 3], told=[], taken=[])
    segment = next((tmp_path / "data" / "log").glob("*.seg"))
    data = bytearray(segment.read_bytes())
    data[60] ^= 1
    segment.write_bytes(data)
    verdict = Verdict()
    assert reckon(verdict, tmp_path / "data", [], []) == {}
    assert verdict.counts["integrity_errors"] >= 1


def test_events_that_the_server_still_holds_are_waiting_unless_agents_had_time_to_take_them(tmp_path: Path) -> None:
    user = f"sip:c1@{DOMAIN}"

    def event(offset: int, number: int = 0, engine: str = "") -> records.Published:
        notified = (records.Notified(user, "default", number, ("s",)),) if number else ()
        published = record_of(
            Event("Trade", {"by": "p1", "n": offset}), number=offset, id=EventId("wb", 1, offset), notified=notified
        )
        return msgspec.structs.replace(published, engine=engine)

    written: list[records.Record] = [
        records.Subscribed(at_us=0, subscription=Subscription("s", user, "default", "Trade", ""), number=1),
        records.Attached(at_us=0, user=user, session="default", device="c1", epoch=1),
        event(2, 1),  # taken
        event(3, 2),  # acknowledged, but never taken
        event(4, 3),  # in the queue
        records.Acknowledged(at_us=0, user=user, session="default", device="c1", number=2),
        event(6, engine=records.SPARK),
        event(7, engine=records.SPARK),
    ]
    files = ServerFiles.open(tmp_path / "data")
    files.log.append([(offset, 0, records.encode_record(record)) for offset, record in enumerate(written)])
    files.log.sync()
    files.close()
    consumer = Role("c1", "c1", str(tmp_path), "", "everything")
    consumer.journal.write_text("took 1 1 2\n")
    for is_settled, lost, waiting in ((False, 1, 3), (True, 4, 0)):
        verdict = Verdict()
        totals = reckon(verdict, tmp_path / "data", [], [consumer], is_settled=is_settled)
        assert (verdict.counts["lost"], totals["waiting"]) == (lost, waiting), verdict.words


class Interrupted(crash.Run):
    """A run without processes, which is interrupted in its third cycle."""

    number = signal.SIGINT
    loss = False

    async def _begin(self) -> None:
        ServerFiles.open(self.data).close()

    async def _cycle(self) -> None:
        if self.done == 2:
            if self.loss:
                self.verdict.broken("lost", "an event")
            signal.raise_signal(self.number)
            await asyncio.sleep(60)


class Terminated(Interrupted):
    """A run that SIGTERM ends."""

    number = signal.SIGTERM


class Losing(Interrupted):
    """A run that is interrupted after a loss."""

    loss = True


@pytest.fixture
def ignored_sigint() -> Iterator[None]:
    """Ignore SIGINT, as a shell does for what a script starts with ``&``."""
    former = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    yield
    for number, handler in former.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("ignored_sigint")
@pytest.mark.parametrize(("kind", "status"), [(Interrupted, INTERRUPTED), (Terminated, INTERRUPTED), (Losing, 1)])
def test_an_interrupted_run_is_judged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: type[crash.Run], status: int
) -> None:
    arguments = ["--cycles", "9", "--json", str(tmp_path / "report.json")]
    options = kill_options(
        arguments, "crash", "", victim="server", cycles=1, limit_s=60.0, failures="losses", may_be_federated=True
    )
    assert crash.conduct(kind, options) == status
    assert "interrupted: 2 of 9 cycles" in capsys.readouterr().out
    report = json.loads((tmp_path / "report.json").read_text())
    result = report["results"][0]
    assert (result["cycles"], result["cycles_asked"], result["interrupted"]) == (2, 9, True)
    assert {goal["name"]: goal["value"] for goal in report["goals"]}["lost"] == (status == 1)
