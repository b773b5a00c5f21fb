"""A SIP server of another make and a relay beside the server: errors for missing programs, and their settings."""

from __future__ import annotations

import asyncio
import json
import socket
import sys
import threading
from pathlib import Path

import pytest

from demo import sip_and_relay
from demo.__main__ import main
from demo.network import LoopbackNetwork
from demo.sip_and_relay import RelayKind, SipAndRelay, SipServer
from harness import kamailio, media_relays, udp_probe
from harness.kamailio import Kamailio
from wanderbus.testbed import CannotRunError
from wanderbus.testbed.async_processes import Crew


@pytest.fixture(autouse=True)
def programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both are installed, as far as required."""
    monkeypatch.setattr(kamailio, "PROGRAM", "/usr/sbin/kamailio")
    monkeypatch.setattr(media_relays, "RTPENGINE", "/usr/bin/rtpengine")


def beside(tmp_path: Path, sip: SipServer, relay: RelayKind) -> SipAndRelay:
    network = LoopbackNetwork(("server", "ana"))
    passwords = {"ana": "secret"}
    return SipAndRelay(
        sip, relay, work=tmp_path, network=network, crew=Crew(tmp_path), passwords=passwords, sip_port=5070
    )


@pytest.mark.parametrize(
    ("options", "package"),
    [(["--sip", "kamailio"], "kamailio"), (["--relay", "rtpengine"], "rtpengine-daemon")],
)
def test_missing_programs_are_one_line(
    options: list[str],
    package: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(kamailio, "PROGRAM", None)
    monkeypatch.setattr(media_relays, "RTPENGINE", None)
    assert main([*options, "--report", str(tmp_path / "report.html")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("demo: cannot run: ")
    assert line.endswith(f"apt-get install --no-install-recommends {package}")


def test_a_server_of_ours_needs_nobody(tmp_path: Path) -> None:
    alone = beside(tmp_path, "wanderbus", "none")
    assert alone.arguments() == ["--port", "5070"]
    assert alone.users == {"ana": "secret"}
    asyncio.run(alone.start())
    assert asyncio.run(alone.result()) == {"sip": "wanderbus", "relay": "none", "relayed_datagrams": None}


def test_our_server_knows_the_relay(tmp_path: Path) -> None:
    assert beside(tmp_path, "wanderbus", "wanderbus").arguments()[2:] == ["--relay", "--relay-calls", "all"]
    _, _, option, place, *rest = beside(tmp_path, "wanderbus", "rtpengine").arguments()
    assert option == "--relays"
    assert place.startswith("127.0.0.1:")
    assert rest == ["--relay-calls", "all"]


@pytest.mark.parametrize("relay", sip_and_relay.RELAYS)
def test_a_broker_at_kamailio_knows_only_kamailio(tmp_path: Path, relay: RelayKind) -> None:
    with_kamailio = beside(tmp_path, "kamailio", relay)
    assert with_kamailio.arguments() == ["--sip-server", "sip:127.42.1.1:5070"]
    assert list(with_kamailio.users) == ["ana", "broker"]


def test_kamailio_is_installed_with_the_configuration_that_is_shipped(tmp_path: Path) -> None:
    site = Kamailio(
        domain="example.org",
        users={"odd": 'a"b\\c'},
        address="::1",
        port=5070,
        relays=[("127.0.0.1", 2223), ("127.0.0.2", 2223)],
    )
    command = site.install(tmp_path)
    assert str(tmp_path / "kamailio.cfg") in command
    assert (tmp_path / "kamailio.cfg").read_bytes() == kamailio.CONFIGURATION.read_bytes()
    assert (tmp_path / "kamailio-users.cfg").read_text() == '$sht(users=>odd) = "a\\"b\\\\c";\n'
    local = (tmp_path / "kamailio-local.cfg").read_text().splitlines()
    assert '#!substdef "!MY_ADDRESS![::1]!g"' in local
    assert '#!substdef "!MY_RELAYS!udp:127.0.0.1:2223 udp:127.0.0.2:2223!g"' in local
    assert "#!define WITH_RELAY" in local
    assert not {"#!define WITH_RELAY_FOR_ALL", "#!define WITH_TLS"} & set(local)


def test_the_last_words_of_an_ended_process_are_quoted(tmp_path: Path) -> None:
    async def run() -> list[str]:
        ends = beside(tmp_path, "wanderbus", "none")
        async with Crew(tmp_path) as crew:
            ends._crew = crew
            await ends._start("relay", [sys.executable, "-c", "import sys; sys.exit('no port is free')"])
            with pytest.raises(CannotRunError, match="relay had failed: no port is free"):
                await ends._ask("127.0.0.1", 9, "ping")
            return ends.failures

    assert asyncio.run(run()) == ["relay had failed: no port is free"]


def test_it_is_asked_until_there_is_an_answer(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as relay:
        relay.bind(("127.0.0.1", 0))
        port = relay.getsockname()[1]
        question = udp_probe.relay_question("statistics")

        def answer() -> None:
            relay.recv(65_536)
            data, asker = relay.recvfrom(65_536)
            relay.sendto(data.partition(b" ")[0] + b' {"statistics": {"streams": {"datagrams": 7}}}', asker)

        thread = threading.Thread(target=answer)
        thread.start()
        udp_probe.main(("127.0.0.1", str(port), question))
        thread.join()
    answered = udp_probe.relay_answer(json.loads(capsys.readouterr().out)["answer"])
    assert media_relays.datagrams_in(answered["statistics"]) == 7
    assert media_relays.datagrams_in({"totalstatistics": {"relayedpackets": 8}}) == 8
