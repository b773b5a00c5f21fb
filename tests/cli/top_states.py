"""States of a server for the tests of `wanderbus top`: two snapshots, two seconds apart."""

from __future__ import annotations

from typing import Any

from wanderbus.cli.monitor.snapshot import ServerState
from wanderbus.operator_rows import (
    DeviceInfo,
    DomainInfo,
    DurationsInfo,
    MetricInfo,
    ProcessInfo,
    QueueInfo,
    ServerInfo,
    SessionInfo,
)

START_US = 1_000_000_000
ANN, BEN, CLEO = "sip:ann@x", "sip:ben@x", "sip:cleo@x"


def session(user: str, status: str = "CONNECTED", *, queued: int = 0, delivered: int = 0, **more: Any) -> SessionInfo:
    return SessionInfo(user, "default", status, 1, queued, delivered, **more)


def metrics(**values: float) -> list[MetricInfo]:
    return [MetricInfo(name, value=value) for name, value in values.items()]


def state(at_s: float, *sessions: SessionInfo, more: Any = (), **of_state: Any) -> ServerState:
    queues = [QueueInfo(each.user, each.session, each.queued, 3.0 * each.queued or None, 9, 9, 9) for each in sessions]
    values = {"metrics": list(more), "queues": queues} | of_state
    return ServerState(
        at_us=START_US + int(at_s * 1e6),
        process=ProcessInfo("s1", "0.1.0", START_US, 1),
        sessions=sessions,
        **values,
    )


def first() -> ServerState:
    return state(
        10,
        session(ANN, delivered=100, acknowledgements=DurationsInfo(50_000, {10: 100})),
        session(BEN, "DISCONNECTED", queued=7, devices=(DeviceInfo("d-1", "DISCONNECTED", None, 30.0, 0),)),
        session(CLEO, delivered=5, queued=2, dropped={"queue_full": 1}),
        more=[
            *metrics(events_accepted_total=1_000, events_arrived_total=10, matches_delivered_total=105),
            MetricInfo("matches_dropped_total", ("queue_full",), 1),
            MetricInfo("absence_seconds", durations=DurationsInfo(4_000_000, {22: 1})),
            MetricInfo("acknowledgement_seconds", durations=DurationsInfo(50_000, {10: 100})),
        ],
    )


def second(**of_state: Any) -> ServerState:
    return state(
        12,
        session(ANN, delivered=300, acknowledgements=DurationsInfo(450_000, {10: 100, 11: 200})),
        session(BEN, queued=1, delivered=6, absences=DurationsInfo(2_000_000, {21: 1})),
        session(CLEO, delivered=5, queued=9, dropped={"queue_full": 5}),
        more=[
            *metrics(events_accepted_total=1_500, events_arrived_total=10, matches_delivered_total=311),
            *metrics(matches_queued=10, queued_bytes=2_000_000, queue_oldest_seconds=27, sessions=3, subscriptions=3),
            *metrics(engine_records_behind=12),
            MetricInfo("devices", ("connected",), 3),
            MetricInfo("devices", ("disconnected",), 0),
            MetricInfo("matches_dropped_total", ("queue_full",), 5),
            MetricInfo("absence_seconds", durations=DurationsInfo(6_000_000, {22: 1, 21: 1})),
            MetricInfo("acknowledgement_seconds", durations=DurationsInfo(450_000, {10: 100, 11: 200})),
            MetricInfo("log_reader_lag", ("lake",), 44),
        ],
        servers=(ServerInfo("s2", trouble="timeout", waiting_here=3), ServerInfo("s3", is_linked=True)),
        domains=(DomainInfo("beta", is_linked=True),),
        **of_state,
    )
