"""The broker as one machine: links open and close, agents ask, the log confirms, the clock ticks.

It does not know how a link is made (SPEC A-08, X14: dialogs and addresses belong to the layer that owns the link), and
it touches no files: it emits records as :class:`Append`, and :class:`Appended` confirms that they are durable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import groupby
from typing import Any, Final, cast, get_args

from wanderbus.broker.admin import Admin
from wanderbus.broker.agent_messages import AgentMessages
from wanderbus.broker.backlog import MessageQueue
from wanderbus.broker.basics import Basics
from wanderbus.broker.disconnection import DisconnectionHook
from wanderbus.broker.engine.events import EngineEvents
from wanderbus.broker.engine.matched_delivery import MatchedDelivery
from wanderbus.broker.engine.requests import EngineRequests
from wanderbus.broker.extensions import Extensions
from wanderbus.broker.groups.group_loads import GroupLoads
from wanderbus.broker.groups.group_move import TIMER as GROUP_MOVE
from wanderbus.broker.groups.groups import Groups
from wanderbus.broker.groups.leader_table import use_leaders
from wanderbus.broker.groups.leaderships import Leaderships
from wanderbus.broker.groups.replaced_leaders import ReplacedLeaders
from wanderbus.broker.history.catch_up import CatchUp
from wanderbus.broker.history.channel_history import ChannelHistory
from wanderbus.broker.history.leader_pieces import LeaderPieces
from wanderbus.broker.history.leader_questions import LeaderQuestions
from wanderbus.broker.history.lookups import Lookups
from wanderbus.broker.history.seams import Seams
from wanderbus.broker.interest.filter_work import FilterWork
from wanderbus.broker.interest.matcher import Matcher
from wanderbus.broker.interest.phase_counts import PhaseCounts
from wanderbus.broker.interest.publisher_filters import TIMER as FILTER_LEASES
from wanderbus.broker.interest.publisher_filters import PublisherFilters
from wanderbus.broker.links import Links
from wanderbus.broker.messages import (
    Appended,
    DiskFreed,
    DiskFull,
    EventArrived,
    EventsRead,
    FiltersArrived,
    GroupsArrived,
    HistoryRead,
    InterestEffective,
    KernelLoaded,
    LeaderAnswered,
    LeaderLinkChanged,
    LogBegins,
    MatchesRead,
    MessageArrived,
    OffsetFound,
    ServerAnswered,
)
from wanderbus.broker.metrics import BrokerMetrics
from wanderbus.broker.patterns.detections import Detections
from wanderbus.broker.permissions import Permissions
from wanderbus.broker.publish.decisions import Conditions
from wanderbus.broker.publish.delivery import Delivery
from wanderbus.broker.publish.former_servers import FormerServers
from wanderbus.broker.publish.leaving_publishers import LeavingPublishers
from wanderbus.broker.publish.publishing import Publishing
from wanderbus.broker.queues.queue_limits import QueueLimits
from wanderbus.broker.queues.queue_policies import QueuePolicies
from wanderbus.broker.restrictions.custom_restrictions import CustomRestrictions
from wanderbus.broker.rollback.messages import ServerStarted
from wanderbus.broker.rollback.rollback import Rollback
from wanderbus.broker.servers.advertisements import Advertisements
from wanderbus.broker.servers.diagnostics import Diagnostics
from wanderbus.broker.servers.foreign_messages import ForeignInterestEffective
from wanderbus.broker.servers.interest_requests import InterestRequests
from wanderbus.broker.servers.leader_messages import InterestMerged
from wanderbus.broker.servers.peer_events import PeerEvents
from wanderbus.broker.servers.server_users import ServerUsers, server_user
from wanderbus.broker.servers.settled_interest import SettledInterest
from wanderbus.broker.sessions.devices import Devices
from wanderbus.broker.sessions.handover_messages import FormerServerSilent, PastReported, SessionMoveEnded
from wanderbus.broker.sessions.visitor_limit import UserDevice
from wanderbus.broker.signals import BrokerOutput, OfDevices, OfPeers
from wanderbus.broker.state.broker_clock import BrokerClock
from wanderbus.broker.state.journal import Journal
from wanderbus.broker.state.replays import HISTORY_FAILED
from wanderbus.broker.state.start import start_record
from wanderbus.broker.state.state import BrokerState
from wanderbus.broker.subscriptions import Subscriptions
from wanderbus.channels.hierarchy import Hierarchy
from wanderbus.channels.own_channels import OwnChannels
from wanderbus.errors import LimitExceeded
from wanderbus.machine import ClockRead, Input, SetTimer, TimerFired
from wanderbus.matching import Kernel
from wanderbus.parameters.broker import BrokerConfig, setting_of

SWEEP_AGAIN_S: Final = 0.1
"""Pause after a sweep that did not end everything that has expired, so that other work runs in between."""


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
        self._extensions = extensions = Extensions(kinds, policies, hook)
        self._clock = BrokerClock(state.wall_us, config.clock_slew_max)
        self._journal = journal = Journal(state)
        self._servers = servers = ServerUsers(state, config.domain)
        queue_limits = QueueLimits(state, journal, config, servers, extensions.policies)
        self._links = links = Links(state, journal, queue_limits, config)
        permissions = Permissions("may_publish", config.may_publish)
        self._conditions = Conditions(permissions, state.wall_us, event_bytes_max=config.event_bytes_max)
        self._basics = Basics(
            state, journal, links, queue_limits, config, servers, extensions.kinds, channels, self._conditions
        )
        self._make_interest()
        self._make_subscriptions(kernel)
        self._make_delivery(kernel)
        self.metrics = BrokerMetrics(self._basics, self._phases, self.engine)

    def _make_interest(self) -> None:
        """Make the parts about what is wanted here and at other servers."""
        basics, channels = self._basics, self._basics.channels
        use_leaders(basics.state, channels)
        self._settled = SettledInterest(basics.state, basics.journal, channels, basics.config.domain)
        self._interest = InterestRequests(basics, self._settled.unmet, is_joining=self._settled.is_joining)
        self._questions = LeaderQuestions(basics.journal)
        self._advertisements = Advertisements(basics)
        self._phases = PhaseCounts()
        self._engine_events = EngineEvents(basics.state, basics.journal, basics.config, channels, self._phases)
        self._rollback = Rollback(basics.state, basics.journal, basics.links, self._settled)
        self._filters = PublisherFilters(
            basics,
            self._engine_events.is_for_engine,
            lambda one: (
                self._settled.refusal(one) is None and self._peers.knows(one) and not self._groups.is_moving(one)
            ),
            self._phases,
        )

    def _make_subscriptions(self, kernel: Kernel | None) -> None:
        """Make the parts about subscriptions, their past and their patterns."""
        basics, engine, channels = self._basics, self._engine_events, self._basics.channels
        below = Hierarchy({}).below if channels is None else channels.below
        state, servers = basics.state, basics.servers
        work = FilterWork(basics.config, lambda: state.wall_us, servers.users)
        matcher = Matcher(kernel, work, channels.lineage if channels is not None and channels.parents else None)
        pieces = LeaderPieces(self._questions, self._on_input)
        leaderships = Leaderships(state, channels)
        seams = Seams(basics, leaderships)
        self._catch_up = CatchUp(
            basics, lambda: engine.matched_below, below, pieces, self._interest.is_effective, seams
        )
        self._interest.tell(self._catch_up.became_effective)
        self._detections = Detections(basics)
        lookups = Lookups(basics, pieces, leaderships)
        parts = self._detections, engine, self._interest, self._filters, lookups, self._extensions.policies
        self._subscriptions = Subscriptions(basics, matcher, self._catch_up, *parts)
        self._channel_history = ChannelHistory(basics, below, self._questions, leaderships)

    def _make_delivery(self, kernel: Kernel | None) -> None:
        """Make the parts that serve devices, publishers and other servers."""
        basics, engine, subscriptions = self._basics, self._engine_events, self._subscriptions
        filters, advertisements, rollback = self._filters, self._advertisements, self._rollback
        matched = MatchedDelivery(basics, subscriptions, self._catch_up)
        self.engine = EngineRequests(basics, engine, matched)
        """Requests to the matching engine."""
        events_max = basics.config.user_pattern_events_max
        delivery = Delivery(basics, subscriptions, self._catch_up, engine, events_max, self._phases)
        self._peers = PeerEvents(basics, kernel, subscriptions, delivery, self._catch_up, engine, filters, rollback)
        self._backlog = MessageQueue(basics.links, basics.journal, basics.config)
        former = FormerServers(basics, self._peers.decentralised)
        waiting = former, LeavingPublishers(basics, self._peers.forwarding, former)
        loads = GroupLoads(basics.channels, basics.servers.all)
        self._devices = Devices(
            basics,
            self._extensions.hook,
            subscriptions,
            self._backlog,
            engine,
            matched,
            rollback,
            filters,
            advertisements,
            self._settled,
            self._interest,
            self._peers.after_past,
            *waiting,
            delivery.origins,
        )
        publishing = Publishing(
            basics,
            subscriptions,
            engine,
            delivery,
            self._peers.forwarding,
            advertisements,
            self._settled,
            self._peers.decentralised,
            *waiting,
            loads,
        )
        replaced = ReplacedLeaders(basics, subscriptions, self._peers)
        parts = self._interest, filters, engine, self._settled, publishing, self._questions, replaced, loads
        self._groups = Groups(basics, *parts)
        self._admin = Admin(basics, self._devices, self.engine, self._phases, self._groups)
        self._messages = AgentMessages(
            basics,
            publishing,
            subscriptions,
            self._devices,
            self._admin,
            self._channel_history,
            filters,
            advertisements,
            rollback,
            self._groups,
        )
        self._takers: dict[type, Callable[[Any], None]] = {
            **dict.fromkeys(get_args(OfDevices), self._devices.on_input),
            **dict.fromkeys(get_args(OfPeers), self._peers.on_input),
            SessionMoveEnded: self._admin.move_ended,
            FormerServerSilent: former.silent,
            PastReported: former.reported,
            ForeignInterestEffective: self._interest.became_known,
            GroupsArrived: self._groups.arrived,
        }
        """Parts that take all inputs of a type."""
        self._backlog.serve_by(self._messages.serve, self._messages.prematch)
        self.diagnostics = self._make_diagnostics()

    def _make_diagnostics(self) -> Diagnostics:
        """Return what the broker keeps while it waits for others."""
        return Diagnostics(
            self._basics.links,
            self._settled,
            self._peers.decentralised,
            events=self._peers.forwarding,
            filters=self._filters,
            histories=self._channel_history,
            questions=self._questions,
            subscriptions=self._interest,
        )

    def status(self, user: str) -> str:
        """Return the User Status of ``user``: CONNECTED while any of the user's devices can be reached."""
        return self._links.status(user)

    def server_rows(self) -> dict[str, Mapping[str, Any]]:
        """Return a row for each other server of the domain: its session here, and events that it has not taken."""
        rows = self._servers.rows(self._links.status, self._settled.missing)
        for name, count in self._peers.untaken().items():
            row = rows.get(name, {})
            rows[name] = {**row, "waiting_here": row.get("waiting_here", 0) + count}
        return rows

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
        refused = self._devices.presence.refusal(user, device, others, present)
        return None if refused is None else LimitExceeded(refused.reason, setting_of(refused.limit or ""))

    def step(self, inputs: Iterable[Input], now: float) -> list[BrokerOutput]:
        """Take a batch of inputs at monotonic second ``now``; return the outputs in order."""
        self._links.begin_step(now)
        self._backlog.begin()
        for kind, several in groupby(inputs, type):
            if kind is MessageArrived:
                self._backlog.arrived(cast(list[MessageArrived], list(several)))
            elif kind is EventArrived:
                self._peers.arrived(cast(list[EventArrived], list(several)))
            else:
                take = self._takers.get(kind, self._on_input)
                for given in several:
                    take(given)
                    if self._links.ready:
                        self._links.flush()
        if self._backlog:
            self._backlog.go_on()
        self._rollback.go_on()
        self._devices.go_on()
        self._catch_up.go_on()
        self._channel_history.go_on()
        self._detections.go_on(now)
        self.engine.go_on(now)
        self._advertisements.go_on()
        self._groups.go_on()
        self._extensions.report_failures(self._journal)
        return [*self._journal.drain(), *self._journal.tally.take(now)]

    def _on_interest(self, given: InterestEffective | InterestMerged) -> None:
        """Take a report about subscriptions from the layer below."""
        if isinstance(given, InterestMerged):
            self._messages.pacing.pay(given)
            return
        self._interest.became_effective(given.names)
        self._advertisements.became_effective(given.names)

    @property
    def done_units(self) -> float:
        """Weight of the messages processed since the last :meth:`take_done`: one for each, and one for each KiB."""
        return self._backlog.done_units

    def take_done(self) -> dict[int, int]:
        """Return how many messages of each link were processed since the last call; they make room for others."""
        return self._backlog.take_done()

    def _on_clock_read(self, wall_us: int) -> None:
        self.state.wall_us = self._clock.read(wall_us, self._links.now)
        self._conditions.at_us, self._conditions.received_us = self.state.wall_us, wall_us
        self._filters.leaders.clock_read(wall_us)

    def _on_input(self, given: Input) -> None:
        match given:
            case Appended(log=log, durable=durable):
                self._journal.appended(log, durable)
            case ClockRead(wall_us=wall_us):
                self._on_clock_read(wall_us)
            case TimerFired(key=key):
                self._on_timer_fired(key)
            case DiskFull():
                self._conditions.is_disk_full = True
            case DiskFreed() if self._conditions.is_disk_full:
                self._conditions.is_disk_full = False
                self._peers.disk_freed()
            case InterestEffective() | InterestMerged():
                self._on_interest(given)
            case KernelLoaded(kernel=kernel):
                self._subscriptions.matcher.use(kernel)
                self._peers.use(kernel)
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
                if isinstance(given, LeaderLinkChanged):
                    self._groups.link_changed(given)
            case MatchesRead():
                self.engine.read(given, self._links.now)
            case LogBegins(first=first):
                self._basics.queue_limits.log_begins(first)
            case ServerStarted(rolled_back=reason):
                self._on_server_started(reason)

    def _on_timer_fired(self, key: object) -> None:
        match key:
            case ("turn",):
                self._backlog.timer_fired()
            case ("detections",):
                self._detections.timer_fired()
            case ("rollback",) | ("transfer", _) | ("import", _):
                pass  # the step goes on
            case _ if key == FILTER_LEASES:
                self._filters.timer_fired()
            case _ if key == GROUP_MOVE:
                self._groups.timer_fired()
            case ("grace", str(user), str(device)):
                self._devices.presence.grace_over(user, device)
            case ("pace",):
                if link := self._links.pace.timer_fired():
                    self._links.go_on(link)
            case ("pace", int(identity)):
                if link := self._links.get(identity):
                    self._links.go_on(link)
            case ("submissions", str(user)):
                self._messages.pacing.go_on(user)
            case ("causal", inner):
                self._peers.timer_fired(inner)
            case ("sweep",):
                self._sweep()
            case ("sweep", "again"):
                self._sweep_subscriptions()

    def _on_server_started(self, reason: str) -> None:
        state = self.state
        state.begin_totals()
        started = start_record(state, self._engine_events.subjects, self._settled.channels)
        self._journal.write(started, urgent=True)
        self._peers.start()
        self._groups.start()
        self._subscriptions.end_patterns_without_events(list(state.subscriptions))
        self._subscriptions.end_left_behind()
        if (channels := self._settled.channels) is not None:
            self._devices.presence.forget_servers(server_user(each, self.config.domain) for each in channels.left)
        self._devices.presence.start()
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
        self._basics.queue_limits.sweep()
        self._catch_up.look()
        self._devices.sweep()
        self._filters.sweep()
        self._devices.ends.sweep()
        self._sweep_subscriptions()
        self._sweep_later()

    def _sweep_subscriptions(self) -> None:
        if self._subscriptions.sweep():
            self._journal.emit(SetTimer(("sweep", "again"), self._links.now + SWEEP_AGAIN_S))
