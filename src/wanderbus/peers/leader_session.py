"""Session of this server at one leader: its events arrive here, and events of devices here are published there.

The leader treats this server as it treats an agent (decision 0085). The session outlives links and restarts of both
sides: a new link begins behind the last event that is durable here, and repeats the publishes without an answer.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from wanderbus import protocol
from wanderbus.broker.messages import (
    EventArrived,
    FiltersArrived,
    GroupsArrived,
    LeaderAnswered,
    LeaderEventsLost,
    LeaderLinkChanged,
    PublishAnswered,
)
from wanderbus.broker.rollback.messages import ArrivalsRewound, InterestLost
from wanderbus.broker.servers.leader_messages import LeaderTrouble
from wanderbus.broker.state.rows import LeaderRow
from wanderbus.errors import RemoteProtocolError
from wanderbus.event import Position
from wanderbus.peers.leader_interest import LeaderInterest
from wanderbus.peers.messages import CloseServerLink, SendOnServerLink
from wanderbus.peers.parts import AboutServers
from wanderbus.protocol.domains import GroupLeaders, GroupPublishers
from wanderbus.protocol.outbox_order import in_turn
from wanderbus.protocol.session_stream import SessionStream

SESSION = "default"
"""Name of a server's session at a leader."""

_QUESTIONS: Final = 2**32
"""Added to the numbers of requests about channels: no request for a subscription has so high a number."""


class LeaderSession:
    """This server's side of its session at ``leader``.

    Methods put messages for the link, and inputs for the broker, into ``outputs``.

    :param epoch: identifies this life of the server
    :param position: the last event of the leader that is durable here
    :param reports_interest: whether the leader waits for a report that it has all interest of this server
    """

    def __init__(
        self,
        leader: str,
        interest: LeaderInterest,
        outputs: list[AboutServers],
        *,
        epoch: int,
        position: LeaderRow,
        reports_interest: bool = True,
    ) -> None:
        self.leader = leader
        self.interest = interest
        self._outputs = outputs
        self._epoch = epoch
        self.position = position
        """The last event of the leader that is durable here."""
        self._link: int | None = None
        self._stream = SessionStream()
        self._is_attached = False
        """True once the leader has described the session on this link."""
        self._last = 0
        """Last number that was sent on this link."""
        self._taken = 0
        """Last number to acknowledge with the next batch, 0 if there is none."""
        self._reports_interest = reports_interest
        self._is_settled = False
        """True once this link has reported to the leader that it has all interest of this server."""
        self._publishes: dict[int, protocol.PublishFor] = {}
        """Publishes without an answer, by request."""
        self._questions: dict[int, str] = {}
        """Channels that the requests without an answer are about, by number."""

    @property
    def link(self) -> int | None:
        """Return the open link to the leader, None while there is none."""
        return self._link

    @property
    def waiting_publishes(self) -> int:
        """Return the number of publishes without an answer."""
        return len(self._publishes)

    def opened(self, link: int) -> None:
        """Attach on a new link, ask for the subscriptions there, and repeat the publishes without an answer."""
        self.closed()
        self._link, self._is_attached, self._last, self._taken, self._is_settled = link, False, 0, 0, False
        attach = protocol.Attach(
            self._epoch, SESSION, self._resume, keep=True, seen=self._stream.seen, knows_waits=True
        )
        self.send([attach, *self.interest.begin()])
        self.send([*in_turn(self._publishes.values())])
        self._outputs.append(LeaderLinkChanged(self.leader, link))

    @property
    def _resume(self) -> Position | None:
        return Position(self.position.epoch, self.position.number) if self.position.number else None

    def closed(self) -> None:
        """Wait for the next link; refuse requests about channels: who made them can decide whether to wait."""
        if self._link is not None:
            self._outputs.append(LeaderLinkChanged(self.leader, None))
        self._link = None
        self.interest.end()
        for number in list(self._questions):
            self._refuse(number)

    def send(self, messages: list[protocol.AgentMessage]) -> None:
        """Send messages in order; without a link they are lost, since the next one starts from the beginning."""
        if self._link is not None:
            self._outputs += [SendOnServerLink(self._link, protocol.encode(each)) for each in messages]

    def publish(self, publish: protocol.PublishFor) -> None:
        """Publish an event of a device at the leader; it is repeated on each new link until it is answered."""
        self._publishes[publish.request] = publish
        self.send([publish])

    def forget(self, requests: Iterable[int]) -> None:
        """Wait no longer for the answers to these publishes."""
        for request in requests:
            self._publishes.pop(request, None)

    def ask(self, request: protocol.ListEvents | protocol.MoveGroup) -> None:
        """Pass a request about a channel to the leader, or refuse it if there is no link."""
        number = _QUESTIONS + request.request
        subject = request.subject if isinstance(request, protocol.ListEvents) else request.group
        self._questions[number] = (
            f"channel group {subject}" if isinstance(subject, int) else f"the channel of {subject!r}"
        )
        if self._link is None:
            self._refuse(number)
        else:
            self.send([msgspec.structs.replace(request, request=number)])

    def send_on(self, link: int, message: protocol.AgentMessage) -> None:
        """Send a message that makes sense on this link alone; it is lost if there is another one, or none."""
        if link == self._link:
            self.send([message])

    def taken(self, epoch: int, number: int) -> None:
        """Acknowledge the events up to ``number``, which are durable here, with the end of the batch."""
        self.position = LeaderRow(epoch, number)
        self._taken = self._stream.number(self._resume) if self._is_attached else 0

    def begin_again(self) -> None:
        """Close the link: the next one begins behind the last event that is durable here."""
        if self._link is not None:
            self._outputs.append(CloseServerLink(self._link, f"events of {self.leader} are missing; asking again"))

    def finish(self) -> None:
        """End a batch: report that the leader has all interest, once it has; acknowledge what is durable."""
        if self.interest.take_lost():
            self._outputs.append(InterestLost(self.leader))
        if self._reports_interest and not self._is_settled and self.interest.is_complete:
            self._is_settled = True
            self.send([protocol.SettleInterest()])
        if self._taken:
            self.send([protocol.NotifyAck(0, self._taken)])
            self._taken = 0

    def received(self, payload: bytes) -> bool:
        """Take a message of the leader; return whether a temporarily refused subscription has to be retried."""
        try:
            message = protocol.decode_from_broker(payload)
        except RemoteProtocolError as error:
            self._close(str(error))
            return False
        match message:
            case protocol.NotifyServer():
                self._on_event(message)
            case protocol.PublishAccepted(number=request, id=identity):
                self._stream.confirmed(identity)
                if self._publishes.pop(request, None):
                    self._outputs.append(PublishAnswered(request, identity))
            case protocol.PublishesWait(reason=reason):
                self._outputs.append(LeaderTrouble(self.leader, reason))
            case protocol.PublishRefused():
                self._on_publish_refused(message)
            case protocol.Attachment():
                self._on_attachment(message)
            case protocol.Done():
                for subscription in message.subscriptions:
                    self._stream.subscribed(subscription)
                self.send(self.interest.done(message))
            case protocol.NotifyGap():
                self._on_gap(message)
            case protocol.Filters():
                self._outputs.append(FiltersArrived(self.leader, message))
            case GroupLeaders() | GroupPublishers() if self._link is not None:
                self._outputs.append(GroupsArrived(self.leader, self._link, message))
            case protocol.SubscriptionEnded(subscription=subscription):
                self.send(self.interest.ended(subscription.id))
            case protocol.Listing() | protocol.RequestRefused() if message.request in self._questions:
                self._on_answer(message)
            case protocol.RequestRefused(request=request, reason=reason):
                if self.interest.refused(request):
                    return True
                if not self._is_attached:
                    self._close(reason)
            case _:
                pass  # an agent's; nothing here asked for it
        return False

    def _close(self, reason: str) -> None:
        if self._link is not None:
            self._outputs.append(CloseServerLink(self._link, f"{self.leader}: {reason}"))

    def _on_attachment(self, attachment: protocol.Attachment) -> None:
        """Compare the position here with the session at the leader; one of the two may be an earlier copy.

        A leader that attaches again has found that its log is one, so it may lack interest that it has confirmed.
        """
        is_first, self._is_attached = not self._is_attached, True
        self._stream.replaced_by(attachment)
        if not is_first:
            self._is_settled = False
            self.send(self.interest.begin())
            return
        common = self._stream.number(self._resume)
        if is_own := common == self.position.number < attachment.taken:
            common = attachment.taken
        if common != self.position.number:
            epoch = self._stream.position(common).epoch
            self._outputs.append(ArrivalsRewound(self.leader, epoch, common, is_own))

    def _on_event(self, message: protocol.NotifyServer) -> None:
        self._last, encoded = message.number, bytes(message.event)
        try:
            event = protocol.decode_event(encoded)
        except RemoteProtocolError as error:
            self._close(str(error))
            return
        epoch = self._stream.position(message.number).epoch if self._is_attached else 0
        position = epoch, message.number, message.before
        self._outputs.append(EventArrived(self.leader, *position, message.id, message.at_us, event, encoded))

    def _on_gap(self, message: protocol.NotifyGap) -> None:
        before, self._last = self._last, message.last
        count = max((loss.count for loss in message.lost), default=1)
        reason = message.lost[0].reason if message.lost else "unknown"
        epoch = self._stream.position(message.last).epoch if self._is_attached else 0
        self._outputs.append(LeaderEventsLost(self.leader, epoch, before, message.last, count, reason))

    def _on_answer(self, answer: protocol.Listing | protocol.RequestRefused) -> None:
        number = answer.request
        if not (isinstance(answer, protocol.Listing) and answer.more):
            del self._questions[number]
        self._outputs.append(LeaderAnswered(msgspec.structs.replace(answer, request=number - _QUESTIONS)))

    def _refuse(self, number: int) -> None:
        reason = f"{self.leader}, which leads {self._questions[number]}, cannot be reached now; try again later"
        self._on_answer(protocol.RequestRefused(number, reason))

    def _on_publish_refused(self, message: protocol.PublishRefused) -> None:
        """Pass a refusal on; the broker here takes back at once what it has published behind the event (0167)."""
        if self._publishes.pop(message.number, None) is not None:
            self._outputs.append(PublishAnswered(message.number, None, message.reason, message.limit))
