"""A trace of a call that moves, and its exports by ``wanderbus sip ladder`` for other tools (SPEC U-06)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tests.sip.test_pcap import moved
from tests.sip.trace_world import moving_call
from wanderbus.cli.application import run
from wanderbus.runtime.files.trace_file import TraceFile
from wanderbus.runtime.net.sip_trace import SipRecorder
from wanderbus.sip.message.targets import Transport
from wanderbus.sip.trace.trace import Trace
from wanderbus.sip.trace.trace_entry import TraceEntry
from wanderbus.sip.trace.trace_messages import TracedMessage, traced_messages

DIALOGS, CALLS = 3, 1
"""Two users register, and one of them calls the other."""


def traced_call(path: Path, transport: Transport, prefix: str = "") -> list[TracedMessage]:
    """Write the trace of the call over ``transport`` to ``path``; return its messages. A ``prefix`` makes it IPv6."""
    trace = Trace()
    recorder = SipRecorder(trace, TraceFile.open(path))
    for each in moved(moving_call(), transport, prefix):
        recorder.record(each)
    recorder.close()
    entries: Sequence[TraceEntry] = list(trace)
    return traced_messages(entries)


def export(trace: Path, *options: object) -> None:
    """Run ``wanderbus sip ladder`` on ``trace``; it has to go well."""
    assert run(["sip", "ladder", str(trace), *map(str, options)]) == 0
