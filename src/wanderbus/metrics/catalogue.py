"""Every metric that exists: docs/metrics.md is made from this catalogue, and no part may report another one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from wanderbus.metrics import Metric

_BROKER: Final = (
    Metric("events_accepted_total", "counter", "Events that publishers got accepted here."),
    Metric("events_arrived_total", "counter", "Events that other servers accepted and sent here."),
    Metric("matches_generated_total", "counter", "Notifications for one subscription each that were put into queues."),
    Metric("matches_delivered_total", "counter", "Those that a device has acknowledged."),
    Metric("matches_dropped_total", "counter", "Those that left the queue undelivered, by reason.", ("reason",)),
    Metric("matches_restricted_total", "counter", "Notifications that a restriction suppressed before the queue."),
    Metric("acknowledgement_seconds", "histogram", "Time from a notification until a device acknowledged it."),
    Metric("absence_seconds", "histogram", "Time for which a device was away, once it is back or removed."),
    Metric("records_total", "counter", "Records written to the event log, by kind.", ("kind",)),
    Metric("matches_queued", "gauge", "Notifications that wait in queues."),
    Metric("queued_bytes", "gauge", "Bytes of the events that wait in queues; each counts once in a session."),
    Metric("queue_longest", "gauge", "Notifications that wait in the longest queue of a session."),
    Metric("queue_oldest_seconds", "gauge", "Age of the oldest notification that waits in a queue."),
    Metric("sessions", "gauge", "Sessions that this server has."),
    Metric("subscriptions", "gauge", "Live subscriptions of these sessions."),
    Metric("devices", "gauge", "Devices of these sessions, by their status.", ("status",)),
    Metric("links", "gauge", "Open data channels to agents, and those to other servers."),
    Metric("draining", "gauge", "1 while all sessions move to other servers, else 0."),
    Metric("disk_full", "gauge", "1 while new events and subscriptions are refused because the disk is full, else 0."),
    Metric("filtering_examined_total", "counter", "Events that a phase of filtering has examined.", ("phase",)),
    Metric("filtering_held_back_total", "counter", "Those that it held back because nobody wants them.", ("phase",)),
    Metric("engine_up", "gauge", "1 while the matching engine answers, else 0; absent without one."),
    Metric("engine_records_behind", "gauge", "Records up to the last event that waits for the matching engine."),
)

_LINKS: Final = (
    Metric("rudp_total", "counter", "Packets of reliable UDP, and what happened to them.", ("event",)),
    Metric("tcp_total", "counter", "Connections and messages of data channels over TCP, and their fate.", ("event",)),
    Metric("channels_refused_total", "counter", "Data channels that were refused, by reason.", ("reason",)),
    Metric("server_up", "gauge", "1 while another server of the domain can be reached, else 0.", ("server",)),
    Metric("server_waiting", "gauge", "Events for another server that it has not acknowledged.", ("server",)),
    Metric("server_unsettled", "gauge", "1 while not all interest of this server counts there, else 0.", ("server",)),
    Metric("sessions_leaving", "gauge", "Sessions on their way to another server.", ("server",)),
    Metric("sessions_arriving", "gauge", "Sessions that are awaited from another server.", ("server",)),
    Metric("domain_up", "gauge", "1 while the link to another domain is in use, else 0.", ("domain",)),
    Metric("domain_sent_total", "counter", "Events that went to another domain.", ("domain",)),
    Metric("domain_received_total", "counter", "Events from another domain, by their fate.", ("domain", "fate")),
    Metric("domain_waiting", "gauge", "Events from another domain that are not durable here yet.", ("domain",)),
)

_PROCESS: Final = (
    Metric("build_info", "gauge", "1; the label is the version.", ("version",)),
    Metric("start_time_seconds", "gauge", "Start of the server, in seconds since the Unix epoch."),
    Metric("limit_applied_total", "counter", "Times that a limit refused, discarded or delayed.", ("limit",)),
    Metric("input_dropped_total", "counter", "Input that was discarded unread, whoever sent it.", ("part", "reason")),
    Metric("log_end", "gauge", "Offset behind the last durable record of the event log."),
    Metric("log_bytes", "gauge", "Size of the event log on disk."),
    Metric("log_reader_lag", "gauge", "Records that a registered reader has not read yet.", ("reader",)),
    Metric("disk_free_bytes", "gauge", "Free space on the disk of the data directory."),
)

_SIGNALLING: Final = (
    Metric("sip_users", "gauge", "Users with a registered device, and brokers."),
    Metric("sip_transactions", "gauge", "SIP transactions that have not ended."),
    Metric("sip_dropped_total", "counter", "SIP input that was dropped, by reason.", ("reason",)),
)

_RELAY: Final = (
    Metric("relay_calls", "gauge", "Calls that pass the media relay now."),
    Metric("relay_commands_total", "counter", "Commands of proxies, and calls, by what happened.", ("event",)),
    Metric("relay_streams_total", "counter", "Datagrams, bytes and connections of relayed streams.", ("event",)),
)

SECTIONS: Final[Mapping[str, tuple[Metric, ...]]] = {
    "Events and queues": _BROKER,
    "Links": _LINKS,
    "Process, limits and log": _PROCESS,
    "Registrar and proxy": _SIGNALLING,
    "Media relay": _RELAY,
}
"""All metrics, by the section of the document."""

CATALOGUE: Final[Mapping[str, Metric]] = {each.name: each for section in SECTIONS.values() for each in section}
"""All metrics by name."""
