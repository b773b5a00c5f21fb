"""Figures of a domain whose sessions move equal the counters of its servers, to the last match (SPEC T-08, G-21)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

import wanderbus
from harness.user_entries import followed, records_of
from tests.api.event_domain import Domain
from tests.api.world import SUBJECT, numbers, publish, run, service, until
from tests.spark.analytics.test_user_fold import counters, magnitudes, own_counters
from wanderbus.broker.state.rows import SessionRow
from wanderbus.records import AnyRecord, Replayed
from wanderbus.subscription import Frequency, QueuePolicy

pytestmark = pytest.mark.integration

ALICE = "sip:alice@localhost"
PLACES = ("s1", "s2")


async def walks(domain: Domain) -> None:
    """Let alice's session go to the other server and back, while events come, wait and are dropped."""
    async with domain.agent("s1", "bob") as bob, domain.agent("s1") as alice:
        rarely = alice.subscribe(SUBJECT, "n >= 5", keep=True, restrictions=[Frequency(3_600.0)])
        short = alice.subscribe(SUBJECT, "n >= 3", keep=True, queue=QueuePolicy(notifications_max=4))
        async with alice.subscribe(SUBJECT, "n >= 0", keep=True) as all_of_them, rarely, short:
            await publish(bob, *range(10))
            await numbers(all_of_them, 6)
            for number, place in enumerate(("s2", "s1", "s2"), 1):
                await alice.handover(place)
                await publish(bob, *range(number * 10, number * 10 + 10))
                await numbers(all_of_them, 8)
        async with domain.agent("s2"):
            await publish(bob, *range(40, 45))


def moved_rows(servers: Mapping[str, wanderbus.Server]) -> list[SessionRow]:
    """Return the rows of alice's session: that of its owner, and what others keep of it."""
    found = [row for server in servers.values() for row in service(server).broker.state.sessions_of(ALICE)]
    return sorted(found, key=lambda row: row.is_fenced)


def accepted_us(logs: Sequence[Sequence[AnyRecord]]) -> dict[int, int]:
    """Return the times of the events that came while a subscription read the last piece of a log, by notification."""
    return {
        number: each.at_us
        for record in (one for log in logs for one in log)
        if isinstance(record, Replayed) and record.user == ALICE
        for number, each in enumerate(record.events, record.first)
        if not each.is_history
    }


@pytest.mark.parametrize("model", ["ordered", "decentralised"])
def test_t08_figures_are_the_counters_of_the_servers_after_a_session_moved(tmp_path: Path, model: str) -> None:
    domain = Domain(tmp_path / "domain", 2, keys=f'model = "{model}"')

    async def story() -> list[SessionRow]:
        async with domain.server("s1") as s1, domain.server("s2") as s2:
            servers = {"s1": s1, "s2": s2}
            await walks(domain)
            await until(lambda: not any(service(each).broker.state.exports for each in servers.values()))
            return moved_rows(servers)

    own, *others = run(story())
    written = {name: records_of(domain.data_dir(name) / "log") for name in PLACES}
    logs = list(written.values())
    found, handovers, fold = followed(ALICE, written)
    assert not own.is_fenced
    counted = counters(found, own.name, accepted_us(logs))
    assert {**counted, "queued_max": 0} == {**own_counters(own), "queued_max": 0}
    assert own.generated > 60
    assert own.dropped, "a bound was met"
    assert not any(row.generated or row.queued for row in others), "nothing is counted at two servers"
    away = [each for one in fold.folds for each in one.times.absences if each.to_us is not None]
    assert magnitudes(each.to_us - each.from_us for each in away if each.to_us is not None) == own.absences
    steps = [(each.source, each.target, each.cause) for each in handovers]
    assert steps == [("s1", "s2", "user"), ("s2", "s1", "user"), ("s1", "s2", "user")]
    assert all(each.taken_us is not None and each.done_us is not None for each in handovers)
