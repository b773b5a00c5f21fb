"""Party of a reliable UDP world: an endpoint, its address, and an application that sends and compares."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from typing import Final, Literal

from wanderbus.machine import Address, DatagramReceived, Input, Output, SendDatagram
from wanderbus.rudp import (
    ChangePath,
    CloseConnection,
    ConnectionFailed,
    ConnectionReset,
    Consumed,
    Endpoint,
    FinishSending,
    GapDetected,
    MessageReceived,
    MovedHere,
    OpenConnection,
    PathChanged,
    PeerFinished,
    Probe,
    ProbeAnswered,
    RudpConfig,
    SendMessage,
)
from wanderbus.rudp.interface import Secrets
from wanderbus.simulation.network import Network, PathConditions
from wanderbus.simulation.node import Node
from wanderbus.simulation.rudp.watch import Watch
from wanderbus.simulation.world import SeededRandom, World

PORT: Final = 40_000

State = Literal["waiting", "open", "failed", "reset", "closed"]
"""``waiting``: the peer may know the id already; ``closed``: the owner, or a crash, has forgotten it."""


class End:
    """One application's view of one connection."""

    channel: Channel

    def __init__(self, party: RudpParty, local_id: int) -> None:
        self.party = party
        self.local_id = local_id
        self.remote_id = 0
        self.peer: End = self
        self.state: State = "waiting"
        self.sent: list[bytes] = []
        self.taken = 0
        self.generation = 0
        self.known: tuple[int, Address] = (0, party.address)
        """Generation and address of the peer, as learnt from signalling and challenges."""
        self.unconsumed = 0
        self.finished = False
        self.peer_finished = False
        self.answered = False
        """True if a probe was answered after the connection failed."""

    @property
    def outstanding(self) -> int:
        """Messages that the peer's application has not received yet."""
        return len(self.sent) - self.peer.taken

    @property
    def leads_to_peer(self) -> bool:
        """Return whether this side sends to the peer's current address."""
        return self.known[1] == self.peer.party.address


class Channel:
    """The two ends of a connection: the requesting one first."""

    def __init__(self, dialled: End, accepted: End) -> None:
        self.dialled = dialled
        self.accepted = accepted
        self.ends = dialled, accepted
        for end, peer in ((dialled, accepted), (accepted, dialled)):
            end.channel, end.peer = self, peer
            end.remote_id, end.known = peer.local_id, (0, peer.party.address)

    @property
    def is_open_at_both(self) -> bool:
        """Return whether both sides regard it as open."""
        return all(end.state == "open" for end in self.ends)

    @property
    def is_broken(self) -> bool:
        """Return whether one side has lost it, and not both have forgotten it."""
        states = {end.state for end in self.ends}
        return states != {"closed"} and not states.isdisjoint(("failed", "reset", "closed"))

    @property
    def can_reach(self) -> bool:
        """Return whether at least one side knows the other's address; otherwise only signalling could help."""
        return any(end.leads_to_peer for end in self.ends)


class PartyNode(Node):
    """The node of a party: shows all its traffic to the watch, and notes it in short."""

    party: RudpParty

    def perform(self, outputs: Sequence[Output]) -> None:
        """Perform the outputs of the endpoint."""
        super().perform(outputs)
        self.party.check_acknowledged()

    def _note(self, label: str, what: Input | Output) -> None:
        if isinstance(what, DatagramReceived):
            self._world.note(self.name, f"{label} {what.source} {_short(what.data)}")
        elif isinstance(what, SendDatagram):
            self._world.note(self.name, f"{label} {what.destination} {_short(what.data)}")
        elif isinstance(what, SendMessage | MessageReceived):
            self._world.note(self.name, f"{label} {type(what).__name__} {what.local_id:x} {_short(what.payload)}")
        else:
            super()._note(label, what)

    def _transmit(self, source: Address, destination: Address, data: bytes) -> None:
        self.party.watch.leaves(self.name, destination, data, self._world.now)
        super()._transmit(source, destination, data)

    def feed(self, inputs: Sequence[Input]) -> None:
        """Feed ``inputs`` to the endpoint, datagrams one at a time."""
        if self.alive:
            for given in inputs:
                if isinstance(given, DatagramReceived):
                    self.party.arriving(given)
            super().feed(inputs)


class RudpParty:
    """One endpoint at one address; its reset key survives a restart, its connections do not.

    ``conditions`` are those of the path towards it, ``think_s`` is the time its application takes to consume, and
    ``on_ended`` is called with an end that failed or was reset.
    """

    def __init__(
        self,
        number: int,
        world: World,
        network: Network,
        watch: Watch,
        config: RudpConfig,
        *,
        conditions: PathConditions,
        think_s: float,
        on_ended: Callable[[End], None],
    ) -> None:
        self.name = f"party{number}"
        self.watch = watch
        self.config = config
        self.conditions = conditions
        self.think_s = think_s
        self.ends: list[End] = []
        self.problems = watch.problems
        self.resets = self.failures = self.learnt = 0
        self._world = world
        self._network = network
        self._number = number
        self._on_ended = on_ended
        self._places = 0
        self._random = SeededRandom(world)
        self._reset_key = self._random.token(32)
        self._by_id: dict[int, End] = {}
        self._due: list[End] = []
        self.node = self._start()

    @property
    def address(self) -> Address:
        """Return the current public address of the party."""
        return (f"10.{self._number}.0.{self._places % 250 + 1}", PORT + self._places // 250)

    @property
    def endpoint(self) -> Endpoint:
        """Return the current endpoint."""
        assert isinstance(self.node.machine, Endpoint)
        return self.node.machine

    # World ---------------------------------------------------------------------------------------------------------

    def change_address(self) -> None:
        """Change the public address; the endpoint is not notified (RFC 4787: a NAT binding changed)."""
        self._places += 1
        self._settle_in()
        self.node.rebind({"data": self.address})

    def _settle_in(self) -> None:
        self.watch.owned(self.address)
        self._network.towards[self.address[0]] = self.conditions

    def restart(self) -> None:
        """Crash and start again: every connection is forgotten."""
        self.node.kill()
        for end in self.ends:
            end.state = "closed"
        self._by_id.clear()
        self.node = self._start()

    def _start(self) -> PartyNode:
        endpoint = Endpoint(self._random, self.config, reset_key=self._reset_key)
        self._settle_in()
        node = PartyNode(self.name, endpoint, {"data": self.address}, self._world, self._network, self._report)
        node.party = self
        return node

    # Application ---------------------------------------------------------------------------------------------------

    def allocate(self) -> End:
        """Return a new end, whose id may be signalled to the peer."""
        end = End(self, self.endpoint.allocate())
        self.ends.append(end)
        self._by_id[end.local_id] = end
        return end

    def open(self, end: End, secrets: Secrets | None) -> None:
        """Open ``end`` towards the signalled address of the peer."""
        if end.state == "waiting" and end.local_id in self._by_id:
            end.state = "open"
            generation, remote = end.known
            opening: list[Input] = [OpenConnection(end.local_id, end.remote_id, remote, generation, secrets)]
            if end.generation:
                opening.append(MovedHere(end.local_id, end.generation))
            self.node.feed(opening)

    def send(self, end: End, messages: Sequence[bytes]) -> None:
        """Send ``messages`` if the connection is open."""
        if end.state == "open":
            end.sent += messages
            self.node.feed([SendMessage(end.local_id, message) for message in messages])

    def finish(self, end: End) -> None:
        """Finish sending."""
        end.finished = True
        self.node.feed([FinishSending(end.local_id)])

    def close(self, end: End) -> None:
        """Forget the connection."""
        if self._by_id.pop(end.local_id, None) is not None:
            end.state = "closed"
            self.node.feed([CloseConnection(end.local_id)])

    def probe(self, end: End) -> None:
        """Probe whether the peer answers."""
        self.node.feed([Probe(end.local_id)])

    def moved(self) -> None:
        """Notify every connection that this side has moved."""
        known: list[Input] = []
        for end in self._by_id.values():
            end.generation += 1
            if end.state != "waiting":
                known.append(MovedHere(end.local_id, end.generation))
        self.node.feed(known)

    def learn_path(self, end: End, generation: int, remote: Address) -> None:
        """Handle signalling that the peer of ``end`` is at ``remote``; messages of different moves may be reordered."""
        if generation >= end.known[0]:
            end.known = (generation, remote)
            if end.state == "open":
                self.watch.path_changed(end, self._world.now)
        if end.state in ("open", "failed"):
            self.node.feed([ChangePath(end.local_id, remote, generation)])

    # Endpoint ------------------------------------------------------------------------------------------------------

    def arriving(self, given: DatagramReceived) -> None:
        """Show a datagram to the watch before the endpoint receives it."""
        direction = self.watch.arrives(self.name, given.source, given.data, self._world.now)
        if direction is not None and direction.due:
            if direction.end.peer.state == "open":
                self._due.append(direction.end)
            else:
                direction.due.clear()

    def check_acknowledged(self) -> None:
        """Check that what arrived has been acknowledged by the end of the step."""
        for end in self._due:
            self._complain(end.peer, self.watch.direction(end).check_acknowledged())
        self._due.clear()
        for end in self._by_id.values():
            if end.state == "open" and end.finished and end.peer_finished:
                self._check_may_leave(end)

    def _check_may_leave(self, end: End) -> None:
        """Check that an end with everything received may leave: the peer knows that all its messages arrived."""
        knows = end.peer.state != "open" or end.peer.party.endpoint.all_confirmed(end.peer.local_id)
        if self.endpoint.all_acknowledged(end.local_id) and not knows:
            self._complain(end, ["may leave while the peer waits for an acknowledgement"])

    def _report(self, output: Output) -> None:
        if isinstance(output, GapDetected):
            return
        end = self._by_id.get(getattr(output, "local_id", 0))
        if end is None:
            self.problems.append(f"{self.name}: {output!r} of no connection")
            return
        match output:
            case MessageReceived(payload=payload):
                self._take(end, payload)
            case PeerFinished():
                if end.peer_finished or end.peer.outstanding:
                    self._complain(end, ["the peer finished twice, or too early"])
                end.peer_finished = True
            case ConnectionFailed(reason=reason):
                self._complain(end, self.watch.failed(end, reason, self._world.now))
                self._ended(end, "failed")
                self.failures += 1
            case ConnectionReset():
                if end.peer.state not in ("closed", "reset"):
                    self._complain(end, ["was reset though the peer lives"])
                del self._by_id[end.local_id]
                self._ended(end, "reset")
                self.resets += 1
            case ProbeAnswered():
                if end.state != "failed":
                    self._complain(end, ["a probe of a connection was answered that had not failed"])
                end.answered = True
            case PathChanged(remote=remote):
                self.learnt += 1
                end.known = (end.known[0], remote)
                self.watch.path_changed(end, self._world.now)

    def _ended(self, end: End, state: State) -> None:
        if end.state != "open":
            self._complain(end, [f"{state} after it was {end.state}"])
        end.state = state
        self._on_ended(end)

    def _take(self, end: End, payload: bytes) -> None:
        """Check that each message is the next one that the peer sent."""
        sent = end.peer.sent
        if end.state != "open":
            self._complain(end, [f"delivers though it is {end.state}"])
        if end.taken >= len(sent) or sent[end.taken] != payload:
            self._complain(end, [f"message {end.taken} is not the one that was sent ({_short(payload)})"])
        end.taken += 1
        if not self.config.consume_at_once:
            end.unconsumed += 1
            if end.unconsumed == 1:
                self._world.after(self.think_s, lambda: self._consume(end))

    def _consume(self, end: End) -> None:
        count, end.unconsumed = end.unconsumed, 0
        self.node.feed([Consumed(end.local_id, count)])

    def _complain(self, end: End, problems: list[str]) -> None:
        self.problems += [f"{self.name}: connection {end.local_id:016x}: {problem}" for problem in problems]


def _short(data: bytes) -> str:
    return f"{len(data)} bytes {zlib.crc32(data):08x}"
