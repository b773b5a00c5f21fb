"""Virtual time for transaction layers: one alone under literal times, or several joined by a lossy network."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Hashable, Iterable

from wanderbus.machine import Address, CancelTimer, DatagramReceived, Input, Output, SendDatagram, SetTimer, TimerFired
from wanderbus.sip.message.message import Message, Request, Response, encode_message, make_response, parse_message
from wanderbus.sip.transaction.transaction_layer import TransactionLayer

ALICE: Address = ("192.0.2.1", 5060)
BOB: Address = ("192.0.2.2", 5060)


class SeededRandom:
    """The machines' source of randomness, repeatable."""

    def __init__(self, seed: int = 1) -> None:
        self._random = random.Random(seed)

    def token(self, n_bytes: int) -> bytes:
        return self._random.randbytes(n_bytes)

    def uniform(self, low: float, high: float) -> float:
        return self._random.uniform(low, high)


def make_request(method: str, *, number: int = 1, call_id: str = "call", to_tag: str | None = None) -> Request:
    """A request as a transaction user gives it to the layer: without Via."""
    to = "<sip:bob@example.com>" + (f";tag={to_tag}" if to_tag else "")
    headers = [("Max-Forwards", "70"), ("From", "<sip:alice@example.com>;tag=a"), ("To", to)]
    headers += [("Call-ID", call_id), ("CSeq", f"{number} {method}")]
    return Request(method, "sip:bob@192.0.2.2", tuple(headers))


def wire(request: Request, via: str = "SIP/2.0/UDP 192.0.2.1:5060;rport;branch=z9hG4bKone") -> bytes:
    """The bytes of ``request`` under ``via``."""
    return encode_message(request.with_first("Via", via))


def arrival(data: bytes, source: Address = ALICE) -> DatagramReceived:
    return DatagramReceived("sip", source, data)


def answer(data: bytes, status: int, *, source: Address = BOB, to_tag: str = "b") -> DatagramReceived:
    """The arrival of a response to the request that ``data`` holds."""
    request = parse_message(data)
    assert isinstance(request, Request)
    return DatagramReceived("sip", source, encode_message(make_response(request, status, to_tag=to_tag)))


def messages(outputs: Iterable[Output]) -> list[Message]:
    """The messages that the outputs send, parsed again."""
    return [parse_message(output.data) for output in outputs if isinstance(output, SendDatagram)]


def statuses(outputs: Iterable[Output]) -> list[int]:
    """The status codes that the outputs send."""
    return [message.status for message in messages(outputs) if isinstance(message, Response)]


class Clockwork:
    """One layer with its timers; ``log`` holds every other output with the second at which it came."""

    def __init__(self, layer: TransactionLayer) -> None:
        self.layer = layer
        self.now = 0.0
        self.timers: dict[Hashable, float] = {}
        self.log: list[tuple[float, Output]] = []

    def step(self, *inputs: Input) -> list[Output]:
        """Step with these inputs; return all outputs except timers."""
        told: list[Output] = []
        for output in self.layer.step(inputs, self.now):
            match output:
                case SetTimer(key=key, at=at):
                    self.timers[key] = at
                case CancelTimer(key=key):
                    self.timers.pop(key, None)
                case _:
                    told.append(output)
        self.log += [(self.now, output) for output in told]
        return told

    def next_timer(self) -> float | None:
        return min(self.timers.values(), default=None)

    def run_to(self, until: float) -> list[tuple[float, Output]]:
        """Advance the clock; return the outputs of the timers."""
        start = len(self.log)
        while (at := self.next_timer()) is not None and at <= until:
            self.now = at
            key = min((key for key, due in self.timers.items() if due == at), key=str)
            del self.timers[key]
            self.step(TimerFired(key))
        self.now = until
        return self.log[start:]

    def sending_times(self, until: float) -> list[float]:
        """Advance the clock; return the seconds at which a message was sent."""
        return [at for at, output in self.run_to(until) if isinstance(output, SendDatagram)]


User = Callable[[Output, float], list[tuple[float, Input]]]
"""A transaction user: it turns a report into inputs for its layer, each with a delay in seconds."""


class LossyWorld:
    """Layers joined by a network that loses, delays and reorders by one seed."""

    def __init__(self, seed: int, loss: float, users: dict[Address, User]) -> None:
        self._random = random.Random(seed)
        self._loss = loss
        self._users = users
        self._coming: list[tuple[float, int, Address, Input]] = []
        self._posted = 0
        self.nodes: dict[Address, Clockwork] = {}
        for address in users:
            layer = TransactionLayer(SeededRandom(self._random.randrange(2**32)), local=address)
            self.nodes[address] = Clockwork(layer)

    def post(self, at: float, address: Address, item: Input) -> None:
        """Deliver ``item`` to the layer at ``address`` at second ``at``."""
        self._posted += 1
        heapq.heappush(self._coming, (at, self._posted, address, item))

    def run(self) -> None:
        """Run until no event is left."""
        while True:
            due = [(at, address) for address, node in self.nodes.items() if (at := node.next_timer()) is not None]
            if self._coming and self._coming[0][0] <= min(due, default=(float("inf"), ALICE))[0]:
                at, _, address, item = heapq.heappop(self._coming)
                self.nodes[address].now = at
                self._pass_on(address, [(at, output) for output in self.nodes[address].step(item)])
            elif due:
                at, address = min(due)
                self._pass_on(address, self.nodes[address].run_to(at))
            else:
                return

    def _pass_on(self, address: Address, happened: list[tuple[float, Output]]) -> None:
        for at, output in happened:
            if isinstance(output, SendDatagram):
                if self._random.random() >= self._loss:
                    arriving = DatagramReceived("sip", address, output.data)
                    self.post(at + self._random.uniform(0.005, 0.3), output.destination, arriving)
            else:
                for delay_s, item in self._users[address](output, at):
                    self.post(at + delay_s, address, item)
