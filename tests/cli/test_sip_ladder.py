"""``wanderbus sip ladder`` (SPEC U-06)."""

from __future__ import annotations

import json
import signal
import socket
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from tests.cli.shell import WAIT_S, Shell, ended, one_line, read_error, read_line, read_ready
from tests.sip.trace_world import moving_call, secrets_of
from wanderbus.cli.application import run
from wanderbus.errors import ConfigurationError
from wanderbus.runtime.files.trace_file import GrowingTrace, TraceFile
from wanderbus.runtime.net.sip_trace import SipRecorder
from wanderbus.sip.trace.trace import Trace

MESSAGES = 28


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("trace") / "trace.jsonl"
    recorder = SipRecorder(Trace(), TraceFile.open(path))
    for each in moving_call():
        recorder.record(each)
    recorder.close()
    return path


def ladder_lines(capsys: pytest.CaptureFixture[str], *arguments: object) -> list[str]:
    """Output of ``wanderbus sip ladder`` with these arguments; it must succeed."""
    status = run(["sip", "ladder", *map(str, arguments)])
    shown = capsys.readouterr()
    assert (status, shown.err) == (0, "")
    return shown.out.splitlines()


def test_the_ladder(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = ladder_lines(capsys, trace)
    assert lines[0].split() == ["broker", "alice", "alice"]
    assert len(lines) == 3 + MESSAGES


def test_one_call_of_one_user_for_a_while(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert all("REGISTER" not in line for line in ladder_lines(capsys, trace, "--call", "call"))
    assert "REGISTER 3" in ladder_lines(capsys, trace, "--user", "alice@example.org", "--since", 1)[3]
    lines = ladder_lines(capsys, trace, "--call", "call", "--until", 1.0, "--user", "sip:broker@example.org")
    assert "INVITE 1 SDP" in lines[3]
    assert "ACK 2" in lines[-1]


def test_payloads_and_difference(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert any(
        line.startswith("        WWW-Authenticate: Digest") for line in ladder_lines(capsys, trace, "--payloads")
    )
    lines = ladder_lines(capsys, trace, "--diff", 2, 6)
    assert "-CSeq: 1 REGISTER" in lines
    assert any(line.startswith("+Authorization: Digest username=") for line in lines)


def test_json(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [json.loads(line) for line in ladder_lines(capsys, trace, "--json")]
    assert [row["number"] for row in rows] == list(range(1, MESSAGES + 1))
    assert rows[0]["message"]["method"] == "REGISTER"
    assert rows[0]["destination"] == "10.0.0.1:5060"


def test_files_for_other_tools(trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    svg, capture = tmp_path / "x.svg", tmp_path / "x.pcap"
    assert ladder_lines(capsys, trace, "--svg", svg, "--pcap", capture) == [
        f"{svg}: {MESSAGES} messages",
        f"{capture}: {MESSAGES} messages",
    ]
    assert ElementTree.fromstring(svg.read_text()).tag.endswith("svg")
    assert capture.read_bytes()[:4] == b"\xd4\xc3\xb2\xa1"


@pytest.mark.integration
def test_hep_reaches_a_collector(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as collector:
        collector.bind(("127.0.0.1", 0))
        collector.settimeout(10)
        place = f"127.0.0.1:{collector.getsockname()[1]}"
        assert ladder_lines(capsys, trace, "--hep", place) == [f"{place}: {MESSAGES} messages sent"]
        packets = [collector.recv(65_535) for _ in range(MESSAGES)]
    assert all(packet.startswith(b"HEP3") for packet in packets)


def test_no_secret_is_printed(trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    svg, capture = tmp_path / "x.svg", tmp_path / "x.pcap"
    ladder_lines(capsys, trace, "--svg", svg, "--pcap", capture)
    options = [["--payloads"], ["--json"], *(["--diff", "1", str(number)] for number in range(1, MESSAGES + 1))]
    printed = "\n".join(line for option in options for line in ladder_lines(capsys, trace, *option)).encode()
    outputs = (printed, svg.read_bytes(), capture.read_bytes())
    assert [secret for secret in secrets_of(moving_call()) for output in outputs if secret in output] == []


def test_a_corrupt_file_is_one_line_and_status_2(
    trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    corrupt = tmp_path / "corrupt.jsonl"
    lines = trace.read_bytes().splitlines(keepends=True)
    corrupt.write_bytes(b"".join([*lines[:3], lines[3][:50] + b"\n", *lines[4:]]))
    assert run(["sip", "ladder", str(corrupt)]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith(f"wanderbus: {corrupt}, line 4: not a message of a SIP trace: ")
    assert shown.err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "status", "complaint"),
    [
        (["--call", "nobody"], 1, "no message to show"),
        (["--user", "no uri"], 2, "--user 'no uri'"),
        (["--diff", "1", "99"], 2, "numbered from 1 to 28"),
        (["--svg", "/nowhere/x.svg"], 2, "/nowhere/x.svg cannot be written: No such file"),
        (["--hep", "127.0.0.1:x"], 2, "is not host:port"),
    ],
)
def test_errors_are_one_line(
    trace: Path, arguments: list[str], status: int, complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["sip", "ladder", str(trace), *arguments]) == status
    shown = capsys.readouterr()
    assert complaint in shown.err
    assert shown.err.count("\n") == 1
    assert shown.out == ""


def test_there_has_to_be_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["sip", "ladder", str(tmp_path / "none")]) == 2
    assert (
        capsys.readouterr().err
        == f"wanderbus: the SIP trace {tmp_path / 'none'} cannot be read: No such file or directory\n"
    )


def test_a_growing_trace_is_read_from_its_end_also_into_the_next_file(tmp_path: Path) -> None:
    path, entries = tmp_path / "trace", [*moving_call()]
    writer = TraceFile.open(path, bytes_max=2_000)
    writer.write(entries[0])
    growing = GrowingTrace(path)
    assert growing.read() == []
    found = []
    for each in entries[1:]:
        writer.write(each)
        found += growing.read() or growing.read()
    assert (tmp_path / "trace.1").exists(), "the file was replaced meanwhile"
    assert [each.at_us for each in found] == [each.at_us for each in entries[1:]]
    assert not any(secret in each.data for each in found for secret in secrets_of(entries))
    with path.open("ab") as file:
        file.write(b'{"at_us":1')
    assert growing.read() == []
    writer.close()
    writer = TraceFile.open(path)  # cuts off the incomplete line
    assert growing.read() == []
    writer.write(entries[0])
    assert [each.at_us for each in growing.read()] == [entries[0].at_us]
    with path.open("ab") as file:
        file.write(b'{"at_us":1}\n')
    with pytest.raises(ConfigurationError, match="not a message"):
        growing.read()
    growing.close()
    writer.close()


@pytest.mark.parametrize(
    ("words", "reason"),
    [(("--svg", "x.svg"), "--svg is for messages that have passed"), (("--since", "0"), "--since"), ((), "cannot be")],
)
def test_following_what_cannot_be_followed_is_one_line(
    words: tuple[str, ...], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["sip", "ladder", "nowhere", "--follow", *words]) == 2
    assert reason in one_line(capsys.readouterr().err)


@pytest.mark.integration
def test_c22_messages_are_shown_as_they_pass_the_proxy(shell: Shell) -> None:
    shell.up("--sip-trace", "trace")
    follower = shell.start("sip", "ladder", "trace", "--follow", "--user", "sip:bob@localhost")
    as_json = shell.start("sip", "ladder", "trace", "--follow", "--json")
    assert read_error(follower) == "wanderbus: following trace, waiting for messages"
    assert '"status":"ready"' in read_ready(as_json)
    assert shell.run("pub", "Trade", "n=1", *shell.as_user("bob", "hunter2"))[0] == 0
    line = read_line(follower)
    assert "REGISTER" in line
    assert f"-> 127.0.0.1:{shell.port}" in line
    assert json.loads(read_line(as_json))["label"].startswith("REGISTER")
    follower.send_signal(signal.SIGINT)
    assert ended(follower)[::2] == (130, "")
    assert as_json.stdout is not None
    as_json.stdout.close()
    assert as_json.wait(WAIT_S) == 0, "a closed pipe is an ordinary end"
