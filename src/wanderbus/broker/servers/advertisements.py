"""Advertisements of devices: begun, withdrawn, and compared with what is published (SPEC A-17, K-07).

An advertisement is answered when it is durable and, in a decentralised channel that requires it, when this server has
what all servers want of its events. From then on, an event that matches it reaches everybody who wants it.
"""

from __future__ import annotations

from collections.abc import Iterable

from wanderbus import protocol, records
from wanderbus.broker import admission
from wanderbus.broker.basics import Basics
from wanderbus.broker.interest.filter_bytes import FilterBytes
from wanderbus.broker.interest.filter_work import FilterWork
from wanderbus.broker.interest.measured_filter import read_filter
from wanderbus.broker.messages import AdvertisementsChanged
from wanderbus.broker.permissions import Permissions
from wanderbus.broker.publish.decisions import Rejected
from wanderbus.broker.readers import Link
from wanderbus.broker.servers.held_answers import HeldAnswers
from wanderbus.broker.state.rows import AdvertisementRow
from wanderbus.errors import FilterError, LimitExceeded, Refused
from wanderbus.event import Event
from wanderbus.filters import Filter
from wanderbus.filters.compiled import Test, compile_node
from wanderbus.subscription import EVERY_SUBJECT

PENDING = "advertisement_pending"
"""Limit of a refusal: the advertisement of the event does not count yet."""


class Advertisements:
    """Answers requests about advertisements, and decides whether an event is advertised.

    :param channels: the channels of the domain; None if this server is alone, where nothing requires an advertisement
    """

    def __init__(self, basics: Basics) -> None:
        self._state = basics.state
        self._journal = basics.journal
        self._links = basics.links
        self._servers = basics.servers
        self._config = basics.config
        self._decentralised = None if basics.channels is None else basics.channels.decentralised
        self._permissions = Permissions("may_publish", basics.config.may_publish)
        self._work = FilterWork(basics.config, lambda: basics.state.wall_us)
        self._bytes = FilterBytes()
        self._of_user: dict[str, dict[str, tuple[str, Test]]] = {}
        """Subject and filter of each advertisement, by user and id."""
        self._users: dict[str, str] = {}
        """User of each advertisement that is taken into account."""
        self._names: dict[str, str] = {}
        """Name below of each advertisement that other servers have to know; an imported one has another each time."""
        self._reports = 0
        self._held = HeldAnswers(basics.links)
        basics.state.advertisements.take_touched()
        self._follow(basics.state.advertisements)

    def answer(self, link: Link, request: protocol.AdvertisementRequest) -> None:
        """Serve a request; the answer is sent once the change is durable, and the advertisement counts."""
        self.go_on()
        try:
            if isinstance(request, protocol.Withdraw):
                if (row := self._of_device(link, request)) is not None:
                    self._withdraw([row.id])
                self._links.send(link, protocol.Done(request.request, ()))
            else:
                identity = self._advertise(link, request)
                self._held.when_effective(identity, link, lambda: self._confirm(identity, link, request))
        except (FilterError, LimitExceeded, Refused) as error:
            self._links.send(link, admission.refusal(request.request, error))

    def discard(self, user: str, device: str) -> None:
        """End every advertisement of a device (SPEC G-09)."""
        if rows := self._state.advertisements.of_device(user, device):
            self._withdraw([row.id for row in rows])

    def go_on(self) -> None:
        """Follow the advertisements that begin and end with other changes: of a device that leaves, of a session."""
        if touched := self._state.advertisements.take_touched():
            self._follow(touched)

    def became_effective(self, names: Iterable[str]) -> None:
        """Take a report that advertisements of these names count now, and answer the requests that waited for that."""
        self.go_on()
        if several := tuple([one for each in names for one in self._held.pending.confirmed(each)]):
            counted = records.AdvertisementsCounted(at_us=self._state.wall_us, advertisements=several)
            self._journal.write(counted, urgent=True)
        for identity in several:
            self._held.give(identity)

    def refusal(self, user: str, event: Event) -> Rejected | None:
        """Return why ``user`` may not publish an event here, None if an advertisement allows it or none is needed."""
        if self._decentralised is None or not self._decentralised.requires_advertisement(event.subject):
            return None
        self.go_on()
        subjects = (*self._decentralised.lineage(event.subject), EVERY_SUBJECT)
        matching = [
            identity
            for identity, (subject, test) in self._of_user.get(user, {}).items()
            if subject in subjects and self._work.holds(identity, test, event)
        ]
        undecided = self._work.take_undecided(event)
        decided = [each for each in matching if each not in undecided]
        if any(self._state.advertisements[each].counts for each in decided):
            return None
        if decided:
            reason = f"the advertisement of {event.subject!r} does not count at every server yet; try again later"
            return Rejected(protocol.shortened(reason), PENDING)
        if undecided:
            bound = next(iter(undecided.values())).bound
            reason = f"the filters of the advertisements of {user} are too costly for this event ({bound})"
            return Rejected(protocol.shortened(reason), bound if bound == "user_filter_work_per_s" else None)
        reason = f"no advertisement of {user} matches this event of {event.subject!r}; advertise it before publishing"
        return Rejected(protocol.shortened(reason))

    def foreign_refusal(self, link: Link, event: Event) -> Rejected | None:
        """Return why an event of a foreign domain cannot be published here yet, None if it can.

        Nobody advertises there. So this server advertises everything of the channel, and learns who wants it.
        """
        rejected = self.refusal(link.user, event)
        if rejected is None or rejected.limit is not None:
            return rejected
        try:
            self._advertise(link, protocol.Advertise(0, event.subject))
        except (LimitExceeded, Refused) as error:
            limit = error.limit if isinstance(error, LimitExceeded) else None
            return Rejected(protocol.shortened(error), limit)
        return self.refusal(link.user, event)

    # Requests ---------------------------------------------------------------------------------------------------

    def _advertise(self, link: Link, request: protocol.Advertise) -> str:
        """Return the id of the requested advertisement, which may exist already."""
        if (row := self._of_device(link, request)) is not None:
            return row.id
        state, user = self._state, link.user
        self._check(user, request)
        assert link.session is not None
        advertised = records.Advertised(
            at_us=state.wall_us,
            user=user,
            session=link.session,
            device=link.device,
            advertisement=str(state.next_id),
            subject=request.subject,
            expression=request.expression,
            language=request.language,
        )
        self._journal.write(advertised, urgent=True)
        self.go_on()
        return advertised.advertisement

    def _check(self, user: str, request: protocol.Advertise) -> None:
        """Raise the error of an advertisement that is invalid, not permitted, or one too many."""
        admission.check_subject(request.subject)
        if not self._servers.is_foreign(user) and (refusal := self._permissions.refusal(user, request.subject)):
            raise Refused(refusal)
        interest = read_filter(request.expression, request.language)
        admission.check_bytes("advertisement", len(protocol.encode(request)))
        most = self._config.user_advertisements_max
        if len(self._of_user.get(user, ())) >= most:
            raise LimitExceeded(
                f"{user} has the maximum of {most} advertisements; withdraw one first", "user_advertisements_max"
            )
        self._work.check(interest.work)
        self._bytes.check(user, interest.bytes, self._config.user_filter_bytes_max)

    def _of_device(self, link: Link, request: protocol.AdvertisementRequest) -> AdvertisementRow | None:
        wanted = request.subject, request.expression, request.language
        of_device = self._state.advertisements.of_device(link.user, link.device)
        return next((row for row in of_device if (row.subject, row.expression, row.language) == wanted), None)

    def _withdraw(self, advertisements: list[str]) -> None:
        ended = records.AdvertisementsWithdrawn(at_us=self._state.wall_us, advertisements=tuple(advertisements))
        self._journal.write(ended, urgent=True)
        self.go_on()

    def _confirm(self, identity: str, link: Link, request: protocol.Advertise) -> None:
        """Answer a request for an advertisement, which counts now or has ended."""
        if identity in self._state.advertisements:
            self._links.send(link, protocol.Done(request.request, ()))
        else:
            reason = "the advertisement was withdrawn before it counted"
            self._links.send(link, protocol.RequestRefused(request.request, reason))

    # Changes ----------------------------------------------------------------------------------------------------

    def _follow(self, touched: Iterable[str]) -> None:
        """Take up advertisements that have begun, drop those that have ended, and report both to the layer below."""
        rows = self._state.advertisements
        added = {}
        for identity in touched:
            row = None if identity in self._users else rows.get(identity)
            interest = None if row is None else self._take_up(row)
            if row is None or interest is None or not self._is_reported(row.subject):
                continue
            self._reports += 1
            name = self._names[identity] = f"{identity} advertised {self._reports}"
            added[name] = row.subject, interest
            if not row.counts:
                self._held.hold(identity, [name])
        ended = [each for each in touched if each not in rows and each in self._users]
        removed = tuple(known for each in ended if (known := self._drop(each)))
        if added or removed:
            self._journal.emit(AdvertisementsChanged(added, removed))

    def _is_reported(self, subject: str) -> bool:
        return self._decentralised is not None and bool(self._decentralised.advertised_at(subject))

    def _take_up(self, row: AdvertisementRow) -> Filter | None:
        """Compare events with an advertisement from now on; return its filter, None if it cannot be read any more."""
        try:
            interest = read_filter(row.expression, row.language)
        except FilterError:
            return None
        self._users[row.id] = row.user
        self._work.put(row.id, row.user, interest.work)
        self._bytes.put(row.id, row.user, interest.bytes)
        self._of_user.setdefault(row.user, {})[row.id] = row.subject, compile_node(interest.filter.root)
        return interest.filter

    def _drop(self, identity: str) -> str | None:
        """Forget an advertisement and answer who waits for it; return its name below, None if it was not reported."""
        user = self._users.pop(identity)
        of_user = self._of_user[user]
        del of_user[identity]
        if not of_user:
            del self._of_user[user]
        self._work.drop(identity)
        self._bytes.drop(identity)
        self._held.give(identity)
        return self._names.pop(identity, None)
