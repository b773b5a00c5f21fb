"""Write the arithmetic of limits into docs/SECURITY.md: what sources, strangers and users can take at most.

The bounds are the defaults of the settings; what one thing costs was measured (``./do bench limits``) and stands here.
With --check only say whether the page is up to date.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from wanderbus.access.connect_pacing import BURST
from wanderbus.limits import FORWARDED_BYTES_MAX, HELD_BYTES_MAX, MERGE_WORK_MAX, USER_MERGE_WORK_PER_S_MAX
from wanderbus.mobility.session.uas_invite import SESSIONS_MAX
from wanderbus.parameters.broker import BrokerConfig
from wanderbus.parameters.signalling import FloodLimits, LoginLimits
from wanderbus.parameters.transports import DATA_STREAM_LIMITS, RudpConfig, StreamLimits, TcpConfig
from wanderbus.refusal_table import ENTRIES_MAX
from wanderbus.runtime.net.descriptors import RESERVED, SHARES
from wanderbus.sip.proxy.location import AORS_MAX, BINDINGS_PER_AOR_MAX
from wanderbus.sip.transaction.flood_limits import REQUEST_BYTES
from wanderbus.sip.transaction.transaction_layer import TRANSACTIONS_MAX
from wanderbus.sip.transaction.transaction_places import PLACE_BYTES, SOURCE_PART, STRANGERS_PART

PAGE: Final = Path(__file__).resolve().parents[1] / "docs" / "SECURITY.md"
BEGIN: Final = "<!-- The following is written by tools/limits.py. -->"
END: Final = "<!-- Up to here it is written by tools/limits.py. -->"


class Costs(NamedTuple):
    """Costs: the maximum of three runs of ``./do bench limits`` on a busy machine, in microseconds and bytes."""

    challenged_us: float = 340
    call_us: float = 530
    called_broker_us: float = 910
    wrong_password_us: float = 470
    too_early_us: float = 420
    over_flood_us: float = 13
    data_datagram_us: float = 18
    tcp_connection_us: float = 50
    tls_handshake_us: float = 1_350
    tcp_over_limit_us: float = 40
    source_bytes: float = 1_000
    failed_login_bytes: float = 2_650
    tcp_connection_bytes: float = 3_100
    partial_ratio: float = 1.3
    """Bytes of memory for each byte of a message that is not complete."""

    tls_connection_bytes: float = 48_300
    refusal_bytes: float = 700
    waiting_event_bytes: float = 1_020
    """Bytes of memory for each waiting event, besides its own bytes."""

    waiting_ratio: float = 2.1
    """Bytes of memory for each byte of events that wait."""


class Row(NamedTuple):
    """One line of a table."""

    what: str
    bound: str
    comes_to: str


COST: Final = Costs()
FLOOD, LOGINS, SIP, DATA = FloodLimits(), LoginLimits(), StreamLimits(), DATA_STREAM_LIMITS
BROKER, RUDP, TCP = BrokerConfig(), RudpConfig(), TcpConfig()
SIP_SOCKETS: Final = 2
"""Sockets for SIP: one of registrar and proxy, and one of the broker."""

WORK_NS: Final = 10.0
"""Nanoseconds of a unit of work of filters and patterns (decisions 0046, 0112)."""

SESSION_MS: Final = 10.0
"""Milliseconds of processor time to open and close a session (`./do hostile churn`)."""

SIP_MESSAGE_BYTES: Final = 2**16
"""Bytes of an incomplete message over TCP."""


def mib(size: float) -> str:
    """Return bytes as MiB, or as GiB from ten of these on."""
    return f"{size / 2**30:,.1f} GiB" if size >= 10 * 2**30 else f"{size / 2**20:,.0f} MiB"


def share(per_s: float, each_us: float) -> str:
    """Return the share of one processor for ``per_s`` operations a second."""
    return f"{per_s * each_us / 1e6:.0%}"


def requests_cost(per_s: float) -> str:
    """Return the processor time of ``per_s`` requests a second, by kind."""
    return (
        f"{share(per_s, COST.challenged_us)} of a processor for REGISTERs that are challenged, "
        f"{COST.challenged_us:g} µs each; {share(per_s, COST.call_us)} for calls of nobody, {COST.call_us:g} µs; "
        f"{share(per_s, COST.call_us + COST.called_broker_us)} for calls that the broker challenges"
    )


def of_source() -> Iterator[Row]:
    """Yield the resources that one source can use."""
    for what, per_s, burst, names in (
        (
            "requests at registrar and proxy, and at the broker",
            FLOOD.stranger_requests_per_s,
            FLOOD.stranger_burst_requests,
            "stranger_",
        ),
        ("the same, if a user authenticated there within a day", FLOOD.requests_per_s, FLOOD.burst_requests, ""),
    ):
        yield Row(
            what,
            f"`flood.{names}requests_per_s` {per_s:g}, after `flood.{names}burst_requests` {burst:,.0f}; one for each "
            f"{REQUEST_BYTES:,} bytes",
            f"{requests_cost(per_s)}; {per_s * REQUEST_BYTES / 1e6:.1f} MB/s",
        )
    yield Row(
        "requests above the limit",
        f"dropped unread, {COST.over_flood_us:g} µs each; `flood.refusals_per_s` {FLOOD.refusals_per_s:g} answered",
        f"{share(10_000, COST.over_flood_us)} of a processor for 10,000/s",
    )
    yield Row(
        "wrong passwords",
        f"`logins.source_failures` {LOGINS.source_failures:g}, then one each {LOGINS.source_recovery_s:g} s; earlier "
        "ones count as other requests",
        f"{COST.wrong_password_us:g} µs each, and {COST.too_early_us:g} µs if it comes too early",
    )
    places = TRANSACTIONS_MAX * STRANGERS_PART * SOURCE_PART
    yield Row(
        "SIP transactions, at the proxy and at the broker",
        f"{places:,.0f} places of {PLACE_BYTES:,} bytes",
        f"{mib(2 * places * 2 * PLACE_BYTES)}: request and answer, at both",
    )
    yield Row(
        "connections of SIP, at registrar and at broker",
        f"`sip_connections.connections_per_host_max` {SIP.connections_per_host_max}, for `silent_s_max` "
        f"{SIP.silent_s_max:g} s without an answer; one message each of {SIP_MESSAGE_BYTES:,} bytes",
        f"{SIP_SOCKETS * SIP.connections_per_host_max} descriptors, "
        f"{mib(SIP_SOCKETS * SIP.connections_per_host_max * partial_connection_bytes())}",
    )
    yield Row(
        "connections of data channels",
        f"`data_connections.connections_per_host_max` {DATA.connections_per_host_max}, closed after "
        f"`tcp_channels.hello_s_max` {TCP.hello_s_max:g} s without a proof",
        f"{DATA.connections_per_host_max} descriptors, "
        f"{mib(DATA.connections_per_host_max * COST.tls_connection_bytes)}; a connection over the limit is "
        f"{COST.tcp_over_limit_us:g} µs",
    )
    yield Row(
        "TLS handshakes, at each port",
        f"`connections_per_s` {DATA.connections_per_s:g}, after `burst_connections` {DATA.burst_connections:g}; "
        f"`handshakes_max` {DATA.handshakes_max} at once",
        f"{share(DATA.connections_per_s, COST.tls_handshake_us)} of a processor, {COST.tls_handshake_us:,.0f} µs each; "
        f"{mib(DATA.handshakes_max * COST.tls_connection_bytes)} for handshakes that never end",
    )
    yield Row(
        "datagrams with unknown connection ids",
        "no bound: each costs one table lookup",
        f"{share(10_000, COST.data_datagram_us)} of a processor for 10,000/s",
    )


def of_strangers() -> Iterator[tuple[Row, float]]:
    """Yield the resources that all strangers together can use, and the memory."""
    per_s = FLOOD.strangers_requests_per_s
    yield (
        Row(
            "requests at registrar and proxy, and at the broker",
            f"`flood.strangers_requests_per_s` {per_s:g}, after {FLOOD.strangers_burst_requests:,.0f}",
            requests_cost(per_s),
        ),
        0.0,
    )
    per_socket = SIP.connections_max
    size = SIP_SOCKETS * per_socket * partial_connection_bytes()
    yield (
        Row(
            "connections of SIP, at registrar and at broker",
            f"`sip_connections.connections_max` {per_socket:,} each, and no more than a {SHARES}th of the open files "
            f"but {RESERVED}",
            f"{SIP_SOCKETS * per_socket:,} descriptors, {mib(size)}",
        ),
        size,
    )
    size = DATA.connections_max * COST.tls_connection_bytes
    yield (
        Row(
            "connections of data channels",
            f"`data_connections.connections_max` {DATA.connections_max:,}, so too",
            f"{DATA.connections_max:,} descriptors, {mib(size)}",
        ),
        size,
    )
    places = TRANSACTIONS_MAX * STRANGERS_PART
    size = SIP_SOCKETS * places * 2 * PLACE_BYTES
    yield (
        Row(
            "SIP transactions, at the proxy and at the broker",
            f"{places:,.0f} places of {PLACE_BYTES:,} bytes: a quarter of {TRANSACTIONS_MAX:,}",
            f"{mib(size)}; answered ones are removed for new ones",
        ),
        size,
    )
    size = FLOOD.sources_max * COST.source_bytes
    yield Row("tracked sources", f"`flood.sources_max` {FLOOD.sources_max:,}", mib(size)), size
    size = 2 * LOGINS.entries_max * COST.failed_login_bytes
    yield (
        Row(
            "failed logins, at registrar and at broker",
            f"`logins.entries_max` {LOGINS.entries_max:,} users, sources and pairs",
            mib(size),
        ),
        size,
    )
    size = ENTRIES_MAX * COST.refusal_bytes
    yield Row("limited parties", f"{ENTRIES_MAX:,} rows of `wanderbus limits`", mib(size)), size


def of_user() -> Iterator[tuple[Row, float]]:
    """Yield the resources that one user can use, and the memory."""
    queue, notifications = BROKER.queue, BROKER.queue.notifications_max or 0
    size = BROKER.user_queued_bytes_max * COST.waiting_ratio
    size += BROKER.sessions_max * notifications * COST.waiting_event_bytes
    yield (
        Row(
            "what waits",
            f"`broker.sessions_max` {BROKER.sessions_max} x `broker.queue` of {notifications:,} notifications and "
            f"{mib(queue.bytes_max or 0)}; `broker.user_queued_bytes_max` {mib(BROKER.user_queued_bytes_max)} in all",
            f"{mib(size)}: {COST.waiting_ratio:g} bytes of memory for each byte, and "
            f"{COST.waiting_event_bytes:,.0f} for each event",
        ),
        size,
    )
    size = BROKER.user_devices_max * min(BROKER.device_unacknowledged_bytes_max, RUDP.send_queue_bytes_max)
    yield (
        Row(
            "what is on its way",
            f"`broker.user_devices_max` {BROKER.user_devices_max} x `broker.device_unacknowledged_bytes_max` "
            f"{mib(BROKER.device_unacknowledged_bytes_max)}",
            f"{mib(size)}, of what waits too; who takes nothing at all loses the connection",
        ),
        size,
    )
    size = BROKER.user_filter_bytes_max
    yield (
        Row(
            "filters",
            f"`broker.user_subscriptions_max` {BROKER.user_subscriptions_max:,}, `broker.user_filter_bytes_max`",
            mib(size),
        ),
        size,
    )
    yield (
        Row(
            "filters of advertisements",
            f"`broker.user_advertisements_max` {BROKER.user_advertisements_max}, `broker.user_filter_bytes_max` again",
            mib(size),
        ),
        size,
    )
    yield from processor_of_user()
    remembered = 2 * BROKER.user_devices_max * BROKER.publishes_remembered
    size = remembered * 240
    yield (
        Row(
            "publishes that are recognised when repeated",
            f"2 x `broker.user_devices_max` x `broker.publishes_remembered` {BROKER.publishes_remembered:,}",
            f"{mib(size)}: {remembered:,} of 240 bytes",
        ),
        size,
    )
    yield from of_user_in_domain()
    yield (
        Row(
            "calls, connections, Contacts",
            f"`broker.user_devices_max`; {BINDINGS_PER_AOR_MAX} Contacts",
            f"{BROKER.user_devices_max} descriptors over TCP, {BROKER.user_devices_max} transactions",
        ),
        0.0,
    )


def of_user_in_domain() -> Iterator[tuple[Row, float]]:
    """Yield what one user can use in a domain of several servers, and the memory."""
    size = BROKER.user_devices_max * FORWARDED_BYTES_MAX * COST.waiting_ratio
    yield (
        Row(
            "publishes on their way to other servers of a domain",
            f"`broker.user_devices_max` x `limits.FORWARDED_BYTES_MAX` {mib(FORWARDED_BYTES_MAX)}",
            f"{mib(size)}: {COST.waiting_ratio:g} bytes of memory for each byte",
        ),
        size,
    )
    size = 2 * BROKER.user_devices_max * HELD_BYTES_MAX * COST.waiting_ratio
    yield (
        Row(
            "publishes that wait at a leader until it knows who wants them",
            f"2 x `broker.user_devices_max` x `limits.HELD_BYTES_MAX` {HELD_BYTES_MAX // 1024} KiB",
            f"{mib(size)}: {COST.waiting_ratio:g} bytes of memory for each byte",
        ),
        size,
    )


def processor_of_user() -> Iterator[tuple[Row, float]]:
    """Yield what one user can take of the processor."""
    yield (
        Row(
            "work of filters",
            f"`broker.user_filter_work_per_s` {BROKER.user_filter_work_per_s:,.0f} units of about {WORK_NS:g} ns; "
            f"`broker.user_event_filter_work_max` {BROKER.user_event_filter_work_max:,} for one event; both again for "
            "advertisements, where they are required",
            f"{share(2 * BROKER.user_filter_work_per_s, WORK_NS / 1e3)} of a processor; "
            f"{2 * BROKER.user_event_filter_work_max * WORK_NS / 1e6:g} ms for one event",
        ),
        0.0,
    )
    yield (
        Row(
            "work of comparing and merging filters",
            f"`limits.MERGE_WORK_MAX` {MERGE_WORK_MAX:,} units for each filter, beside the pace of "
            "`broker.user_filter_characters_per_s`; `limits.USER_MERGE_WORK_PER_S_MAX` "
            f"{USER_MERGE_WORK_PER_S_MAX:,} for filters that publishing agents ask for",
            f"{MERGE_WORK_MAX * WORK_NS / 1e6:g} ms for one filter; "
            "half a percent of a processor for those that agents ask for",
        ),
        0.0,
    )
    yield (
        Row(
            "work of patterns",
            f"`broker.user_pattern_work_per_s` {BROKER.user_pattern_work_per_s:,.0f} units; `broker.pattern_work_max` "
            f"{BROKER.pattern_work_max:,} for one event; the rest is done later",
            f"{share(BROKER.user_pattern_work_per_s, WORK_NS / 1e3)} of a processor; "
            f"{BROKER.pattern_work_max * WORK_NS / 1e6:g} ms for one event",
        ),
        0.0,
    )
    yield (
        Row(
            "sessions that are opened and closed",
            f"`broker.user_connects_per_s` {BROKER.user_connects_per_s:g} sessions a second of about "
            f"{SESSION_MS:g} ms, {BURST:g} at once",
            f"{share(BROKER.user_connects_per_s, SESSION_MS * 1e3)} of a processor",
        ),
        0.0,
    )


def of_users() -> Iterator[tuple[Row, float]]:
    """Yield the resources that all users together can use, and the memory."""
    size = BROKER.queued_bytes_max * COST.waiting_ratio
    yield (
        Row(
            "what waits",
            f"`broker.queued_bytes_max` {mib(BROKER.queued_bytes_max)}; the longest queue gives way",
            f"{mib(size)} of memory",
        ),
        size,
    )
    yield (
        Row(
            "devices in a call with the broker",
            f"{SESSIONS_MAX:,} (`user_agent.SESSIONS_MAX`)",
            f"{SESSIONS_MAX:,} x what one has on its way",
        ),
        0.0,
    )
    yield Row("registered users", f"{AORS_MAX:,} x {BINDINGS_PER_AOR_MAX} Contacts", "on disk and in memory"), 0.0


def partial_connection_bytes() -> float:
    """Return the memory of a TCP connection that has received nearly a whole message."""
    return COST.tcp_connection_bytes + COST.partial_ratio * SIP_MESSAGE_BYTES


def table(title: str, rows: list[Row], memory: float | None = None) -> str:
    """Return a table of Markdown, and a line with the sum of memory."""
    lines = [f"**{title}**", "", "| what | bound | comes to |", "|---|---|---|"]
    lines += [f"| {row.what} | {row.bound} | {row.comes_to} |" for row in rows]
    if memory is not None:
        lines += ["", f"Together that is at most {mib(memory)} of memory."]
    return "\n".join([*lines, ""])


def section() -> str:
    """Return the text between the two marks."""
    strangers, user, users = list(of_strangers()), list(of_user()), list(of_users())
    parts = [
        BEGIN,
        "",
        table("One source: an IPv4 address or a /64 of IPv6", list(of_source())),
        table("All strangers", [row for row, _ in strangers], sum(size for _, size in strangers)),
        table("One user", [row for row, _ in user], sum(size for _, size in user)),
        table("All users", [row for row, _ in users]),
        END,
    ]
    return "\n".join(parts)


def main(arguments: list[str]) -> int:
    """Write the page, or compare it with ``--check``; return the exit status."""
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    written = before + section() + after
    if "--check" not in arguments:
        PAGE.write_text(written, encoding="utf-8")
    elif written != text:
        print("docs/SECURITY.md is not what the settings say: run tools/limits.py", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
