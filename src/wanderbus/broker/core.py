"""The broker as one machine: links open and close, agents ask, the log confirms, the clock ticks.

It does not know how a link is made (SPEC A-08, X14: dialogs and addresses belong to the layer that owns the link), and
it touches no files: it emits records as :class:`Append`, and :class:`Appended` confirms that they are durable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import groupby
from typing import Any, Final, cast

from wanderbus import protocol, records
from wanderbus.broker.admin import Admin
from wanderbus.broker.backlog import LinkMessages, MessageQueue
from wanderbus.broker.disconnection import DisconnectionHook
from wanderbus.broker.engine.events import EngineEvents
from wanderbus.broker.engine.matched_delivery import MatchedDelivery
from wanderbus.broker.engine.requests import EngineRequests
from wanderbus.broker.history.catch_up import CatchUp
from wanderbus.broker.history.channel_history import ChannelHistory
from wanderbus.broker.history.leader_pieces import LeaderPieces
from wanderbus.broker.history.leader_questions import LeaderQuestions
from wanderbus.broker.interest.filter_work import FilterWork
from wanderbus.broker.interest.matcher import Matcher
from wanderbus.broker.interest.phase_counts import PhaseCounts
from wanderbus.broker.interest.publisher_filters import TIMER as FILTER_LEASES
from wanderbus.broker.interest.publisher_filters import PublisherFilters
from wanderbus.broker.links import Links
from wanderbus.broker.messages import (
    Appended,
    ArrivalsLost,
    CausalMessageArrived,
    DialogChanged,
    DirectLinkClosed,
    DirectLinkOpened,
    DiskFreed,
    DiskFull,
    DropExport,
    EventArrived,
    EventsRead,
    ExtensionFailed,
    FenceSession,
    FiltersArrived,
    HistoryRead,
    ImportSession,
    InterestEffective,
    KernelLoaded,
    LeaderAnswered,
    LeaderLinkChanged,
    LinkClosed,
    LinkOpened,
    LogBegins,
    MatchesRead,
    MessageArrived,
    OffsetFound,
    PublishAnswered,
    RoutesArrived,
    ServerAnswered,
)
from wanderbus.broker.patterns.detections import Detections
from wanderbus.broker.permissions import Permissions
from wanderbus.broker.publish.acceptance import DISK_FULL
from wanderbus.broker.publish.delivery import Delivery
from wanderbus.broker.publish.publishing import PublisherMessage, Publishing
from wanderbus.broker.queues.queue_limits import QueueLimits
from wanderbus.broker.queues.queue_policies import QueuePolicies
from wanderbus.broker.queues.return_pace import SERVERS
from wanderbus.broker.readers import Link
from wanderbus.broker.restrictions.custom_restrictions import CustomRestrictions
from wanderbus.broker.rollback.attachments import Attachments
from wanderbus.broker.rollback.messages import ArrivalsRewound, InterestLost, ServerStarted
from wanderbus.broker.rollback.rollback import Rollback
from wanderbus.broker.servers.advertisements import Advertisements
from wanderbus.broker.servers.arrivals import Arrivals
from wanderbus.broker.servers.decentralised_events import DecentralisedEvents
from wanderbus.broker.servers.diagnostics import Diagnostics
from wanderbus.broker.servers.forwarding import Forwarding
from wanderbus.broker.servers.interest_requests import InterestRequests
from wanderbus.broker.servers.leader_messages import InterestMerged, LeaderTrouble
from wanderbus.broker.servers.route_index import RouteIndex
from wanderbus.broker.servers.server_users import ServerUsers
from wanderbus.broker.servers.settled_interest import SettledInterest
from wanderbus.broker.sessions.handover import Handover
from wanderbus.broker.sessions.presence import Presence
from wanderbus.broker.sessions.session_ends import SessionEnds
from wanderbus.broker.sessions.visitor_limit import UserDevice
from wanderbus.broker.signals import BrokerOutput
from wanderbus.broker.state.broker_clock import BrokerClock
from wanderbus.broker.state.journal import Journal
from wanderbus.broker.state.replays import HISTORY_FAILED
from wanderbus.broker.state.rows import device_key, session_key
from wanderbus.broker.state.start import start_record
from wanderbus.broker.state.state import BrokerState
from wanderbus.broker.subscribe_pacing import SubscribePacing
from wanderbus.broker.subscriptions import Subscriptions
from wanderbus.broker.unread_warnings import UnreadWarnings
from wanderbus.channels.hierarchy import Hierarchy
from wanderbus.channels.own_channels import OwnChannels
from wanderbus.errors import LimitExceeded, RemoteProtocolError
from wanderbus.machine import ClockRead, Input, SetTimer, TimerFired
from wanderbus.matching import Kernel
from wanderbus.parameters.broker import BrokerConfig, setting_of

SWEEP_AGAIN_S: Final = 0.1
"""Pause after a sweep that did not end everything that has expired, so that other work runs in between."""

PREMATCHED_MAX: Final = 1_024
"""Messages that are searched for publishes to match in one batch; this batch size costs least for each event."""

_REFUSED_WHEN_FULL: Final = (protocol.Subscribe, protocol.Restrict, protocol.Advertise)
"""Requests that are refused while the disk is full."""


class Broker:
    """Sessions, subscriptions, matching and queues of one server; ``step`` works as in every machine.

    :param kernel: the loaded matching kernel; None: expressions are evaluated one by one, until there are many
    :param policies: queue policies of the operator, by name (SPEC G-23)
    :param channels: the channels of the domain, as this server sees them; None if it is alone
    :param hook: decides about devices that disconnect, reconnect and leave (SPEC G-24)
    """

    def __init__(
        self,
        state: BrokerState,
        config: BrokerConfig,
        kinds: CustomRestrictions | None = None,
        kernel: Kernel | None = None,
        hook: DisconnectionHook | None = None,
        policies: QueuePolicies | None = None,
        channels: OwnChannels | None = None,
    ) -> None:
        self.state = state
        self.config = config
        kinds, hook, policies = kinds or CustomRestrictions(), hook or DisconnectionHook(), policies or QueuePolicies()
        self._extensions: dict[CustomRestrictions | DisconnectionHook | QueuePolicies, int] = {
            kinds: 0,
            hook: 0,
            policies: 0,
        }
        """The operator's extensions, and the number of failures of each that were reported."""
        self._clock = BrokerClock(state.wall_us, config.clock_slew_max)
        self._journal = journal = Journal(state)
        self._servers = servers = ServerUsers(state, config.domain)
        self._queue_limits = queue_limits = QueueLimits(state, journal, config, servers, policies)
        self._links = links = Links(state, journal, queue_limits, config)
        lineage = None if channels is None else channels.lineage
        below = Hierarchy({}).below if channels is None else channels.below
        matcher = Matcher(kernel, FilterWork(config, lambda: state.wall_us, servers.users), lineage)
        self._settled = SettledInterest(state, journal, channels, config.domain)
        self._interest = InterestRequests(journal, links, channels, self._settled.unmet)
        self._questions = LeaderQuestions(journal)
        leader_pieces = LeaderPieces(self._questions, self._on_input)
        self._forwarding = Forwarding(journal, links, channels)
        self._advertisements = Advertisements(state, journal, links, config, channels)
        self._phases = phases = PhaseCounts()
        self._engine_events = engine = EngineEvents(state, journal, config, channels, phases)
        self._rollback = Rollback(state, journal, links, self._settled)
        self._filters = self._make_filters(channels, phases)
        self._catch_up = self._make_catch_up(queue_limits, kinds, below, leader_pieces)
        self._detections = Detections(state, journal, links, queue_limits, config, kinds)
        basics = state, journal, links, queue_limits, config, kinds
        parts = self._engine_events, servers, self._interest, self._filters, leader_pieces, policies
        self._subscriptions = Subscriptions(*basics, matcher, self._catch_up, self._detections, *parts)
        self._ends = SessionEnds(state, links, self._subscriptions, engine, servers)
        self._presence = Presence(state, journal, links, queue_limits, config, hook, servers, self._ends)
        self._subscribe_pacing = SubscribePacing(state, journal, links, config, self._answer)
        self._unread_warnings = UnreadWarnings(state, journal, links, config)
        self._backlog = MessageQueue(links, journal, config, self._on_message, self._prematch)
        matched = MatchedDelivery(state, links, self._subscriptions, queue_limits, self._catch_up, servers)
        self._handover = Handover(
            state, journal, links, self._presence, self._subscriptions, self._backlog, self._engine_events, matched
        )
        events_max = config.user_pattern_events_max
        delivery = Delivery(
            state, journal, links, self._subscriptions, queue_limits, self._catch_up, engine, events_max, phases
        )
        self._decentralised = self._make_decentralised(kernel, delivery, servers, channels)
        self._publishing = self._make_publishing(delivery)
        self._attachments = self._make_attachments(queue_limits)
        self._arrivals = Arrivals(
            state, journal, links, self._subscriptions, delivery, self._catch_up, servers, channels, engine
        )
        self.engine = EngineRequests(state, journal, config, self._engine_events, matched)
        """Requests to the matching engine."""
        self._admin = Admin(state, journal, links, self._presence, self._ends, config, self.engine, phases)
        self._channel_history = ChannelHistory(state, journal, links, config, channels, below, self._questions)
        self.diagnostics = self._make_diagnostics()

    def _make_diagnostics(self) -> Diagnostics:
        return Diagnostics(
            self._links,
            self._settled,
            self._decentralised,
            events=self._forwarding,
            filters=self._filters,
            histories=self._channel_history,
            questions=self._questions,
            subscriptions=self._interest,
        )

    def _make_catch_up(
        self,
        queue_limits: QueueLimits,
        kinds: CustomRestrictions,
        below: Callable[[str], tuple[str, ...]],
        leader_pieces: LeaderPieces,
    ) -> CatchUp:
        places = lambda: self._engine_events.matched_below, below, leader_pieces, self._interest.is_effective
        return CatchUp(self.state, self._journal, self._links, queue_limits, self.config, kinds, *places)

    def _make_filters(self, channels: OwnChannels | None, phases: PhaseCounts) -> PublisherFilters:
        return PublisherFilters(
            self.state,
            self._journal,
            self._links,
            self.config,
            channels,
            self._servers,
            self._engine_events.is_for_engine,
            lambda one: (
                self._settled.refusal(one) is None and (self._decentralised is None or self._decentralised.knows(one))
            ),
            phases,
        )

    def _make_attachments(self, queue_limits: QueueLimits) -> Attachments:
        return Attachments(
            self.state,
            self._journal,
            self._links,
            queue_limits,
            self._presence,
            self._ends,
            self._handover,
            self._rollback,
            self._filters,
            self._subscriptions,
            self._advertisements,
        )

    def _make_publishing(self, delivery: Delivery) -> Publishing:
        return Publishing(
            self.state,
            self._journal,
            self._links,
            self._subscriptions,
            Permissions("may_publish", self.config.may_publish),
            self._engine_events,
            delivery,
            self._forwarding,
            self._advertisements,
            self._settled,
            self._decentralised,
            self.config.event_bytes_max,
        )

    def _make_decentralised(
        self, kernel: Kernel | None, delivery: Delivery, servers: ServerUsers, channels: OwnChannels | None
    ) -> DecentralisedEvents | None:
        """Return the part for decentralised channels, None if there are none."""
        if channels is None or (own := channels.decentralised) is None:
            return None
        state, filters = self.state, self._filters
        index = RouteIndex(state.decentralised.routes, own, kernel, self.config, lambda: state.wall_us, filters)
        parts = (delivery, servers, own, index, filters, self._rollback)
        return DecentralisedEvents(state, self._journal, self._links, self._subscriptions, *parts)

    def status(self, user: str) -> str:
        """Return the User Status of ``user``: CONNECTED while any of the user's devices can be reached."""
        return self._links.status(user)

    def server_rows(self) -> dict[str, Mapping[str, Any]]:
        """Return a row for the session here of each other server of the domain, by the server's name."""
        return self._servers.rows(self._links.status, self._settled.missing)

    def take_closed_links(self) -> list[int]:
        """Return the links that were closed or refused since the last call, before their ``LinkDropped`` is durable."""
        return self._links.take_closed()

    def readers(self, link: int) -> Mapping[int, str]:
        """Return the subscriptions that are read on a link, by the agent's handle for each."""
        open_link = self._links.get(link)
        return {} if open_link is None else {each.handle: each.subscription for each in open_link.readers()}

    def refusal(self, user: str, device: str, others: int, present: Iterable[UserDevice] = ()) -> LimitExceeded | None:
        """Return why ``device`` may have no data channel, None if it may; the error names the setting in full.

        The user already has ``others`` further devices; ``present`` are user and device of all that are connected.
        """
        refused = self._presence.refusal(user, device, others, present)
        return None if refused is None else LimitExceeded(refused.reason, setting_of(refused.limit or ""))

    def step(self, inputs: Iterable[Input], now: float) -> list[BrokerOutput]:
        """Take a batch of inputs at monotonic second ``now``; return the outputs in order."""
        self._links.begin_step(now)
        self._backlog.begin()
        for kind, several in groupby(inputs, type):
            if kind is MessageArrived:
                self._backlog.arrived(cast(list[MessageArrived], list(several)))
            elif kind is EventArrived:
                self._take_arrivals(cast(list[EventArrived], list(several)))
            else:
                for given in several:
                    self._on_input(given)
                    if self._links.ready:
                        self._links.flush()
        if self._backlog:
            self._backlog.go_on()
        self._rollback.go_on()
        self._catch_up.go_on()
        self._channel_history.go_on()
        self._detections.go_on(now)
        self.engine.go_on(now)
        self._advertisements.go_on()
        self._report_failures()
        return [*self._journal.drain(), *self._journal.tally.take(now)]

    def _on_interest(self, given: InterestEffective | InterestMerged) -> None:
        """Take a report about subscriptions from the layer below."""
        if isinstance(given, InterestMerged):
            self._subscribe_pacing.pay(given)
            return
        self._interest.became_effective(given.names)
        self._catch_up.became_effective()
        self._advertisements.became_effective(given.names)

    def _take_arrivals(self, several: list[EventArrived]) -> None:
        self._links.pace.note(SERVERS)
        for at in range(0, len(several), PREMATCHED_MAX):
            self._arrivals.take(several[at : at + PREMATCHED_MAX])

    @property
    def done_units(self) -> float:
        """Weight of the messages processed since the last :meth:`take_done`: one for each, and one for each KiB."""
        return self._backlog.done_units

    def take_done(self) -> dict[int, int]:
        """Return how many messages of each link were processed since the last call; they make room for others."""
        return self._backlog.take_done()

    def _report_failures(self) -> None:
        for extension, reported in self._extensions.items():
            if extension.failed > reported:
                self._extensions[extension] = extension.failed
                self._journal.emit(ExtensionFailed(extension.failed, extension.last_failure))

    def _on_clock_read(self, wall_us: int) -> None:
        self.state.wall_us = self._clock.read(wall_us, self._links.now)
        conditions = self._publishing.conditions
        conditions.at_us, conditions.received_us = self.state.wall_us, wall_us
        self._detections.received_us = self._arrivals.received_us = wall_us
        self._filters.leaders.clock_read(wall_us)
        if self._decentralised is not None:
            self._decentralised.received_us = wall_us

    def _on_input(self, given: Input) -> None:
        match given:
            case Appended(log=log, durable=durable):
                self._journal.appended(log, durable)
            case ClockRead(wall_us=wall_us):
                self._on_clock_read(wall_us)
            case TimerFired(key=key):
                self._on_timer_fired(key)
            case LinkOpened():
                self._on_link_opened(given)
            case LinkClosed(link=identity, reason=reason):
                if link := self._links.get(identity):
                    self._backlog.closes(link)
                if link := self._links.get(identity):
                    self._presence.closed(link, reason)
            case DialogChanged():
                self._on_dialog_changed(given)
            case DiskFull() | DiskFreed():
                is_full = isinstance(given, DiskFull)
                self._publishing.conditions.is_disk_full = self._catch_up.is_paused = self.engine.is_paused = is_full
                self._detections.is_paused = is_full
                self._arrivals.disk_full(is_full=is_full)
                if self._decentralised is not None:
                    self._decentralised.disk_full(is_full=is_full)
            case ArrivalsLost():
                self._arrivals.lose(given)
            case InterestLost(leader=leader):
                self._arrivals.missed(leader)
            case ArrivalsRewound():
                self._arrivals.rewind(given)
                if given.is_own:
                    self._rollback.found_by(given.leader)
            case PublishAnswered() | LeaderTrouble():
                self._forwarding.take(given)
            case InterestEffective() | InterestMerged():
                self._on_interest(given)
            case CausalMessageArrived() | DirectLinkOpened() | DirectLinkClosed() | RoutesArrived():
                self._links.pace.note(SERVERS)
                if self._decentralised is not None:
                    self._decentralised.on_input(given)
            case KernelLoaded(kernel=kernel):
                self._subscriptions.matcher.use(kernel)
                if self._decentralised is not None:
                    self._decentralised.index.use(kernel)
            case ServerAnswered():
                self._admin.server_answered(given)
            case OffsetFound():
                self._subscriptions.offset_found(given)
            case HistoryRead():
                if unreadable := self._catch_up.read(given):
                    self._subscriptions.end(unreadable, HISTORY_FAILED)
            case EventsRead():
                self._channel_history.read(given)
            case LeaderAnswered():
                self._questions.answered(given)
            case LeaderLinkChanged() | FiltersArrived():
                self._filters.on_leader(given)
            case MatchesRead():
                self.engine.read(given, self._links.now)
                self._handover.go_on()
            case LogBegins(first=first):
                self._queue_limits.log_begins(first)
            case FenceSession():
                self._handover.fence(given)
            case ImportSession():
                self._handover.import_session(given)
            case DropExport():
                self._handover.drop_export(given)
            case ServerStarted(rolled_back=reason):
                self._on_server_started(reason)

    def _on_link_opened(self, opened: LinkOpened) -> None:
        user, device = opened.user, opened.device
        if former := self._links.of_device(user, device):
            self._backlog.closes(former)
        if opened.is_server and (server := self._settled.met(user)):
            self._interest.met(server)
        self._presence.opened(opened.link, user, device, unattended=opened.unattended, is_server=opened.is_server)

    def _on_timer_fired(self, key: object) -> None:
        match key:
            case ("turn",):
                self._backlog.timer_fired()
            case ("detections",):
                self._detections.timer_fired()
            case ("rollback",):
                pass  # the step goes on
            case _ if key == FILTER_LEASES:
                self._filters.timer_fired()
            case ("grace", str(user), str(device)):
                self._presence.grace_over(user, device)
            case ("pace",):
                if link := self._links.pace.timer_fired():
                    self._links.go_on(link)
            case ("pace", int(identity)):
                if link := self._links.get(identity):
                    self._links.go_on(link)
            case ("submissions", str(user)):
                self._subscribe_pacing.go_on(user)
            case ("causal", inner):
                if self._decentralised is not None:
                    self._decentralised.on_input(TimerFired(inner))
            case ("sweep",):
                self._sweep()
            case ("sweep", "again"):
                self._sweep_subscriptions()

    def _on_server_started(self, reason: str) -> None:
        state = self.state
        started = start_record(state, self._engine_events.subjects, self._settled.channels)
        self._journal.write(started, urgent=True)
        if self._decentralised is not None:
            self._decentralised.start()
        self._subscriptions.end_patterns_without_events()
        self._subscriptions.end_left_behind()
        self._presence.start()
        self._filters.start()
        self._rollback.start(reason)
        self._sweep_later()

    def _sweep_later(self) -> None:
        if self.config.sweep_s is not None:
            self._journal.emit(SetTimer(("sweep",), self._links.now + self.config.sweep_s))

    def _sweep(self) -> None:
        """Drop notifications that waited for too long, warn of unread subscriptions, and end expired ones.

        SPEC G-17, G-25, X18.
        """
        self._queue_limits.sweep()
        self._catch_up.look()
        self._unread_warnings.look()
        self._filters.sweep()
        self._ends.sweep()
        self._sweep_subscriptions()
        self._sweep_later()

    def _sweep_subscriptions(self) -> None:
        if self._subscriptions.sweep():
            self._journal.emit(SetTimer(("sweep", "again"), self._links.now + SWEEP_AGAIN_S))

    def _on_dialog_changed(self, changed: DialogChanged) -> None:
        if device_key(changed.user, changed.device) in self.state.devices:
            record = records.DialogStored(
                at_us=self.state.wall_us,
                user=changed.user,
                device=changed.device,
                address=changed.address,
                binding=changed.binding,
            )
            self._journal.write(record, urgent=False)

    def _prematch(self, messages: LinkMessages, place: int) -> int:
        """Match the publishes from ``place`` on; return the place from which this has to be done again.

        That place is before the first message that may add a subscription. Without messages, discard the results.
        """
        if not messages:
            self._subscriptions.matcher.prematch(())
            return 0
        end = min(len(messages), place + PREMATCHED_MAX)
        publishes: list[tuple[Link, PublisherMessage]] = []
        for at in range(place, end):
            identity, message = messages[at]
            if type(message) is protocol.Publish or type(message) is protocol.PublishFor:
                if link := self._links.get(identity):
                    publishes.append((link, message))
            elif isinstance(message, protocol.Subscribe | protocol.Renew):
                end = at
                break
        if len(publishes) > 1:
            self._publishing.prematch(publishes)
        return end

    def _on_message(self, link: Link, message: protocol.FromAgent | RemoteProtocolError) -> None:
        if isinstance(message, RemoteProtocolError):
            self._presence.closed(link, str(message))
            return
        if link.session is None:
            if isinstance(message, protocol.Attach):
                self._attachments.attach(link, message)
            return
        match message:
            case protocol.PublishFor() | protocol.SettleInterest() if not link.is_server:
                self._presence.closed(link, "only a server of the domain may speak for others")
            case protocol.Publish() | protocol.PublishFor():
                self._publishing.publish(link, message)
            case protocol.SettleInterest():
                self._publishing.settle(link)
            case protocol.NotifyAck():
                self._links.take(link, message.reader, message.number)
            case protocol.StopReading(reader=handle):
                self._links.stop_reading(link, handle)
            case protocol.Read(readers=readers):
                session = self.state.sessions[session_key(link.user, link.session)]
                self._rollback.check(link, session, [reader.taken for reader in readers])
                for reader in readers:
                    self._subscriptions.read(link, reader.handle, reader.subscription, reader.taken, reader.group)
            case protocol.Leave(request=request):
                self._presence.leave(link, link.session, request)
            case _ if isinstance(message, protocol.OperatorRequest):
                self._admin.answer(link, message)
            case protocol.ListEvents():
                self._channel_history.ask(link, message)
            case protocol.RequestFilters() | protocol.ConfirmFilters() | protocol.ReleaseFilters():
                self._filters.take(link, message)
            case protocol.Attach():
                pass  # the link is attached already
            case _:
                self._subscribe_pacing.take(link, message)

    def _answer(self, link: Link, request: protocol.SessionRequest) -> None:
        if self._publishing.conditions.is_disk_full and isinstance(request, _REFUSED_WHEN_FULL):
            self._links.send(link, protocol.RequestRefused(request.request, DISK_FULL, limit="disk_full"))
            return
        match request:
            case protocol.Advertise() | protocol.Withdraw():
                self._advertisements.answer(link, request)
            case _:
                self._subscriptions.answer(link, request)
                if isinstance(request, protocol.Subscribe) and request.resume is not None:
                    session = self.state.sessions[session_key(link.user, link.session or "")]
                    self._rollback.check(link, session, [request.resume])
