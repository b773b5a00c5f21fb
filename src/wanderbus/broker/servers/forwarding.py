"""Forwarding: events whose channel another server leads are published there, for the device (SPEC K-02).

The leader numbers the event and answers. It recognises a repeat by the publisher's own identifier, so a device repeats
what was not answered, as it does at a single server, whichever server it has reached meanwhile.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import Final

import msgspec

from wanderbus import protocol
from wanderbus.broker.basics import Basics
from wanderbus.broker.messages import ForgetPublishes, ForwardPublish, PublishAnswered
from wanderbus.broker.publish import outbox_orders
from wanderbus.broker.publish.acceptance import permission_refusal
from wanderbus.broker.publish.decisions import Conditions, Offered, Rejected, Source
from wanderbus.broker.readers import Link
from wanderbus.broker.servers.forwarded_publish import ForwardedPublish
from wanderbus.broker.servers.leader_messages import LeaderTrouble
from wanderbus.limits import FORWARDED_BYTES_MAX
from wanderbus.protocol.outbox_order import OUT_OF_TURN, in_turn

_EVENT_BYTES: Final = 1_024
"""Bytes that an event counts in addition to its own."""


class Forwarding:
    """Forwards the events of devices here to other servers, and passes the answers back.

    :param channels: the channels of the domain; None if this server is alone
    """

    def __init__(self, basics: Basics) -> None:
        self._journal = basics.journal
        self._links = basics.links
        self._servers = basics.servers
        self._channels = basics.channels
        self._requests = 0
        self._waiting: dict[int, ForwardedPublish] = {}
        self._request_of: dict[tuple[str, int], dict[int, int]] = {}
        """Requests of the waiting events by number, of each publisher in each of its epochs."""
        self._bytes_of: Counter[str] = Counter()
        """Bytes of the waiting events of each device."""
        self._troubles: dict[str, str] = {}
        """Reason why events wait for each of these leaders."""
        self._warned: dict[str, set[int]] = {}
        """Links that were notified of the trouble of a leader."""

    @property
    def waiting(self) -> Collection[object]:
        """Return what is kept of events until their leaders answer."""
        return [*self._waiting, *self._request_of, *self._bytes_of]

    def waits_for(self, device: str) -> bool:
        """Return whether an event of the device with this key waits for the answer of its leader."""
        return device in self._bytes_of

    def is_led_elsewhere(self, subject: str) -> bool:
        """Return whether another server leads the channel of ``subject``."""
        return self._channels is not None and not self._channels.leads(subject)

    def refusal(self, link: Link, source: Source, offered: Offered, now: Conditions) -> Rejected | None:
        """Return why an event of the device on ``link`` is not forwarded, None if it may be."""
        if link.is_server:
            assert self._channels is not None
            subject, here = offered.event.subject, self._channels.server
            leader = self._channels.leader(subject)
            return Rejected(f"{leader} leads the channel of {subject!r}, not {here}; compare the domain files")
        if refusal := permission_refusal(source, offered, now):
            return refusal
        if self._bytes_of[link.key] >= FORWARDED_BYTES_MAX and self._request(source) is None:
            reason = "too many events wait for the servers that lead their channels; try again later"
            return Rejected(reason, "forwarded_bytes_max")
        return offered.rejected

    def forward(self, link: Link, source: Source, offered: Offered) -> None:
        """Send an event of the device on ``link`` to the leader of its channel, unless it is on its way already."""
        if (request := self._request(source)) is not None:
            self._waiting[request] = self._waiting[request]._replace(link=link.link, number=source.request)
            return
        request = self._requests = self._requests + 1
        size = _EVENT_BYTES + len(offered.encoded)
        self._request_of.setdefault((source.key, source.epoch), {})[source.number] = request
        leader = "" if self._channels is None else self._channels.leader(offered.event.subject)
        publisher = source.user, source.device, source.epoch, source.number
        raw = msgspec.Raw(offered.encoded)
        publish = protocol.PublishFor(request, *publisher, raw, source.received_us, source.is_outbox)
        self._waiting[request] = ForwardedPublish(
            (source.key, source.epoch, source.number),
            link.link,
            source.request,
            source.is_outbox,
            link.key,
            size,
            leader,
            publish,
            offered.event.subject,
        )
        self._bytes_of[link.key] += size
        self._warn(leader, link)
        self._journal.emit_now(ForwardPublish(leader, publish))

    def take(self, given: PublishAnswered | LeaderTrouble) -> None:
        """Take an answer of a leader, or a report about it."""
        if isinstance(given, PublishAnswered):
            self._answered(given)
        else:
            self._on_trouble(given)

    def _answered(self, given: PublishAnswered) -> None:
        """Pass the answer of a leader to the device, unless its link is closed: then it publishes again."""
        if given.request not in self._waiting:
            return
        forwarded = self._take(given.request)
        if (link := self._links.get(forwarded.link)) is not None:
            self._pass_on(link, forwarded, given)
        if given.id is None and forwarded.is_outbox:
            is_foreign = self._servers.is_foreign(forwarded.publish.user)
            if outbox_orders.holds_back(given.limit, is_foreign=is_foreign):
                self._hold_back(forwarded, str(given.limit), is_foreign=is_foreign)

    def _pass_on(self, link: Link, forwarded: ForwardedPublish, given: PublishAnswered) -> None:
        number, is_outbox = forwarded.number, forwarded.is_outbox
        if given.id is not None:
            self._links.send(link, protocol.PublishAccepted(number, given.id, is_outbox))
        else:
            self._links.send(link, protocol.PublishRefused(number, given.reason, given.limit, is_outbox))

    def _hold_back(self, refused: ForwardedPublish, limit: str, *, is_foreign: bool) -> None:
        """Refuse what an outbox has published behind an event that its leader has refused.

        The leader does so too, for one link between the servers. The device may go on at another server, or the next
        gateway, so nothing of this may be sent on a later link.
        """
        key, epoch, number = refused.id
        if (link := self._links.get(refused.link)) is not None:
            outbox_orders.hold_back(link, (key, epoch), number, limit, is_foreign=is_foreign)
        later: dict[str, list[int]] = {}
        for request in [each for at, each in self._request_of.get((key, epoch), {}).items() if at > number]:
            behind = self._take(request)
            later.setdefault(behind.leader, []).append(request)
            if (waiting := self._links.get(behind.link)) is not None:
                answer = protocol.PublishRefused(behind.number, OUT_OF_TURN, limit, behind.is_outbox)
                self._links.send(waiting, answer)
        for leader, several in later.items():
            self._journal.emit_now(ForgetPublishes(leader, tuple(several)))

    def take_back(self, group: int) -> list[tuple[Link, protocol.PublishFor]]:
        """Wait no longer for the former leader of a channel group; return what it was sent, in order, with its links.

        What it has accepted of that is known to the next leader.
        """
        channels = self._channels
        assert channels is not None
        groups, found = channels.directory.groups, []
        publishes = [each.publish for each in self._waiting.values() if groups.group_of(each.subject) == group]
        of_leader: dict[str, list[int]] = {}
        for publish in in_turn(publishes):
            forwarded = self._take(publish.request)
            of_leader.setdefault(forwarded.leader, []).append(publish.request)
            if (link := self._links.get(forwarded.link)) is not None:
                found.append((link, msgspec.structs.replace(publish, request=forwarded.number)))
        for leader, several in of_leader.items():
            self._journal.emit_now(ForgetPublishes(leader, tuple(several)))
        return found

    def _request(self, source: Source) -> int | None:
        """Return the request of an event that waits for an answer already, None if it does not."""
        return self._request_of.get((source.key, source.epoch), {}).get(source.number)

    def _take(self, request: int) -> ForwardedPublish:
        """Remove an event that waits for an answer."""
        forwarded = self._waiting.pop(request)
        key, epoch, number = forwarded.id
        requests = self._request_of[key, epoch]
        del requests[number]
        if not requests:
            del self._request_of[key, epoch]
        self._bytes_of[forwarded.device] -= forwarded.size
        if not self._bytes_of[forwarded.device]:
            del self._bytes_of[forwarded.device]
        return forwarded

    def _on_trouble(self, given: LeaderTrouble) -> None:
        """Tell the devices whose events wait for a leader why, and when that is over."""
        if given.reason:
            self._troubles[given.leader] = given.reason
            self._warned.pop(given.leader, None)
            for waiting in list(self._waiting.values()):
                if waiting.leader == given.leader and (link := self._links.get(waiting.link)) is not None:
                    self._warn(given.leader, link)
            return
        self._troubles.pop(given.leader, None)
        for number in self._warned.pop(given.leader, ()):
            if (warned := self._links.get(number)) is not None:
                self._links.send(warned, protocol.PublishesWait(""))

    def _warn(self, leader: str, link: Link) -> None:
        """Tell a device, once, why its events wait for ``leader``."""
        if (reason := self._troubles.get(leader)) is None or not link.knows_waits:
            return
        warned = self._warned.setdefault(leader, set())
        if link.link not in warned:
            warned.add(link.link)
            self._links.send(
                link, protocol.PublishesWait(protocol.shortened(f"{leader}, which leads their channels: {reason}"))
            )
