"""Moves of sessions to other domains and from there, at a server that is alone in its own domain (SPEC L-01)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from wanderbus.broker.sessions.handover_messages import HandoverOutput, UserUnowned
from wanderbus.broker.signals import BrokerInput
from wanderbus.composition import Composition
from wanderbus.machine import Output
from wanderbus.peers.far_servers import AskServers, FarReport, FarRequest, FarServerMet, without_prefix
from wanderbus.peers.handover.session_handovers import HandoversOutput, SessionHandovers
from wanderbus.peers.messages import CloseServerLink, ConnectServer, DisconnectServer, SendOnServerLink
from wanderbus.peers.owner_messages import CallPostponed, CallRedirected, CallServed, OfVisitors, OwnersOutput
from wanderbus.peers.parts import BROKER, HANDOVERS, OWNERS
from wanderbus.peers.session_owners import SessionOwners


class LoneHandovers:
    """Routes between the handovers, the broker, and the links to servers of other domains.

    :param owners: decides where new calls are served
    :param on_decided: is called with each decision
    :param on_visitor_decided: is called with each decision about a visitor
    """

    def __init__(
        self,
        parts: Composition[Output],
        owners: SessionOwners,
        handovers: SessionHandovers,
        on_decided: Callable[[CallServed | CallRedirected | CallPostponed], None],
        on_visitor_decided: Callable[[OfVisitors], None],
    ) -> None:
        self._to_far: Callable[[list[FarRequest]], None] = lambda requests: None
        """Takes requests to the links to servers of other domains."""
        self._parts = parts
        self._handovers = handovers
        self._on_decided = on_decided
        self._on_visitor_decided = on_visitor_decided
        parts.add(OWNERS, owners.step, self.route_owners)
        parts.add(HANDOVERS, handovers.step, self.route_handovers)

    def start(self, now: float) -> None:
        """Begin a life of the server."""
        self.route_handovers(self._handovers.start(), now)

    def use_far_links(self, to_far: Callable[[list[FarRequest]], None]) -> None:
        """Use the links to servers of other domains, whose requests ``to_far`` takes."""
        self._to_far = to_far

    def at_far_links(self, reports: Sequence[FarReport]) -> None:
        """Pass on what comes from servers of other domains."""
        self._parts.give(HANDOVERS, [without_prefix(each) for each in reports])
        self._parts.give(OWNERS, [each for each in reports if isinstance(each, FarServerMet)])

    def give_broker_outputs(self, outputs: Sequence[HandoverOutput]) -> None:
        """Pass on what the broker says about sessions that move."""
        self._parts.give(HANDOVERS, outputs)

    def route_owners(self, outputs: list[OwnersOutput], now: float) -> None:
        """Report the decisions."""
        for output in outputs:
            if isinstance(output, CallServed | CallRedirected | CallPostponed):
                if isinstance(output, CallServed) and output.unowned:
                    self._parts.give(BROKER, [UserUnowned(output.unowned, output.session)])
                self._on_decided(output)
            elif isinstance(output, Output):
                self._parts.emit(output)

    def route_handovers(self, outputs: list[HandoversOutput], now: float) -> None:
        """Pass messages to the links, and requests to the broker, each as one batch."""
        for_far: list[FarRequest] = []
        for_broker: list[BrokerInput] = []
        for output in outputs:
            if isinstance(output, AskServers | ConnectServer | DisconnectServer | SendOnServerLink | CloseServerLink):
                for_far.append(output)
            elif isinstance(output, OfVisitors):
                self._on_visitor_decided(output)
            elif isinstance(output, Output):
                self._parts.emit(output)
            else:
                for_broker.append(output)
        self._to_far(for_far)
        self._parts.give(BROKER, for_broker)
