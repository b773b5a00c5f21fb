"""Kamailio, with rtpengine or with our relay, serves moving clients behind NATs (SPEC I-01 to I-07, X9)."""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final

import pytest

from harness import ROOT
from harness.internet import PUBLIC, Internet
from harness.media_relays import datagrams_in
from harness.udp_probe import relay_answer, relay_question
from tests.interop import kamailio as peer
from tests.interop import rtpengine as relay_peer
from tests.interop.kamailio import kamailio
from tests.interop.nat.places import ALICE, BOB, EAST, NORTH, RELAY, SERVER, SOUTH, WEST
from tests.interop.nat.programs import DOMAIN, PASSWORDS, Program
from tests.interop.nat.stage import Stage
from tests.interop.nat.test_firewalls import FALLBACK_S_MAX, UDP_BY_RELAY
from tests.interop.rtpengine import rtpengine

pytestmark = pytest.mark.skipif(peer.PROGRAM is None, reason=peer.MISSING)

STEADY_S: Final = 0.4
HEAL_S_MAX: Final = 22.0
SETTLED_S: Final = 4.0
"""For three seconds after an offer or answer rtpengine accepts any source, with any flags."""
REBOUND_HEAL_S_MAX: Final = 30.0
"""A receiver notices after 5 s (``keepalive_s``), and its sender tries again within 4 s. In one of ten cases rtpengine
does not follow: then the retries of both sides run out, and the agent calls again."""
NG_PORT: Final = 2223
PORTS: Final = "20000-20999"
USERS: Final = PASSWORDS | {"broker": "c"}


class Life:
    """Somebody else's program, for as long as the stage is set."""

    def __init__(self, program: Callable[[], AbstractContextManager[object]]) -> None:
        self._program = program
        self._life = contextlib.ExitStack()

    def start(self) -> None:
        """Start it, and wait until it is ready."""
        self._life.enter_context(self._program())

    def end(self) -> None:
        """End it, if it runs."""
        self._life.close()


class Served:
    """Kamailio and a broker on one public host, a relay on another; as shipped, for those behind NAT alone."""

    def __init__(self, relay: str, flags: str = "") -> None:
        self.relayed_datagrams = 0
        """Number of datagrams that the relay has forwarded, once all calls are over."""
        self._relay = relay
        self._flags = flags

    def __call__(self, internet: Internet, work: Path) -> Mapping[str, Life | Program]:
        server, elsewhere = internet.address(SERVER), internet.address(RELAY)
        place = (elsewhere, NG_PORT)
        there = internet.namespaces.command(RELAY, [])
        settings = {
            "address": elsewhere,
            "ports": PORTS,
            "ng_listen": "{}:{}".format(*place),
            "ng_from": [server, elsewhere],
        }
        broker = {"domain": DOMAIN, "host": server, "users": USERS, "data_dir": str(work / SERVER)}
        return {
            RELAY: Life(lambda: rtpengine(address=elsewhere, ng_port=NG_PORT, ports=PORTS, within=there))
            if self._relay == "rtpengine"
            else Program(internet, RELAY, "relay", settings, work),
            "count": Life(lambda: self._counting(internet)),
            "sip": Life(
                lambda: kamailio(
                    USERS,
                    domain=DOMAIN,
                    address=server,
                    port=5060,
                    relays=[place],
                    relay_for_all=False,
                    relay_flags=self._flags,
                    within=internet.namespaces.command(SERVER, []),
                )
            ),
            SERVER: Program(internet, SERVER, "up", {**broker, "sip_server": f"sip:{server}"}, work),
        }

    @contextlib.contextmanager
    def _counting(self, internet: Internet) -> Iterator[None]:
        yield
        question = [internet.address(RELAY), str(NG_PORT), relay_question("statistics")]
        asking = ["env", f"PYTHONPATH={ROOT}", sys.executable, "-m", "harness.udp_probe", *question]
        answer = relay_answer(json.loads(internet.namespaces.run(RELAY, asking))["answer"])
        self.relayed_datagrams = datagrams_in(answer["statistics"])


def by(relay: str, transport: str) -> object:
    """Parameters: a relay, and the transport of the data that passes it."""
    theirs = relay == "rtpengine"
    marks = [pytest.mark.interop(peer=f"Kamailio and {relay if theirs else 'our relay'}")]
    if theirs:
        marks.append(pytest.mark.skipif(relay_peer.PROGRAM is None, reason=relay_peer.MISSING))
    return pytest.param(relay, transport, marks=marks, id=f"{relay} {transport}")


def move(scenario: str, *where: str) -> object:
    """Parameters: the first places of publisher and subscriber, the one that moves, and its destination."""
    return pytest.param(where, marks=pytest.mark.interop(scenario=scenario), id=scenario)


@pytest.mark.parametrize(("relay", "transport"), [by("rtpengine", "UDP"), by("ours", "UDP"), by("ours", "TCP")])
@pytest.mark.parametrize(
    "where",
    [
        move("the subscriber moves from NAT to NAT", NORTH, SOUTH, BOB, NORTH),
        move("the subscriber moves from NAT to symmetric NAT", NORTH, SOUTH, BOB, EAST),
        move("the subscriber moves into NAT", NORTH, PUBLIC, BOB, SOUTH),
        move("the subscriber moves out of NAT", NORTH, SOUTH, BOB, PUBLIC),
        move("the publisher moves from NAT to symmetric NAT", NORTH, SOUTH, ALICE, WEST),
    ],
)
def test_moves(internet: Internet, tmp_path: Path, relay: str, transport: str, where: tuple[str, ...]) -> None:
    """Nothing is lost, and all data of clients behind NAT passes the relay, which counts it."""
    alice, bob, who, to = where
    served = Served(relay)
    with Stage.set(internet, tmp_path, layout=served, transport=transport, alice=alice, bob=bob) as stage:
        stage.flow()
        time.sleep(STEADY_S)
        assert stage.healed_s(stage.move(who, to)) < HEAL_S_MAX
        published = stage.hold()
        stage.check(published)
    if transport == "UDP":
        assert served.relayed_datagrams >= published * (1 if PUBLIC in (bob, to) else 2)


@pytest.mark.parametrize(("relay", "transport"), [by("rtpengine", "UDP"), by("ours", "UDP")])
@pytest.mark.interop(scenario="a firewall drops UDP to the broker: by relay, and later without")
def test_firewall(internet: Internet, tmp_path: Path, relay: str, transport: str) -> None:
    """An agent requests the relay when nothing arrives directly, and uses it until it moves to an open network."""
    served = Served(relay)
    with Stage.set(internet, tmp_path, layout=served, transport="any", alice=PUBLIC, bob=PUBLIC) as stage:
        stage.flow()
        time.sleep(STEADY_S)
        assert stage.healed_s(stage.move(BOB, PUBLIC, firewall=UDP_BY_RELAY)) < FALLBACK_S_MAX
        stage.hold()
        stage.takes(BOB, "udp-relay", FALLBACK_S_MAX)
        stage.flow()
        time.sleep(STEADY_S)
        assert stage.healed_s(stage.move(BOB, PUBLIC)) < HEAL_S_MAX
        published = stage.hold()
        stage.takes(BOB, "udp", HEAL_S_MAX)
        stage.check(published)
    assert served.relayed_datagrams > 0


@pytest.mark.parametrize(("relay", "transport"), [by("rtpengine", "UDP"), by("ours", "UDP")])
@pytest.mark.interop(scenario="rebinding while receiving")
def test_rebinding(internet: Internet, tmp_path: Path, relay: str, transport: str) -> None:
    """After a silent rebinding of the NAT the data follow the client; rtpengine needs the flag ``media-handover`` for
    it.
    """
    served = Served(relay, "media-handover")
    with Stage.set(internet, tmp_path, layout=served, transport=transport) as stage:
        stage.flow()
        time.sleep(SETTLED_S)
        stage.rebind(SOUTH)
        assert stage.healed_s(time.monotonic()) < REBOUND_HEAL_S_MAX
        stage.check(stage.hold())
