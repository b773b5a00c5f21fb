"""Rows of sessions and devices that move to another server, from records alone (SPEC T-01, T-03)."""

from __future__ import annotations

from wanderbus.pipeline.lake.records import Payloads
from wanderbus.pipeline.lake.session_rows import session_decoder
from wanderbus.records import (
    AnyRecord,
    DeviceGone,
    ExportDropped,
    QueueContinued,
    SessionAwaited,
    SessionFenced,
    SessionImported,
    encode_record,
)

USER = "sip:alice@localhost"


def test_t01_the_steps_of_a_handover_have_its_epoch_the_other_server_the_cause_and_the_size() -> None:
    written: list[AnyRecord] = [
        SessionAwaited(at_us=1, user=USER, session="default", owner_epoch=7, source="s1", subscriptions=()),
        SessionFenced(at_us=2, user=USER, session="default", owner_epoch=7, target="s2", cause="drain"),
        SessionImported(at_us=3, user=USER, session="default", owner_epoch=7, export=b"x" * 1_000),
        QueueContinued(at_us=3, user=USER, session="default", owner_epoch=7, export=b"x" * 500),
        ExportDropped(at_us=4, user=USER, session="default"),
        DeviceGone(at_us=5, user=USER, device="phone", server="s3"),
    ]
    kinds = [str(type(each).__struct_config__.tag) for each in written]
    payloads = Payloads(range(6), [each.at_us for each in written], kinds, list(map(encode_record, written)))
    rows = session_decoder()(payloads)["sessions"]
    assert rows["kind"] == kinds
    assert rows["owner_epoch"] == [7, 7, 7, 7, None, None]
    assert rows["other_server"] == ["s1", "s2", None, None, None, "s3"]
    assert rows["reason"] == [None, "drain", None, None, None, None]
    assert rows["export_bytes"] == [None, None, 1_000, 500, None, None]
