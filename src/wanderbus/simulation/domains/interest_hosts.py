"""Servers of a simulated domain that exchange only interest: access servers and one resolution server."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import Final

from wanderbus.channels.interest.incoming_streams import IncomingStreams
from wanderbus.channels.interest.interest_set import InterestMode, Wanted
from wanderbus.channels.interest.interest_source import InterestSource
from wanderbus.channels.interest.messages import FromReceiver, Kind, Message, Stream, decode, encode
from wanderbus.channels.interest.outgoing_stream import SendToServer
from wanderbus.channels.interest.proxy_channels import ProxyChannels
from wanderbus.machine import Address, DatagramReceived, Input, Output, SendDatagram, SetTimer, TimerFired

RESOLUTION: Final = "resolution"
GROUP: Final = 7


class LinkUp(Input, frozen=True):
    """A new link to ``server``, at its present address."""

    server: str
    address: Address


class LinkDown(Input, frozen=True):
    """The link to ``server`` has failed, perhaps because it ``is_dead``."""

    server: str
    is_dead: bool


class LinkedHost:
    """Base: links by name, and messages only from the present address of a server."""

    def __init__(self) -> None:
        self.messages = 0
        self._addresses: dict[str, Address] = {}
        self._timer_at: float | None = None

    def step(self, inputs: Iterable[Input], now: float) -> list[Output]:
        """Take inputs; return datagrams and the timer."""
        outputs: list[Output] = []
        for given in inputs:
            match given:
                case LinkUp(server=server, address=address):
                    self._addresses[server] = address
                    outputs += self.link_up(server, now)
                case LinkDown(server=server, is_dead=is_dead):
                    self._addresses.pop(server, None)
                    outputs += self.link_down(server, is_dead=is_dead)
                case DatagramReceived(source=source, data=data):
                    for server in [each for each, address in self._addresses.items() if address == source]:
                        outputs += self.receive(server, decode(data), now)
                case TimerFired():
                    self._timer_at = None
                    outputs += self.repeat(now)
        return self.translated(outputs)

    def translated(self, outputs: Iterable[Output]) -> list[Output]:
        """Return messages as datagrams, and the timer if it changed."""
        found: list[Output] = []
        for each in outputs:
            if isinstance(each, SendToServer):
                if address := self._addresses.get(each.server):
                    self.messages += 1
                    found.append(SendDatagram("servers", address, encode(each.message)))
            else:
                found.append(each)
        at = self.repeat_at()
        if at is not None and (self._timer_at is None or at < self._timer_at):
            self._timer_at = at
            found.append(SetTimer("repeat", at))
        return found

    def link_up(self, server: str, now: float) -> list[Output]:
        raise NotImplementedError

    def link_down(self, server: str, *, is_dead: bool) -> list[Output]:
        raise NotImplementedError

    def receive(self, server: str, message: Message, now: float) -> list[Output]:
        raise NotImplementedError

    def repeat(self, now: float) -> list[Output]:
        raise NotImplementedError

    def repeat_at(self) -> float | None:
        raise NotImplementedError


class AccessHost(LinkedHost):
    """An access server: its interest, its advertisements, and the tables of the others."""

    def __init__(
        self,
        name: str,
        incarnation: int,
        mode: InterestMode,
        tables: IncomingStreams,
        filters: Mapping[Kind, Mapping[Hashable, Wanted]],
    ) -> None:
        super().__init__()
        self.tables = tables
        self.sources: dict[Kind, InterestSource] = {
            "interest": InterestSource(Stream(GROUP, name), incarnation, mode, precision_min=0.7),
            "advertisements": InterestSource(Stream(GROUP, name, "advertisements"), incarnation),
        }
        for kind, source in self.sources.items():
            source.outgoing.expect(RESOLUTION)
            source.update(filters[kind], (), 0.0)

    def link_up(self, server: str, now: float) -> list[Output]:
        return [output for source in self.sources.values() for output in source.outgoing.link_up(server, now)]

    def link_down(self, server: str, *, is_dead: bool) -> list[Output]:
        # A dead resolution server still has to learn of a subscription before it counts.
        for source in self.sources.values():
            source.outgoing.link_down(server, is_dead=False)
        return []

    def receive(self, server: str, message: Message, now: float) -> list[Output]:
        if isinstance(message, FromReceiver):
            return self.sources[message.stream.kind].outgoing.receive(server, message, now)
        answer = self.tables.receive(server, message, now).answer
        return [SendToServer(server, answer)] if answer is not None else []

    def repeat(self, now: float) -> list[Output]:
        return [output for source in self.sources.values() for output in source.repeat(now)]

    def repeat_at(self) -> float | None:
        times = [source.repeat_at() for source in self.sources.values()]
        return min((each for each in times if each is not None), default=None)


class ResolutionHost(LinkedHost):
    """A resolution server, which forgets everything when it is killed."""

    def __init__(self, incarnation: int, mode: InterestMode, members: Iterable[str], *, advertised: bool) -> None:
        super().__init__()
        self.proxies = ProxyChannels(GROUP, incarnation, mode, precision_min=0.7, uses_advertisements=advertised)
        for each in members:
            self.proxies.expect(each)
        self.link_up = self.proxies.link_up  # type: ignore[method-assign]
        self.link_down = self.proxies.link_down  # type: ignore[method-assign]
        self.receive = self.proxies.receive  # type: ignore[method-assign]
        self.repeat = self.proxies.repeat  # type: ignore[method-assign]
        self.repeat_at = self.proxies.repeat_at  # type: ignore[method-assign]
