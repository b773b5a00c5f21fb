"""Servers of a domain as processes on hosts of their own, which are killed, and whose disks are filled.

Three servers have users, two lead channels, and one of these is the directory.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from random import Random
from typing import Final

from demo.network import Network
from faults.agents import DOMAIN, PASSWORD
from faults.patient_server import SHORT_LOG
from faults.small_disks import SmallDisk
from faults.victim import Died, Victim
from harness.absent_domain import GATEWAY_PORT, federation_alone
from harness.domain_command import domain_command, until_done
from harness.domain_file import LINK_PORT, Place, place_servers
from harness.ports import free_port
from wanderbus.runtime.files.domain_file import create_domain, read_domain
from wanderbus.testbed.async_processes import AsyncProcess

ACCESS: Final = ("s1", "s2", "s3")
LEADERS: Final = ("s4", "s5")
DIRECTORY: Final = LEADERS[0]
SERVERS: Final = (*ACCESS, *LEADERS)
KINDS: Final[Mapping[str, Sequence[str]]] = {"access": ACCESS, "leader": LEADERS[1:], "directory": (DIRECTORY,)}
"""Servers of each kind."""

GATEWAYS: Final = (LEADERS[1], ACCESS[0])
"""Servers with links to other domains, if there are any, in the order of their turns."""

SIP_PORT: Final = 5060
DISK_BYTES: Final = 256 * 2**20
RESERVE_BYTES: Final = 2 * 2**20
READY_S_MAX: Final = 150.0
"""Longest start: all agents of a server return at once, perhaps on a busy machine."""

DOWN_S_MAX: Final = 2.5
AFTER_BURST_S_MAX: Final = 0.15
FULL_S_MAX: Final = 3.0
NOTICED_S_MAX: Final = 30.0
KILLED_WHILE_FULL_SHARE: Final = 0.5
GROUP_MOVE_S_MAX: Final = 120.0

_FULL: Final = "the disk is full"
_ROOM: Final = "the disk has room again"
"""Reports of a server."""

_LEFT_BYTES: Final = (0, RESERVE_BYTES // 2)
"""Bytes that a full disk has left: none, or less than the reserve."""


class DomainServers:
    """All servers of one domain, each with a data directory and a lock: one fault at a time.

    ``burst`` is called just before a server is killed, or its disk becomes full or has room again, so that many events
    are on their way. With ``short_log`` the logs have short segments, which are removed as soon as nobody needs them.
    With ``is_federated`` the ordered channels are shared with a foreign domain that is never there, by two gateways.
    """

    def __init__(
        self,
        directory: Path,
        network: Network,
        places: Mapping[str, Place],
        users: Sequence[str],
        ordered: Sequence[str],
        decentralised: Sequence[str],
        disks: Mapping[str, SmallDisk],
        *,
        burst: Callable[[], None] = lambda: None,
        short_log: bool = False,
        is_federated: bool = False,
    ) -> None:
        self.disks = disks
        self._burst = burst
        self._directory = directory
        self._locks = {name: asyncio.Lock() for name in SERVERS}
        self._network = network
        self._file = file = create_domain(directory / "domain", DOMAIN, len(SERVERS))
        tables = "".join(f'[channels.{subject}]\nmodel = "decentralised"\n' for subject in decentralised)
        place_servers(file, places, tables)
        passwords = directory / "users"
        passwords.touch(0o600)
        passwords.write_text("".join(f"{name}:{PASSWORD}\n" for name in users))
        settings = directory / "server.toml"
        settings.write_text(f"disk_reserve_bytes = {RESERVE_BYTES}\n" + "log_keep_bytes = 0\n" * short_log)
        common = {"--config": settings, "--users": passwords, "--domain": DOMAIN, "--event-domain": file}
        if is_federated:
            common["--federation"] = self._federation(places, ordered)
        command = [*[SHORT_LOG] * short_log, "up"]
        self._victims = {name: self._victim(name, command, place, common) for name, place in places.items()}
        self.leaders = {place.group: place.leader for place in map(read_domain(file).channel, ordered)}
        """Leader of each channel group of the ordered subjects."""

    def _federation(self, places: Mapping[str, Place], ordered: Sequence[str]) -> Path:
        gateways = {}
        for name in GATEWAYS:
            host = places[name].host
            gateways[name] = (host, free_port(host) if self._network.needs_order else GATEWAY_PORT)
        return federation_alone(self._directory, DOMAIN, gateways, ordered)

    def _victim(self, name: str, command: Sequence[str], place: Place, common: Mapping[str, object]) -> Victim:
        own = {"--host": place.host, "--port": place.sip_port, "--data-dir": data_of(self._directory, name)}
        options = {**common, **own, "--event-server": name}
        if "--federation" in options and name in GATEWAYS:
            options["--federation-gateway"] = name
        arguments = [str(word) for option in options.items() for word in option]

        def on_host(argv: Sequence[str]) -> list[str]:
            return self._network.command(name, argv)

        errors = self._errors(name)
        words = [*command, *arguments]
        return Victim(name, "faults.patient_server", *words, errors=errors, ready_s_max=READY_S_MAX, on_host=on_host)

    async def start(self) -> None:
        """Start all servers, and wait until they are ready."""
        for victim in self._victims.values():
            await victim.start()
        for victim in self._victims.values():
            await victim.ready()

    async def kill(self, server: str, random: Random) -> None:
        """Kill a server, and start it again a moment later; return when it is ready."""
        async with self._locks[server]:
            await self._in_burst(random)
            await self._victims[server].kill()
            await self._return(server, random)

    async def _in_burst(self, random: Random) -> None:
        """Return while events of a burst are on their way."""
        self._burst()
        await asyncio.sleep(random.uniform(0, AFTER_BURST_S_MAX))

    async def fill(self, server: str, random: Random) -> None:
        """Fill the disk of a server for a moment; sometimes kill the server before there is room again."""
        disk = self.disks[server]
        async with self._locks[server]:
            full, room = self._times(server, _FULL), self._times(server, _ROOM)
            try:
                await self._in_burst(random)
                await asyncio.to_thread(disk.fill, random.choice(_LEFT_BYTES))
                await self._notice(server, _FULL, full)
                await asyncio.sleep(random.uniform(0, FULL_S_MAX))
                await self._in_burst(random)
                if is_killed := random.random() < KILLED_WHILE_FULL_SHARE:
                    await self._victims[server].kill()
            finally:
                disk.empty()
            if is_killed:
                await self._return(server, random)
            else:
                await self._notice(server, _ROOM, room)

    async def move_group(self, group: int) -> None:
        """Let another server lead a channel group, as soon as no fault prevents it: all servers have to run."""
        target = next(name for name in LEADERS if name != self.leaders[group])
        what, errors = f"the move of channel group {group} to {target}", self._errors("domain-move")
        command = domain_command(self._file, data_of(self._directory, target), "move", str(group), target)
        start = partial(AsyncProcess.start, what, self._network.command(target, command), errors, read=False)
        await until_done(what, start, GROUP_MOVE_S_MAX)
        self.leaders[group] = target

    async def _return(self, server: str, random: Random) -> None:
        await asyncio.sleep(random.uniform(0, DOWN_S_MAX))
        await self._victims[server].start()
        await self._victims[server].ready()

    async def _notice(self, server: str, words: str, times: int) -> None:
        """Wait until a server has reported ``words`` more than ``times``; raise :class:`Died` if it does not."""
        deadline = time.monotonic() + NOTICED_S_MAX
        while self._times(server, words) <= times:
            if time.monotonic() > deadline:
                raise Died(f"{server} has not reported in {NOTICED_S_MAX:g} s that {words}")
            await asyncio.sleep(0.1)

    def _times(self, server: str, words: str) -> int:
        errors = self._errors(server)
        return errors.read_text(errors="replace").count(words) if errors.exists() else 0

    async def end(self) -> None:
        """Kill all servers; raise :class:`Died` if one had ended by itself."""
        for victim in self._victims.values():
            await victim.kill()

    def _errors(self, server: str) -> Path:
        return self._directory / f"{server}.stderr"


def places_in(network: Network) -> dict[str, Place]:
    """Return the place of each server; hosts that share the loopback interface with other runs have free ports."""
    places = {}
    for name in SERVERS:
        host = network.address(name)
        ports = (free_port(host), free_port(host)) if network.needs_order else (SIP_PORT, LINK_PORT)
        places[name] = Place(host, ports[0], _roles(name), ports[1])
    return places


def data_of(directory: Path, server: str) -> Path:
    """Return the data directory of a server."""
    return directory / f"data-{server}"


def _roles(server: str) -> list[str]:
    if server in ACCESS:
        return ["access"]
    return ["resolution", "directory"] if server == DIRECTORY else ["resolution"]
