"""tshark opens the exported trace: every message, none malformed, the calls found, the rest of Wireshark's figures."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from tests.interop.exported import export, traced_call
from wanderbus.sip.message.targets import Transport

PROGRAM = shutil.which("tshark")

pytestmark = [
    pytest.mark.integration,
    pytest.mark.interop(peer="tshark"),
    pytest.mark.skipif(PROGRAM is None, reason="tshark is not installed: apt-get install tshark"),
    pytest.mark.parametrize("transport", ["UDP", "TCP", "TLS"]),
]

CHECKS = [part for layer in ("ip", "udp", "tcp") for part in ("-o", f"{layer}.check_checksum:TRUE")]
FIELDS = (
    "sip.Method",
    "sip.Status-Code",
    "sip.CSeq.seq",
    "sip.Call-ID",
    "sdp.media",
    "sip.to.addr",
    "frame.time_epoch",
)


def tshark(capture: Path, *options: str) -> str:
    """Output of tshark for the file, with checksums verified."""
    command = [str(PROGRAM), "-r", str(capture), *CHECKS, *options]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout


@pytest.mark.interop(scenario="dissects every message of an exported trace")
@pytest.mark.parametrize("prefix", ["", "2001:db8::"], ids=["IPv4", "IPv6"])
def test_every_message(transport: Transport, prefix: str, tmp_path: Path) -> None:
    seen = traced_call(tmp_path / "trace.jsonl", transport, prefix)
    export(tmp_path / "trace.jsonl", "--pcap", tmp_path / "call.pcap")
    asked = [part for field in FIELDS for part in ("-e", field)]
    rows = tshark(tmp_path / "call.pcap", "-Y", "sip", "-T", "fields", "-E", "separator=|", *asked).splitlines()
    assert len(rows) == len(seen)
    for row, each in zip((row.split("|") for row in rows), seen, strict=True):
        method, status, cseq, call_id, media, to, at = row
        assert (method or int(status)) == (each.sketch.method or each.sketch.status)
        assert (cseq, call_id) == (str(each.sketch.cseq).split()[0], each.sketch.call_id)
        assert bool(media) == bool(each.sketch.body)
        assert to.endswith("@example.org")
        assert round(float(at) * 1e6) == each.entry.at_us


@pytest.mark.interop(scenario="finds nothing malformed")
def test_nothing_is_malformed(transport: Transport, tmp_path: Path) -> None:
    """No checksum is wrong, and of all that its experts remark there is no warning and no error."""
    traced_call(tmp_path / "trace.jsonl", transport)
    export(tmp_path / "trace.jsonl", "--pcap", tmp_path / "call.pcap")
    bad = "_ws.malformed || _ws.expert.severity >= 0x600000 || ip.checksum.status == 0 || udp.checksum.status == 0"
    assert tshark(tmp_path / "call.pcap", "-Y", f"{bad} || tcp.checksum.status == 0 || tcp.analysis.flags") == ""
    assert tshark(tmp_path / "call.pcap", "-Y", "sip && !(sip.Call-ID && sip.Via && sip.CSeq)") == ""


@pytest.mark.interop(scenario="counts messages and sets up calls")
def test_statistics(transport: Transport, tmp_path: Path) -> None:
    """Its SIP statistics: each kind of message as often as we sent it, and the setup time of the calls."""
    seen = traced_call(tmp_path / "trace.jsonl", transport)
    export(tmp_path / "trace.jsonl", "--pcap", tmp_path / "call.pcap")
    said = tshark(tmp_path / "call.pcap", "-q", "-z", "sip,stat")
    assert f"Number of SIP messages: {len(seen)}\n" in said
    assert "Number of resent SIP messages: 0\n" in said
    counted = {name: int(count) for name, count in re.findall(r"(?m)^ +(?:SIP )?(\w+)[ \w]*: +(\d+) Packets$", said)}
    assert counted == Counter(str(each.sketch.method or each.sketch.status) for each in seen)
    assert "Average setup time" in said


@pytest.mark.interop(scenario="opens one call of a trace")
def test_one_call(transport: Transport, tmp_path: Path) -> None:
    """The export of one call contains only that call."""
    seen = traced_call(tmp_path / "trace.jsonl", transport)
    (call_id,) = {each.sketch.call_id for each in seen if each.sketch.method == "INVITE"}
    export(tmp_path / "trace.jsonl", "--call", call_id, "--pcap", tmp_path / "call.pcap")
    found = tshark(tmp_path / "call.pcap", "-Y", "sip", "-T", "fields", "-e", "sip.Call-ID").splitlines()
    assert found == [call_id] * sum(each.sketch.call_id == call_id for each in seen)
