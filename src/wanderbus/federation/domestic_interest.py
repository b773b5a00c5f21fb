"""Interest of a domain's own users in events of others: servers tell gateways, which put it together (SPEC M-02).

The servers send numbered streams, as they do for decentralised channels. Interest is named by the types that may come
from other domains: a subscription to every subject, or to a parent, stands for each type that it matches.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Final

from wanderbus.broker.messages import DomesticInterestChanged
from wanderbus.channels.interest.covering_index import Interest
from wanderbus.channels.interest.covering_set import InterestChange
from wanderbus.channels.interest.incoming_streams import IncomingStreams
from wanderbus.channels.interest.interest_set import InterestSet, Wanted
from wanderbus.channels.interest.interest_source import InterestSource
from wanderbus.channels.interest.messages import FromReceiver, FromSender, Stream
from wanderbus.channels.interest.outgoing_stream import SendToServer
from wanderbus.errors import RemoteProtocolError
from wanderbus.filters import Filter
from wanderbus.machine import Output
from wanderbus.subscription import EVERY_SUBJECT

Entries = Mapping[str, Sequence[tuple[str, Filter]]]
"""Subject and filter of each entry of subscriptions, by their ids."""


class ReceivedTypes:
    """The types that come from other domains, and the subscriptions that may match their events.

    :param lineage: returns a subject, its parent and so on up to the top
    """

    def __init__(self, types: Iterable[str], lineage: Callable[[str], Sequence[str]]) -> None:
        self._of_subject: dict[str, list[str]] = {}
        for each in sorted(types):
            for subject in (EVERY_SUBJECT, *lineage(each)):
                self._of_subject.setdefault(subject, []).append(each)

    @property
    def subjects(self) -> frozenset[str]:
        """Return the subjects of subscriptions that may match."""
        return frozenset(self._of_subject)

    def wanted(self, subscription: str, entries: Sequence[tuple[str, Filter]]) -> dict[Hashable, Wanted]:
        """Return the filters of a subscription for each type that it may match, by ids of their own."""
        return {
            (subscription, place, each): (each, wanted)
            for place, (subject, wanted) in enumerate(entries)
            for each in self._of_subject.get(subject, ())
        }


class LocalInterest:
    """Ids of the filters that stand for each subscription here, so that they go when it ends."""

    def __init__(self, types: ReceivedTypes) -> None:
        self._types = types
        self._ids: dict[str, list[Hashable]] = {}

    def changed(self, changed: DomesticInterestChanged) -> tuple[dict[Hashable, Wanted], list[Hashable]]:
        """Return the filters that begin, by ids, and the ids of those that end."""
        added: dict[Hashable, Wanted] = {}
        removed: list[Hashable] = []
        for subscription, entries in changed.added.items():
            removed += self._ids.pop(subscription, [])
            if wanted := self._types.wanted(subscription, entries):
                self._ids[subscription] = list(wanted)
                added |= wanted
        for subscription in changed.removed:
            removed += self._ids.pop(subscription, [])
        return added, [each for each in removed if each not in added]


class DomesticSource:
    """The stream of one server to the gateways of its domain.

    :param gateways: the other servers of the domain that are gateways
    """

    def __init__(self, server: str, gateways: Iterable[str], types: ReceivedTypes, epoch: int) -> None:
        self.gateways: Final = frozenset(gateways)
        self._local = LocalInterest(types)
        self._source = InterestSource(Stream(0, server), epoch)

    @property
    def version(self) -> int | None:
        """Return the version of the interest here, None while a change takes several turns."""
        return self._source.outgoing.version if self._source.interests.is_settled else None

    @property
    def confirmed(self) -> float:
        """Return the version up to which the gateways that can be reached have confirmed all."""
        return self._source.outgoing.effective

    def changed(self, changed: DomesticInterestChanged, now: float) -> list[Output]:
        """Take subscriptions here that begin and end; return the messages."""
        added, removed = self._local.changed(changed)
        return self._source.update(added, removed, now)[1] if added or removed else []

    def link_up(self, gateway: str, now: float) -> list[Output]:
        """Begin with a gateway on a new link."""
        return self._source.outgoing.link_up(gateway, now)

    def link_down(self, gateway: str) -> None:
        """Stop sending to a gateway, which is told what has changed when there is a link again."""
        self._source.outgoing.link_down(gateway, is_dead=True)

    def receive(self, gateway: str, message: FromReceiver, now: float) -> list[Output]:
        """Take an answer of a gateway."""
        return self._source.outgoing.receive(gateway, message, now)

    def repeat(self, now: float) -> list[Output]:
        """Go on with what takes several turns, and repeat what was not confirmed in time."""
        return self._source.repeat(now)

    def repeat_at(self) -> float | None:
        """Return when :meth:`repeat` is due; None if there is nothing to do."""
        return self._source.repeat_at()


class DomesticTable:
    """The interest of all servers of the domain, merged, at a gateway.

    :param servers: the other servers of the domain
    """

    def __init__(self, servers: Iterable[str], types: ReceivedTypes) -> None:
        self._unknown = dict.fromkeys(servers)
        self._local = LocalInterest(types)
        self._streams = IncomingStreams()
        self._set = InterestSet()

    @property
    def awaited(self) -> tuple[str, ...]:
        """Return the servers whose interest is not known yet: until then, no narrower interest may be told."""
        return tuple(self._unknown)

    @property
    def is_settled(self) -> bool:
        """Return whether :meth:`go_on` has nothing to do."""
        return self._set.is_settled

    def wanted(self) -> list[Interest]:
        """Return what the domain wants."""
        return self._set.sent()

    def changed(self, changed: DomesticInterestChanged) -> InterestChange:
        """Take subscriptions at this server that begin and end."""
        return self._set.update(*self._local.changed(changed))

    def receive(self, server: str, message: FromSender, now: float) -> tuple[FromReceiver | None, InterestChange]:
        """Take a message of another server; return the answer and the change of what the domain wants.

        Raises :class:`RemoteProtocolError` for an invalid one.
        """
        if message.stream != Stream(0, server):
            raise RemoteProtocolError(f"{server} sends interest of others", None)
        result = self._streams.receive(server, message, now)
        if self._streams.is_current((server, message.stream)):
            self._unknown.pop(server, None)
        # By content: a later life of the server has the same filters under other numbers.
        added: dict[Hashable, Wanted] = {
            (server, each.subject, each.expression): (each.subject, each.form()) for each in result.added
        }
        removed = [(server, each.subject, each.expression) for each in result.removed]
        return result.answer, self._set.update(added, removed)

    def go_on(self) -> InterestChange:
        """Go on with a change that takes several turns."""
        return self._set.go_on()


def messages_of(outputs: Iterable[Output]) -> list[SendToServer]:
    """Return the messages among the outputs of a stream; a gateway refuses none of them for good."""
    return [each for each in outputs if isinstance(each, SendToServer)]
