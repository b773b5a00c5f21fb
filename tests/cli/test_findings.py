"""Findings of `wanderbus check` about snapshots: one for each thing that can be wrong."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from wanderbus.cli.monitor.findings import (
    FINDINGS_MAX,
    Finding,
    Level,
    Thresholds,
    findings_of,
    quarantine_findings,
    worst,
)
from wanderbus.cli.monitor.snapshot import ServerState, Snapshot
from wanderbus.operator_rows import (
    DomainInfo,
    EngineInfo,
    LimitInfo,
    MetricInfo,
    ProcessInfo,
    QueueInfo,
    ServerInfo,
    UnreadInfo,
)

DAY_S = 86_400
GIB = 2**30
WELL = ServerState(
    at_us=0,
    process=ProcessInfo("s1", "0.1.0", 0, 1),
    metrics=(MetricInfo("disk_free_bytes", value=50.0 * GIB), MetricInfo("disk_full", value=0.0)),
    servers=(ServerInfo("s2", is_linked=True, is_settled=True), ServerInfo("s3", is_linked=None)),
    domains=(DomainInfo("beta", is_linked=True), DomainInfo("gamma", is_in_turn=False)),
    engines=(EngineInfo("spark", "answers"),),
)
EMPTY = QueueInfo("sip:ann@x", "default", 0, None, 10_000, 2**26, None)


def found(thresholds: Thresholds | None = None, **changed: Any) -> list[Finding]:
    """Findings about a server that is well but for what was changed."""
    of_snapshot = {name: changed.pop(name) for name in ("certificate_s", "log_warnings") if name in changed}
    state = replace(WELL, **changed)
    return findings_of([Snapshot("here", state, **of_snapshot)], thresholds or Thresholds())


def kinds(findings: Sequence[Finding]) -> list[tuple[str, Level]]:
    return [(each.kind, each.level) for each in findings]


def metric(name: str, value: float, *labels: str) -> MetricInfo:
    return MetricInfo(name, labels, value)


def queue(state: str = "not_read", **of_subscription: Any) -> QueueInfo:
    values = {"queued": 3, "oldest_s": 5.0, "blocked_s": None} | of_subscription
    return replace(EMPTY, unread_subscriptions=(UnreadInfo("s-1", state, **values),))


def test_nothing_of_a_server_that_is_well() -> None:
    assert found() == []
    assert found(certificate_s=15.0 * DAY_S) == []
    assert worst([]) is Level.OK


def test_server_without_an_answer() -> None:
    (finding,) = findings_of([Snapshot("s1", None, "no route")], Thresholds())
    assert (finding.kind, finding.level) == ("no_answer", Level.CRITICAL)
    assert "no route" in finding.text


def test_server_that_refuses_the_user() -> None:
    (finding,) = findings_of([Snapshot("s1", None, "no such user", is_refused=True)], Thresholds())
    assert (finding.kind, finding.level) == ("refused", Level.UNKNOWN)
    assert "operator" in finding.remedy


@pytest.mark.parametrize(
    ("free", "level"), [(2**28 - 1, Level.CRITICAL), (2**28, Level.WARNING), (GIB - 1, Level.WARNING), (GIB, None)]
)
def test_disk_with_little_room(free: int, level: Level | None) -> None:
    findings = found(metrics=(metric("disk_free_bytes", free),))
    assert kinds(findings) == ([] if level is None else [("disk", level)])


def test_disk_that_is_full() -> None:
    findings = found(metrics=(metric("disk_free_bytes", 1), metric("disk_full", 1)))
    assert kinds(findings) == [("disk", Level.CRITICAL)]
    assert "full" in findings[0].text


def test_reader_of_the_log_that_is_behind() -> None:
    lags = (metric("log_reader_lag", 1_000_001, "lake"), metric("log_reader_lag", 1_000_000, "other"))
    findings = found(metrics=lags)
    assert kinds(findings) == [("log_reader", Level.WARNING)]
    assert "lake" in findings[0].text
    assert found(Thresholds(reader_behind=2_000_000), metrics=lags) == []


def test_warning_about_the_log() -> None:
    (finding,) = found(log_warnings=("the reader x has expired",))
    assert (finding.kind, finding.text) == ("log", "the reader x has expired")


@pytest.mark.parametrize(
    ("left_days", "level"), [(-1, Level.CRITICAL), (0, Level.CRITICAL), (13.9, Level.WARNING), (14, None)]
)
def test_certificate_that_expires(left_days: float, level: Level | None) -> None:
    assert kinds(found(certificate_s=left_days * DAY_S)) == ([] if level is None else [("certificate", level)])


def test_link_to_another_server() -> None:
    findings = found(servers=(ServerInfo("s2", trouble="timeout"),))
    assert kinds(findings) == [("server_link", Level.CRITICAL)]
    assert "s2: timeout" in findings[0].text


@pytest.mark.parametrize(
    "other",
    [
        ServerInfo("s2", is_linked=True, is_settled=False),
        ServerInfo("s2", is_linked=None, is_settled_here=False),
    ],
)
def test_servers_that_have_not_exchanged_their_interest(other: ServerInfo) -> None:
    assert kinds(found(servers=(other,))) == [("server_unsettled", Level.WARNING)]


@pytest.mark.parametrize(
    "domain",
    [DomainInfo("beta"), DomainInfo("beta", is_in_turn=False, trouble="refused")],
)
def test_link_to_another_domain(domain: DomainInfo) -> None:
    assert kinds(found(domains=(domain,))) == [("domain_link", Level.WARNING)]


def test_events_that_another_domain_has_lost() -> None:
    findings = found(domains=(DomainInfo("beta", is_linked=True, lost=7),))
    assert kinds(findings) == [("domain_lost", Level.WARNING)]
    assert "7 events" in findings[0].text


def test_matching_engine_that_is_away() -> None:
    findings = found(engines=(EngineInfo("spark", "away", away_s=300.0, reason="no socket"),))
    assert kinds(findings) == [("engine", Level.CRITICAL)]
    assert "for 5 min" in findings[0].text
    assert "no socket" in findings[0].text


def test_matching_engine_that_is_behind() -> None:
    assert kinds(found(engines=(EngineInfo("spark", "answers", records_behind=10_001),))) == [("engine", Level.WARNING)]
    assert found(engines=(EngineInfo("spark", "answers", records_behind=10_000),)) == []


@pytest.mark.parametrize(
    "full",
    [
        {"notifications": 8_000},
        {"queued_bytes": 2**26},
        {"age_max_s": 100.0, "oldest_s": 80.0},
    ],
)
def test_queue_near_a_bound(full: dict[str, Any]) -> None:
    findings = found(queues=(replace(EMPTY, **full),))
    assert kinds(findings) == [("queue_bound", Level.WARNING)]
    assert "ann@x default" in findings[0].text
    assert found(Thresholds(queue_share=1.1), queues=(replace(EMPTY, **full),)) == []


def test_queue_without_bounds() -> None:
    assert found(queues=(QueueInfo("sip:ann@x", "s", 10**9, 1e9, None, None, None),)) == []


def test_queue_that_nobody_reads() -> None:
    assert kinds(found(queues=(queue(oldest_s=float(DAY_S)),))) == [("unread", Level.WARNING)]
    assert found(queues=(queue(oldest_s=DAY_S - 1.0),)) == []
    assert found(queues=(queue(oldest_s=None),)) == []


def test_window_that_has_been_full_for_long() -> None:
    findings = found(queues=(queue("window_full", blocked_s=60.0),))
    assert kinds(findings) == [("window_full", Level.WARNING)]
    assert found(queues=(queue("window_full", blocked_s=59.0, oldest_s=2.0 * DAY_S),)) == []


def test_limits_that_were_applied_recently() -> None:
    rows = (
        LimitInfo("flood.requests_per_s", "192.0.2.1", 4, "too fast", 900.0, 299.0),
        LimitInfo("flood.requests_per_s", "192.0.2.2", 3, "the last", 20.0, 2.0),
        LimitInfo("logins.free_failures", "sip:bob@x", 9, "long ago", 9_000.0, 301.0),
        LimitInfo("broker.queue", "others", 5, "not counted one by one"),
    )
    (finding,) = found(limits=rows)
    assert (finding.kind, finding.level) == ("limit", Level.WARNING)
    assert "flood.requests_per_s was applied 7 times to 1 other and 192.0.2.2, last 2.0 s ago: the last" in finding.text
    assert len(found(Thresholds(recent_s=1_000), limits=rows)) == 2
    assert found(Thresholds(recent_s=1), limits=rows) == []


def test_server_that_drains() -> None:
    assert kinds(found(metrics=(metric("draining", 1),))) == [("draining", Level.WARNING)]


def test_server_with_more_sessions_than_are_looked_at() -> None:
    assert kinds(found(is_cut=True)) == [("cut", Level.UNKNOWN)]


def test_quarantine_of_a_lake() -> None:
    findings = list(quarantine_findings("lake", {"events": 2, "moves": 0}))
    assert kinds(findings) == [("quarantine", Level.WARNING)]
    assert "the table events rejected 2 rows" in findings[0].text


def test_bound_of_findings_of_one_kind() -> None:
    findings = found(queues=[queue(oldest_s=2.0 * DAY_S)] * 250)
    assert len(findings) == FINDINGS_MAX + 1
    assert findings[-1].text == "240 more findings of this kind"


def test_worst_finding_comes_first_and_decides() -> None:
    findings = found(is_cut=True, servers=(ServerInfo("s2", trouble="x"),), metrics=(metric("draining", 1),))
    assert [each.level for each in findings] == [Level.CRITICAL, Level.UNKNOWN, Level.WARNING]
    assert worst(findings) is Level.CRITICAL
    assert worst(findings[1:]) is Level.UNKNOWN
    assert worst(findings[2:]) is Level.WARNING


def test_exit_statuses_that_programs_for_monitoring_expect() -> None:
    assert {each.name: int(each) for each in Level} == {"OK": 0, "WARNING": 1, "CRITICAL": 2, "UNKNOWN": 3}
