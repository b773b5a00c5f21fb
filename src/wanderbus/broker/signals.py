"""Unions of what the broker takes and emits."""

from __future__ import annotations

from wanderbus.broker.messages import (
    AdvertisementsChanged,
    Append,
    Appended,
    ArrivalMatched,
    ArrivalsTaken,
    ArrivalsWanted,
    AskLeader,
    CausalMessageArrived,
    DecentralisedArrivalMatched,
    DecentralisedInterestChanged,
    DevicesDoubted,
    DialogChanged,
    DirectLinkClosed,
    DirectLinkOpened,
    DiskFreed,
    DiskFull,
    DomesticInterestChanged,
    EventArrived,
    EventsRead,
    EventsWanted,
    ExtensionFailed,
    FiltersArrived,
    ForgetPublishes,
    ForwardPublish,
    GroupsArrived,
    HistoryFailed,
    HistoryRead,
    HistoryWanted,
    InterestEffective,
    KernelLoaded,
    KernelWanted,
    LeaderAnswered,
    LeaderEventsLost,
    LeaderLinkChanged,
    LinkClosed,
    LinkDropped,
    LinkOpened,
    LogBegins,
    MatchesRead,
    MatchesWanted,
    MessageArrived,
    OffsetFound,
    OffsetWanted,
    OrderedInterestChanged,
    PublishAnswered,
    RoutesAnswered,
    RoutesArrived,
    SendOnLink,
    SendToLeader,
    ServerAnswered,
    ServerAsked,
    SubscriptionUnread,
    SubscriptionUnreadable,
    UserStatusChanged,
)
from wanderbus.broker.rollback.messages import ArrivalsRewound, InterestLost, LogRolledBack, ServerStarted
from wanderbus.broker.servers.foreign_messages import (
    CausesReached,
    DomainEventsLost,
    ForeignInterestAsked,
    ForeignInterestEffective,
    OrderedDomains,
)
from wanderbus.broker.servers.leader_messages import InterestAwaited, InterestMerged, LeaderTrouble
from wanderbus.broker.sessions.handover_messages import HandoverInput, HandoverOutput
from wanderbus.machine import CancelTimer, ClockRead, SetTimer, TimerFired
from wanderbus.refusals import Limited

OfHost = (
    Appended
    | DiskFull
    | DiskFreed
    | LogBegins
    | KernelLoaded
    | ServerAnswered
    | OffsetFound
    | HistoryRead
    | EventsRead
    | MatchesRead
)
"""Inputs about the disk, and answers to what the broker asks its host."""

OfDevices = LinkOpened | LinkClosed | DialogChanged | HandoverInput
"""Inputs about devices, and about the handover of a session."""

OfPeers = (
    LeaderEventsLost
    | DomainEventsLost
    | OrderedDomains
    | ArrivalsRewound
    | InterestLost
    | PublishAnswered
    | LeaderTrouble
    | CausalMessageArrived
    | DirectLinkOpened
    | DirectLinkClosed
    | RoutesArrived
)
"""Inputs about events of other servers."""

OfServers = (
    OfPeers
    | EventArrived
    | InterestEffective
    | InterestMerged
    | LeaderAnswered
    | LeaderLinkChanged
    | FiltersArrived
    | ForeignInterestEffective
    | GroupsArrived
)
"""Inputs about other servers of the domain."""

BrokerInput = ClockRead | TimerFired | ServerStarted | MessageArrived | OfDevices | OfHost | OfServers

ForLeaders = (
    ForwardPublish
    | ForgetPublishes
    | OrderedInterestChanged
    | ArrivalMatched
    | ArrivalsTaken
    | ArrivalsWanted
    | AskLeader
    | SendToLeader
)
"""Outputs for the sessions of this server at leaders."""

ForInterest = DecentralisedInterestChanged | AdvertisementsChanged | DecentralisedArrivalMatched | RoutesAnswered
"""Outputs for the interest in decentralised channels."""

ForFederation = DomesticInterestChanged | ForeignInterestAsked | CausesReached
"""Outputs for the gateways to other domains."""

BrokerOutput = (
    SetTimer
    | CancelTimer
    | Append
    | SendOnLink
    | LinkDropped
    | ForLeaders
    | ForInterest
    | ForFederation
    | DevicesDoubted
    | EventsWanted
    | ExtensionFailed
    | HistoryFailed
    | HistoryWanted
    | InterestAwaited
    | KernelWanted
    | Limited
    | LogRolledBack
    | MatchesWanted
    | OffsetWanted
    | ServerAsked
    | HandoverOutput
    | SubscriptionUnread
    | SubscriptionUnreadable
    | UserStatusChanged
)
