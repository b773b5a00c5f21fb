"""The servers and their hosts: four layouts of registrar, proxy, broker and relay.

In layouts with a relay, the public hosts accept from the routers only SIP and traffic to the relay's ports, so that all
data from behind NAT has passed the relay (SPEC I-06).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from enum import Enum
from pathlib import Path
from typing import Any, Final

from harness.internet import Internet
from tests.interop.nat.places import ALICE, BOB, OFFICE, RELAY, ROUTERS, SERVER
from wanderbus.testbed.launch import python
from wanderbus.testbed.processes import Process

PASSWORDS: Final = {ALICE: "a", BOB: "b"}
DOMAIN: Final = "localhost"

_BROKER: Final = {"broker": "c"}
_PORTS: Final = (20_000, 20_999)
"""A relay's; none is among those that a system hands out of its own accord."""

_RELAY: Final = {"ports": "{}-{}".format(*_PORTS)}
_NG_PORT: Final = 2223
_FIREWALL: Final = f"""\
*filter
:TRANSLATED -
-A TRANSLATED -p udp -m multiport --dports 5060,{_PORTS[0]}:{_PORTS[1]} -j ACCEPT
-A TRANSLATED -p tcp -m multiport --dports 5060,{_PORTS[0]}:{_PORTS[1]} -j ACCEPT
-A TRANSLATED -j DROP
%s
COMMIT
"""


class Layout(Enum):
    """Placement of registrar, proxy, broker and relay on the hosts."""

    DIRECT = "no relay"
    TOGETHER = "registrar, proxy, broker and relay in one process"
    APART = "a relay on a host of its own"
    OFFICE = "a broker behind a NAT, and in public registrar and proxy with a relay"


class Program:
    """A command of ours that serves on a host, with its settings."""

    def __init__(self, internet: Internet, host: str, command: str, settings: Mapping[str, Any], work: Path) -> None:
        config, self._said = work / f"{host}.toml", work / f"{host}.said"
        config.write_text(_toml(settings))
        argv = python("wanderbus", command, "--config", str(config), "--verbose")
        if command == "relay":
            argv += ["--json", "--figures-s", "0.2"]
        self._argv = internet.namespaces.command(host, argv)
        self._host = host
        self._process: Process | None = None

    def start(self) -> None:
        """Start it, and wait until it is ready."""
        self._said.write_bytes(b"")
        self._process = Process(self._host, self._argv, self._said)
        self._process.wait_until(self._is_ready)

    def kill(self) -> None:
        """End it as a power failure would."""
        assert self._process is not None
        self._process.kill()

    def end(self) -> None:
        """End it gently, if it runs."""
        if self._process is not None:
            self._process.end()

    def said(self) -> str:
        """Return its output since it was started."""
        return self._said.read_text(errors="replace")

    def _is_ready(self) -> bool:
        return any("ready" in line for line in self.said().splitlines())


def programs(layout: Layout, internet: Internet, work: Path) -> dict[str, Program]:
    """Return the programs of this layout, by host, in the order of starting; their files are written to ``work``."""
    server, relay, office = (internet.address(host) for host in (SERVER, RELAY, OFFICE))
    here = {"domain": DOMAIN, "host": server, "users": PASSWORDS, "data_dir": str(work / SERVER)}
    ng = f"{relay}:{_NG_PORT}"
    commands: dict[str, tuple[str, dict[str, Any]]]
    match layout:
        case Layout.DIRECT:
            commands = {SERVER: ("up", here)}
        case Layout.TOGETHER:
            commands = {SERVER: ("up", {**here, "relay": _RELAY})}
        case Layout.APART:
            elsewhere = {**_RELAY, "address": relay, "ng_listen": ng, "ng_from": [server]}
            commands = {RELAY: ("relay", elsewhere), SERVER: ("up", {**here, "relays": [ng]})}
        case Layout.OFFICE:
            users = PASSWORDS | _BROKER
            public = {**here, "users": users, "relay": _RELAY}
            own = {"host": office, "data_dir": str(work / OFFICE), "sip_server": f"sip:{server}"}
            commands = {SERVER: ("proxy", public), OFFICE: ("up", {**here, "users": users, **own})}
    for host in (SERVER, RELAY):
        _guard(internet, host, routers=() if layout is Layout.DIRECT else ROUTERS)
    return {host: Program(internet, host, *command, work) for host, command in commands.items()}


def relayed_datagrams(relay: Program) -> int:
    """Return how many datagrams a relay of its own has passed on."""
    figures = [json.loads(line)["figures"] for line in relay.said().splitlines() if '"figures"' in line]
    return int(figures[-1]["streams"]["datagrams"])


def refused(internet: Internet, host: str) -> int:
    """Return how many packets came to a public host from behind NAT that were neither SIP nor for a relay."""
    *_, rule = internet.namespaces.run(host, ["iptables", "-nvxL", "TRANSLATED"]).splitlines()
    return int(rule.split()[0])


def _guard(internet: Internet, host: str, routers: Iterable[str]) -> None:
    rules = "\n".join(f"-A INPUT -s {internet.public_address(router)} -j TRANSLATED" for router in routers)
    internet.namespaces.run(host, ["iptables-restore"], _FIREWALL % rules)


def _toml(settings: Mapping[str, Any]) -> str:
    """Return settings as a file; tables are last."""
    lines = [f"{key} = {json.dumps(value)}" for key, value in settings.items() if not isinstance(value, Mapping)]
    for key, value in settings.items():
        if isinstance(value, Mapping):
            lines += [f"[{key}]", *_toml(value).splitlines()]
    return "\n".join(lines) + "\n"
