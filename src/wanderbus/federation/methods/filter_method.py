"""Base of the methods: the interest of the own domain in, messages to other domains out."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping

from wanderbus.channels.interest.interest_set import InterestMode, Wanted
from wanderbus.channels.interest.messages import Message
from wanderbus.channels.interest.outgoing_stream import Fenced, SendToServer
from wanderbus.federation.methods.wanted_interests import WantedInterests
from wanderbus.federation.methods.wire import Role, carried
from wanderbus.federation.routing_messages import (
    Neighbour,
    RoutingOutput,
    RoutingSettings,
    RoutingSuperseded,
    SendToDomain,
)
from wanderbus.machine import Output

Outputs = list[RoutingOutput]


class FilterMethod:
    """One way of filters; each way takes what others send on it, whichever method the own domain uses for a type."""

    def __init__(self, settings: RoutingSettings, wanted: WantedInterests, *, epoch: int, mode: InterestMode) -> None:
        self._settings = settings
        self._wanted = wanted
        self._epoch = epoch
        self._mode: InterestMode = mode

    @property
    def _own(self) -> str:
        return self._settings.name

    def _neighbour(self, domain: str) -> Neighbour:
        return self._settings.neighbours[domain]

    def start(self, now: float) -> Outputs:
        """Begin with what needs no link."""
        return []

    def link_up(self, domain: str, now: float) -> Outputs:
        """Begin with a domain on a new link."""
        raise NotImplementedError

    def link_down(self, domain: str, now: float) -> Outputs:
        """Stop sending to a domain; what it wants stays."""
        raise NotImplementedError

    def update(self, added: Mapping[Hashable, Wanted], removed: Iterable[Hashable], now: float) -> Outputs:
        """Change what the own domain wants of the types that use this method."""
        raise NotImplementedError

    def receive(self, domain: str, role: Role, message: Message, now: float) -> Outputs:
        """Take a message of a stream; :class:`RemoteProtocolError` if it is nonsense."""
        raise NotImplementedError

    def repeat(self, now: float) -> Outputs:
        """Repeat what has not been confirmed in time."""
        raise NotImplementedError

    def repeat_at(self) -> float | None:
        """Return when :meth:`repeat` is due; None if everything is confirmed."""
        raise NotImplementedError

    def use(self, type: str, now: float) -> Outputs:
        """Begin to be the method of a type."""
        return []

    def mark(self, type: str) -> Hashable:
        """Return a mark of the interest in a type as it is now, for :meth:`is_effective`."""
        raise NotImplementedError

    def is_effective(self, type: str, mark: Hashable) -> bool:
        """Return whether the interest in a type counts, as of ``mark``, wherever events of it come from."""
        raise NotImplementedError

    @property
    def is_settled(self) -> bool:
        """Return whether no change of what the own domain wants takes another turn."""
        return True

    def counts(self, type: str, mark: Hashable, linked: Collection[str]) -> bool:
        """Return the same for the domains that can be reached alone, as far as the method can tell."""
        return self.is_effective(type, mark)

    def filters_held(self) -> int:
        """Return the number of filters in all tables."""
        raise NotImplementedError

    def is_known(self, domain: str, type: str) -> bool:
        """Return whether all that ``domain`` wants of a type by this method is known in this life."""
        raise NotImplementedError


def carried_outputs(role: Role, outputs: Iterable[Output]) -> Outputs:
    """Return the outputs of a stream as messages to domains."""
    found: Outputs = []
    for each in outputs:
        match each:
            case SendToServer(server=domain, message=message):
                found.append(SendToDomain(domain, carried(role, message)))
            case Fenced(incarnation=incarnation):
                found.append(RoutingSuperseded(incarnation))
            case _:
                raise AssertionError(f"a stream has no output {each}")
    return found
