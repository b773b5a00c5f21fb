"""Scene of one attack from start to end: network, server, good agents, the attack, and its figures."""

from __future__ import annotations

import contextlib
import math
import re
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec

from harness.loads import LoadEndedError, wait_until_idle
from harness.reporting import percentile
from harness.workers import Worker
from hostile import tally
from hostile.attack import ATTACKERS, OPERATOR, Attack, Report, Target
from hostile.attacker import attack as attack_job
from hostile.busy_time import be_busy
from hostile.datagrams import HOLE, HOLE_IPV6
from hostile.domain import domain
from hostile.good import EVENTS_PER_S, MOVER, NAMES, NEWCOMER_NAMES, SUBJECT, Place, be_good
from hostile.neighbours import alone_in_federation, neighbours
from hostile.network import SECOND, SERVER, Network, as_ipv6, network
from hostile.server import ECI_PORT, PORTS, Server
from hostile.servers import Servers
from hostile.tally import ATTACK, BASELINE, Figures, Observed
from wanderbus.machine import shown

SETTLE_S: Final = 1.5
SAMPLE_EACH_S: Final = 0.2
LOADING_SHARE: Final = 0.15
"""Share of a processor below which the server is loading none of its compiled loops."""

LASTED_SHARE_MIN: Final = 0.95
"""Share of a phase that its load has to last."""

DAMAGE_AT: Final = 0.25
"""Share of the attack after which the server is stopped and its files are damaged."""


@dataclass(slots=True)
class Seen:
    """Measurements from outside the good agents."""

    rss_mib: list[float] = field(default_factory=list)
    """Resident memory: before the attack, and then its course."""

    open_files: int = 0
    """Maximum of the server's descriptors under attack."""

    cpu_share: dict[str, float] = field(default_factory=dict)
    """Share of one processor that the server used, by phase."""

    wait_share: dict[str, float] = field(default_factory=dict)
    """Share of the time that the server was ready and had no processor, by phase."""

    victim_bytes: float = math.nan
    ended: int = 0
    ready_s: float = math.nan
    report: Report = field(default_factory=dict)


class Scene:
    """Runner of one attack; see the module."""

    def __init__(
        self, attack: Attack, lan: Network, directory: Path, seconds: tuple[float, float], *, is_federated: bool = False
    ) -> None:
        self.attack = attack
        self._lan = lan
        self._directory = directory
        self._baseline_s, self._attack_s = seconds
        self._address, self._hole = (as_ipv6(SERVER), HOLE_IPV6) if attack.ipv6 else (SERVER, HOLE)
        self._attacker = directory / "attacker"
        users = (*NAMES, *NEWCOMER_NAMES, *ATTACKERS, OPERATOR)
        self._server: Server | Servers
        if attack.lying:
            self._server = domain(lan, directory, users, self._attacker)
        elif attack.neighbour:
            self._server = neighbours(lan, directory, users, self._attacker)
        else:
            self._server = Server(
                lan,
                directory,
                users,
                traced=attack.traced,
                short_segments=attack.short_segments,
                eci=attack.eci,
                pages=attack.pages,
                host=self._address,
                federation=alone_in_federation(directory, self._address) if is_federated else None,
            )
        self._seen = Seen()

    def play(self) -> Figures:
        """Run everything; return the figures."""
        with contextlib.ExitStack() as stack:
            stack.callback(self._server.stop)
            self._server.start()
            if self.attack.compiled:
                self._compile()
            good, attacker = (stack.enter_context(Worker(namespace=self._host(name))) for name in ("good", "attacker"))
            servers = (self._address, SECOND) if self.attack.lying else (self._address,)
            places = tuple(shown((each, PORTS["port"])) for each in servers)
            good.start(be_good, Place(places, str(self._directory), self.attack.ipv6))
            good.receive()
            time.sleep(SETTLE_S)
            self._phase(BASELINE, self._baseline_s, good, attacker if self.attack.has_hole else None)
            before = self._lan.received_bytes("victim")
            self._seen.rss_mib.append(self._server.rss_mib())
            self._phase(ATTACK, self._attack_s, good, attacker)
            self._seen.victim_bytes = self._lan.received_bytes("victim") - before
            good.send(None)
            observed = msgspec.msgpack.decode(good.receive(), type=Observed)
            if self.attack.restarts:
                self._restart()
            self._seen.ended = self._server.ended + self._server.has_ended()
        return figures(self.attack, observed, self._seen)

    def _compile(self) -> None:
        with Worker(namespace=self._host("attacker")) as worker:
            worker.start(be_busy, self._target(SERVER, math.inf))
            worker.receive()
        wait_until_idle(self._server.cpu_s, share=LOADING_SHARE)

    def _restart(self) -> None:
        self._server.stop()
        self._seen.ready_s = self._server.start()

    def _damage(self, path: Path) -> None:
        self._server.stop()
        path.write_bytes(damaged(path.read_bytes()))
        self._seen.ready_s = self._server.start()

    def _phase(self, name: str, seconds: float, good: Worker, attacker: Worker | None) -> None:
        if attacker is not None:
            address = self._address if name == ATTACK else self._hole
            attacker.start(attack_job, self.attack.name, self._target(address, seconds)).receive()
        began_s, cpu_s, waited_s = time.monotonic(), self._server.cpu_s(), self._server.waited_s()
        good.send((name, seconds))
        if name == ATTACK and self.attack.damage:
            time.sleep(seconds * DAMAGE_AT)
            self._damage(self._server.data / self.attack.damage)
        while time.monotonic() < began_s + seconds:
            time.sleep(SAMPLE_EACH_S)
            if name == ATTACK:
                self._seen.rss_mib.append(self._server.rss_mib())
                self._seen.open_files = max(self._seen.open_files, self._server.open_files())
        took_s = time.monotonic() - began_s
        self._seen.cpu_share[name] = (self._server.cpu_s() - cpu_s) / took_s
        self._seen.wait_share[name] = (self._server.waited_s() - waited_s) / took_s
        good.receive()
        if attacker is not None:
            report = attacker.receive()
            check_lasted(name, report, seconds)
            if name == ATTACK:
                self._seen.report = report

    def _target(self, server: str, seconds: float) -> Target:
        ports = {
            "sip_port": PORTS["port"],
            "eci_port": ECI_PORT,
            **{name: port for name, port in PORTS.items() if name != "port"},
        }
        self._attacker.mkdir(exist_ok=True)
        return Target(server=server, seconds=seconds, directory=str(self._attacker), trace=self._server.trace, **ports)

    def _host(self, name: str) -> str:
        return self._lan.name(name)


@contextlib.contextmanager
def scene(attack: Attack, baseline_s: float, attack_s: float, *, is_federated: bool = False) -> Iterator[Scene]:
    """Set the scene of an attack for the block; raises :class:`demo.CannotRunError`.

    With ``is_federated``, a single server shares the good agents' events with a domain that is never there.
    """
    with network() as lan, tempfile.TemporaryDirectory(prefix="wanderbus-hostile-") as directory:
        times = (baseline_s, attack.seconds or attack_s)
        yield Scene(attack, lan, Path(directory), times, is_federated=is_federated)


def check_lasted(phase: str, report: Report, seconds: float) -> None:
    """Raise :class:`LoadEndedError` if an attacker had no more to do long before the end of a phase."""
    if (lasted_s := report["lasted_s"]) < seconds * LASTED_SHARE_MIN:
        raise LoadEndedError(f"the load of the phase {phase} lasted for {lasted_s:.1f} of {seconds:g} s")


def damaged(content: bytes) -> bytes:
    """Return the state of a broker with another subject in the subscription of the first good agent: one byte."""
    subject = SUBJECT.encode()
    row = re.search(rb"sip:%s@[^@]{1,60}subject.%s" % (NAMES[0].encode(), subject), content, re.DOTALL)
    if row is None:
        raise RuntimeError("the state has no subscription to damage")
    # Pages that are free may hold the row too.
    return content.replace(row[0], row[0][: -len(subject)] + b"G" + subject[1:])


def figures(attack: Attack, observed: Observed, seen: Seen) -> Figures:
    """Return the figures of one run of an attack."""
    broken = tally.delivery(observed)
    moving = MOVER if attack.lying else ""  # its device calls again after each move of its session
    before_ms, under_ms, ratio = tally.p99_ratio(observed, without=MOVER)
    beside: dict[str, Any] = {f"report_{name}": value for name, value in seen.report.items()}
    beside |= {f"cpu_{name}": round(share, 3) for name, share in seen.cpu_share.items()}
    beside |= {f"wait_{name}": round(share, 3) for name, share in seen.wait_share.items()}
    for phase in (BASELINE, ATTACK):
        latencies = tally.latencies_s(observed, phase, without=MOVER)
        beside[f"p50_ms_{phase}"] = percentile(latencies, 0.5) * 1000
    beside |= {"p99_ms_baseline": before_ms, "p99_ms_attack": under_ms, "good_refused": len(observed.refused)}
    beside["open_files"] = seen.open_files
    beside["stall_s_baseline"] = tally.longest_stall_s(observed, BASELINE, 1 / EVENTS_PER_S)
    beside["newcomer_s_baseline"] = tally.slowest_newcomer_s(observed, BASELINE)
    sent = seen.report.get("sent_bytes", math.nan)
    return Figures(
        good_lost=broken.lost,
        good_repeated=broken.repeated,
        good_out_of_order=broken.out_of_order,
        good_p99_ratio=ratio,
        newcomer_s=tally.slowest_newcomer_s(observed, ATTACK),
        longest_stall_s=tally.longest_stall_s(observed, ATTACK, 1 / EVENTS_PER_S, without=moving),
        server_ended=seen.ended,
        rss_growth_mib=max(seen.rss_mib) - seen.rss_mib[0],
        amplification=tally.ratio(seen.victim_bytes, sent) if attack.amplification else math.nan,
        ready_after_costly_user_s=seen.ready_s,
        guesses_admitted=seen.report.get("guesses_admitted", math.nan),
        sessions_moved=seen.report.get("sessions_moved", math.nan),
        pulls_admitted=seen.report.get("pulls_admitted", math.nan),
        forged_admitted=seen.report.get("forged_admitted", math.nan),
        secrets_sent=seen.report.get("secrets_sent", math.nan),
        beside=beside,
    )
