"""Causal order of the events that servers send to each other directly (SPEC K-04, K-06; decision 0088).

An event is delivered once everything is delivered here that was sent here and precedes it. What precedes an event is
everything that its server had delivered or published before.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from wanderbus.channels.causal.header import CausalPast, Dot, Header, HeaderEntry, Origin
from wanderbus.channels.causal.header_codec import HeaderDecoder, HeaderEncoder
from wanderbus.channels.causal.held_item import HeldItem
from wanderbus.channels.causal.held_items import HeldItems
from wanderbus.channels.causal.interface import (
    Acked,
    AnyCausalRecord,
    AskAnswered,
    AskForEvent,
    Carried,
    CausalAcknowledged,
    CausalDelivered,
    CausalLinkClosed,
    CausalLinkOpened,
    Deliver,
    EntriesLearnt,
    EventsDropped,
    ExportPast,
    GapFound,
    Hello,
    ImportPast,
    LogRewound,
    Marked,
    MarkHeard,
    Message,
    MessageCame,
    OriginEnded,
    Passed,
    PastExported,
    PastReached,
    PublishTo,
    RemoveServer,
    SendToPeer,
    ServerRemoved,
    Welcome,
    WriteRecord,
)
from wanderbus.channels.causal.out_link import OutLink
from wanderbus.channels.causal.state import MARK, CausalState
from wanderbus.machine import Input, Output, SetTimer, TimerFired

CAUSES_TIMER: Final = "causes"
"""Key of the timer that asks for missing causes."""

MARK_TIMER: Final = "mark"
"""Key of the timer that sends the settled mark."""


class CausalServer:
    """Causal order at one server: ``step(inputs, now) -> outputs``.

    ``state`` is that of its log, and has its number and incarnation. The server changes it with each record that it
    writes. A server that lost its log gets a higher incarnation.
    """

    def __init__(self, state: CausalState) -> None:
        self.state = state
        self.origin = state.origin
        self.server = state.origin[0]
        self.limits = state.limits
        self.delivered = state.delivered
        self.knowledge = state.knowledge
        self.outgoing = state.outgoing
        self.held = HeldItems()
        self._incarnations = state.incarnations
        self._ended = state.ended
        self._timer_is_set = self._mark_timer_is_set = False
        self._acks: dict[int, int] = {}
        self._outputs: list[Output] = []
        self._reached: list[PastReached] = []

    def step(self, inputs: Iterable[Input], now: float) -> list[Output]:
        """Take a batch of inputs at monotonic second ``now``; return the outputs in order."""
        for given in inputs:
            match given:
                case PublishTo():
                    self._on_publish(given)
                case MessageCame(server=server, message=message) if server not in self.knowledge.removed:
                    self._on_message(server, message, now)
                case CausalLinkOpened(server=server) if server not in self.knowledge.removed:
                    self.outgoing.link(server).open()
                    incarnation = self._incarnations.get(server, 0)
                    cursor = self.delivered.get((server, incarnation), 0)
                    self._send(server, Hello(self.origin[1], incarnation, cursor))
                case CausalLinkClosed(server=server):
                    if server in self.outgoing.links:
                        self.outgoing.links[server].close()
                case ExportPast(token=token):
                    self._outputs.append(PastExported(token, self.state.past()))
                case ImportPast(token=token, past=past, source=source):
                    causes = past.causes_at(self.server)
                    self._hold(HeldItem(token, past, b"", source, now, causes))
                case RemoveServer():
                    self._on_remove(given)
                case TimerFired(key="mark"):
                    self._mark_timer_is_set = False
                    self._send_marks()
                case TimerFired(key="causes"):
                    self._timer_is_set = False
                    self._ask_for_causes(now)
        return self._finish(now)

    def begin_again(self) -> None:
        """Go on in the incarnation that the state has begun; all links have to be opened again."""
        self.origin = self.state.origin

    def waits_for(self, server: int) -> bool:
        """Return whether anything waits for an event of ``server``."""
        return self.held.waits_for(server)

    # Publishing ------------------------------------------------------------------------------------------------------

    def _on_publish(self, publish: PublishTo) -> None:
        servers = publish.servers - self.knowledge.removed - {self.server}
        self._outputs.append(WriteRecord(self.state.publish(servers, publish.payload)))
        dropped = self.outgoing.drop_oldest()
        self._outputs += [WriteRecord(EventsDropped(*each)) for each in dropped]
        for each, _ in dropped:
            self._welcome(each, 0)

    def _welcome(self, server: int, cursor: int) -> None:
        """Name the events that follow to a server with this ``cursor``."""
        link = self.outgoing.link(server)
        if link.is_welcomed:
            entries = self.knowledge.entries() if cursor < link.base else ()
            # What it acknowledged in this incarnation, and does not know, it has lost.
            is_forgotten = cursor < link.base and link.acknowledged_by == self._incarnations.get(server, 0)
            is_lossy = link.dropped > cursor or is_forgotten
            self._send(server, Welcome(self.origin[1], link.base, is_lossy, entries, is_forgotten))

    # Messages --------------------------------------------------------------------------------------------------------

    def _on_message(self, server: int, message: Message, now: float) -> None:
        match message:
            case Hello():
                self._on_hello(server, message)
            case Welcome(incarnation=incarnation, base=base):
                if message.is_forgotten:
                    self._outputs.append(LogRewound(server, ((server, incarnation), base)))
                self._note_incarnation(server, incarnation)
                self._learn(message.entries)
                origin = server, incarnation
                if base > self.delivered.get(origin, 0):
                    self._pass_over(origin, base, is_lost=message.is_lossy or origin in self.delivered)
            case Carried(header=data, payload=payload):
                link = self.outgoing.link(server)
                header = link.decoder.decode(data)
                link.learned((*header.entries, HeaderEntry(header.origin, header.number, header.servers)))
                self._on_event(header, payload, server, now)
            case Acked(incarnation=incarnation, number=number):
                if incarnation == self.origin[1]:
                    self._acknowledge(server, number)
                self._on_mark(server, message)
            case Marked():
                self._on_mark(server, message)
            case AskForEvent(origin=origin, number=number):
                self._on_ask(server, origin, number)
            case AskAnswered():
                self._on_answer(server, message, now)

    def _on_mark(self, server: int, mark: Acked | Marked) -> None:
        link = self.outgoing.link(server)
        link.mark_heard += mark.settled_more
        origin = server, self._incarnations.get(server, 0)
        if not self.knowledge.is_settled_at(origin, link.mark_heard, mark.lagging):
            self._write(MarkHeard(origin, link.mark_heard, mark.lagging))

    def _on_hello(self, server: int, hello: Hello) -> None:
        self._note_incarnation(
            server, hello.incarnation, is_rolled_back=hello.is_rolled_back, is_marked=hello.is_marked
        )
        own = self.origin[1]
        if (hello.cursor_incarnation, hello.cursor) > (own, self.outgoing.last):
            missing = (self.server, hello.cursor_incarnation), hello.cursor
            self._outputs.append(LogRewound(server, missing))
            return
        cursor = hello.cursor if hello.cursor_incarnation == own else 0
        self._acknowledge(server, cursor)
        link = self.outgoing.link(server)
        link.is_welcomed = True
        self._welcome(server, cursor)

    def _acknowledge(self, server: int, number: int) -> None:
        record = CausalAcknowledged(server, number, self._incarnations.get(server, 0))
        if self.state.acknowledge(record):
            self._outputs.append(WriteRecord(record))

    def _note_incarnation(
        self, server: int, incarnation: int, *, is_rolled_back: bool = False, is_marked: bool = False
    ) -> None:
        """End the earlier incarnations of ``server``: their log is lost, also what never arrived here.

        There is a gap for that now, unless a mark in the later incarnation has its place.
        """
        known = self._incarnations.get(server, 0)
        if incarnation > known:
            self._incarnations[server] = incarnation
            earlier = [each for each in self.delivered if each[0] == server and each[1] < incarnation]
            if not earlier and (known or is_rolled_back):
                earlier = [(server, incarnation - 1)]
            for origin in earlier:
                self._end(origin, has_gap=not is_marked)

    def _end(self, origin: Origin, *, has_gap: bool = True) -> None:
        if origin not in self._ended:
            self._ended.add(origin)
            self._outputs.append(WriteRecord(OriginEnded(origin)))
            if has_gap:
                self._outputs.append(GapFound(origin, self.delivered.get(origin, 0), None))

    # Delivery --------------------------------------------------------------------------------------------------------

    def _on_event(self, header: Header, payload: bytes, source: int, now: float) -> None:
        origin, number = header.dot
        self._note_incarnation(*origin)
        if number > self.delivered.get(origin, 0) and origin[0] not in self.knowledge.forgotten:
            self._hold(HeldItem(header.dot, header, payload, source, now, header.causes_at(self.server)))
            return
        self._ack(origin)
        # It may have been passed over, and what it tells still counts.
        self._learn(header.entries)

    def _learn(self, entries: tuple[HeaderEntry, ...]) -> None:
        if self.knowledge.learn_entries(entries, self.outgoing.last):
            self._outputs.append(WriteRecord(EntriesLearnt(entries)))

    def _hold(self, item: HeldItem) -> None:
        if self.held.add(item):
            self._examine([item])

    def _examine(self, items: list[HeldItem]) -> None:
        """Deliver the items that lack no cause, and what that makes deliverable; the others wait."""
        while items:
            item = items.pop()
            missing = next((cause for cause in item.causes if not self._is_reached(cause)), None)
            if missing is not None:
                self.held.wait(item, missing)
                continue
            self.held.pop(item)
            if isinstance(item.what, CausalPast):
                assert isinstance(item.key, int)
                self._reach_past(item.key, item.what)
            elif item.what.number > self.delivered.get(item.what.origin, 0):
                self._deliver(item.what, item.payload)
                items += self.held.woken(self.delivered, item.what.origin)
            else:
                self._learn(item.what.entries)

    def _is_reached(self, cause: Dot) -> bool:
        origin, number = cause
        return (
            number <= self.delivered.get(origin, 0) or origin[0] in self.knowledge.forgotten or origin[0] == self.server
        )

    def _deliver(self, header: Header, payload: bytes) -> None:
        self._write(CausalDelivered(header, payload))
        if payload == MARK:
            self._outputs.append(GapFound(header.origin, header.number - 1, header.number))
        else:
            self._outputs.append(Deliver(header, payload))
        self._ack(header.origin)

    def _ack(self, origin: Origin) -> None:
        if origin in self.delivered and origin[1] == self._incarnations.get(origin[0]):
            self._acks[origin[0]] = self.delivered[origin]

    # Missing causes --------------------------------------------------------------------------------------------------

    def _ask_for_causes(self, now: float) -> None:
        """Ask the source of each item for its missing cause, and give up those that are lost."""
        for item in list(self.held.items.values()):
            cause = item.missing
            if cause is None or item.key not in self.held.items or now - item.since < self.limits.ask_after_s:
                continue
            if any(isinstance(key, tuple) and key[0] == cause[0] and key[1] <= cause[1] for key in self.held.items):
                continue  # the cause, or one before it, is here and waits itself
            patience_s = self.limits.patience_s
            is_over = patience_s is not None and now - item.since >= patience_s
            is_refused = item.refused == cause or item.source in {cause[0][0], *self.knowledge.removed}
            if is_over or (is_refused and self._is_ended(cause[0])):
                self._pass_over(*cause, is_lost=True)
            elif item.asked is None or item.asked[0] != cause or now - item.asked[1] >= self.limits.ask_after_s:
                item.asked = cause, now
                if item.source != cause[0][0]:
                    self._send(item.source, AskForEvent(*cause))

    def _is_ended(self, origin: Origin) -> bool:
        server, incarnation = origin
        return server in self.knowledge.removed or incarnation < self._incarnations.get(server, 0)

    def _on_ask(self, server: int, origin: Origin, number: int) -> None:
        found = self.outgoing.find(number) if origin == self.origin else self.state.find_kept((origin, number))
        if found is None:
            self._send(server, AskAnswered(origin, number))
            return
        header, payload = found
        # The header came here without what this server knew already; all that it knows now includes that.
        known = ((entry, entry.servers & ~header.servers) for entry in self.knowledge.entries())
        more = (HeaderEntry(entry.origin, entry.number, servers) for entry, servers in known if servers)
        full = msgspec.structs.replace(header, entries=(*header.entries, *more))
        self._send(server, AskAnswered(origin, number, HeaderEncoder().encode(full), payload))

    def _on_answer(self, server: int, answer: AskAnswered, now: float) -> None:
        if answer.header:
            header = HeaderDecoder().decode(answer.header)
            if header.servers >> self.server & 1:
                self._on_event(header, answer.payload, server, now)
            return
        for item in self.held.items.values():
            if item.source == server and item.missing == (answer.origin, answer.number):
                item.refused = item.missing

    def _pass_over(self, origin: Origin, number: int, *, is_lost: bool) -> None:
        """Wait for no event of ``origin`` up to ``number``."""
        after = self.delivered.get(origin, 0)
        self.delivered[origin] = number
        self._outputs.append(WriteRecord(Passed(origin, number)))
        if is_lost:
            self._outputs.append(GapFound(origin, after, number))
        self._examine(self.held.woken(self.delivered, origin))

    # Sessions that move, and servers that leave ----------------------------------------------------------------------

    def _reach_past(self, token: int, past: CausalPast) -> None:
        self._write(EntriesLearnt(past.entries, token))
        self._reached.append(PastReached(token))

    def _on_remove(self, remove: RemoveServer) -> None:
        server = remove.server
        self._write(ServerRemoved(server, remove.is_forgotten))
        for origin in [each for each in self.delivered if each[0] == server]:
            self._end(origin)
        if remove.is_forgotten:
            self._examine(self.held.freed(server))

    # Outputs ---------------------------------------------------------------------------------------------------------

    def _write(self, record: AnyCausalRecord) -> None:
        self.state.apply(record)
        self._outputs.append(WriteRecord(record))

    def _send(self, server: int, message: Message) -> None:
        link = self.outgoing.links.get(server)
        if link is not None and link.is_up:
            self._outputs.append(SendToPeer(server, message))

    def _links_to_mark(self) -> Iterator[OutLink]:
        settled, _ = self.outgoing.settled()
        return (link for link in self.outgoing.links.values() if link.wants_mark(settled))

    def _send_marks(self) -> None:
        settled, lagging = self.outgoing.settled()
        for link in list(self._links_to_mark()):
            self._send(link.server, Marked(link.mark(settled), lagging))

    def _finish(self, now: float) -> list[Output]:
        """Send acknowledgements and due events after all records of the step; return the outputs."""
        for server, number in self._acks.items():
            settled, lagging = self.outgoing.settled()
            link = self.outgoing.link(server)
            self._send(server, Acked(self._incarnations[server], number, link.mark(settled), lagging))
        self._outputs += self.outgoing.pump()
        if not self._mark_timer_is_set and any(self._links_to_mark()):
            self._mark_timer_is_set = True
            self._outputs.append(SetTimer(MARK_TIMER, now + self.limits.mark_after_s))
        if self.held.items and not self._timer_is_set:
            self._timer_is_set = True
            self._outputs.append(SetTimer(CAUSES_TIMER, now + self.limits.ask_after_s))
        # What is published because of them knows all that was delivered in this step, and follows it in the log.
        outputs = self._outputs + self._reached
        self._outputs, self._acks, self._reached = [], {}, []
        return outputs
