"""Client side of the transaction layer: our requests and the responses that match them (RFC 3261 17.1.3, 9.1).

A request too large for UDP is sent over TCP. If the peer accepts no TCP, it is sent over UDP after all, under the same
branch, so that a peer that received the first copy treats the second as a retransmission (18.1.1). In the same way, a
large request that is repeated by UDP without an answer is sent over TCP too: the path may drop datagrams of its size.
The repetitions by UDP go on, so nothing is lost if TCP does not get through either.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

import msgspec

from wanderbus.errors import LocalProtocolError
from wanderbus.machine import RandomSource, StreamClosed, StreamTarget, scoped
from wanderbus.sip.message.headers import BRANCH_COOKIE, Via
from wanderbus.sip.message.message import Request, Response, encode_message
from wanderbus.sip.message.targets import Origin, Path, Target, sent_by, with_via
from wanderbus.sip.transaction.client_transactions import (
    ClientTransaction,
    InviteClientTransaction,
    NonInviteClientTransaction,
    make_cancel,
)
from wanderbus.sip.transaction.message_editor import MessageEditor
from wanderbus.sip.transaction.transaction_signals import (
    CancelInvite,
    LayerOutput,
    PathSeemsNarrow,
    ResponseReceived,
    SendRequest,
    TransactionTimedOut,
)
from wanderbus.sip.transaction.transaction_states import BaseTimers, State, Trigger
from wanderbus.sip.transaction.transport_table import TransportTable

_BRANCH_BYTES: Final = 12

CANCEL_KIND: Final = "cancel"
"""Prefix of the names of the CANCEL transactions that :class:`CancelInvite` starts."""

_SILENT: Final = (State.CALLING, State.TRYING)
"""States before any response."""

_REPEATS: Final = (Trigger.TIMER_A, Trigger.TIMER_E)

_UNANSWERED: Final = frozenset({State.CALLING, State.TRYING, State.PROCEEDING})

ClientKey = tuple[str, str]
"""Branch and method; the method distinguishes a CANCEL from the INVITE with the same branch (RFC 3261 17.1.3)."""

InviteKey = tuple[str, int, str]
"""Call-ID, CSeq number and Request-URI, which a CANCEL has in common with its INVITE (RFC 3261 9.1)."""


class ClientSide:
    """All client transactions of one layer; at most ``transactions_max``, ``drops`` counts the others.

    A completed one only absorbs retransmitted responses: the oldest of these is removed for a new one.
    """

    def __init__(
        self,
        random: RandomSource,
        transports: TransportTable,
        timers: BaseTimers,
        transactions_max: int,
        drops: Counter[str],
        editor: MessageEditor,
    ) -> None:
        self._editor = editor
        self._random = random
        self._transports = transports
        self._timers = timers
        self._transactions_max = transactions_max
        self._drops = drops
        self._transactions: dict[ClientKey, ClientTransaction] = {}
        self._answered: dict[ClientKey, None] = {}
        """Transactions in state Completed, oldest first."""
        self._keys: dict[str, ClientKey] = {}
        self._invites: dict[InviteKey, ClientKey] = {}
        self._waiting_cancels: dict[ClientKey, SendRequest] = {}
        self._unanswered_on: dict[int | StreamTarget, dict[ClientKey, None]] = {}
        self._too_large: dict[ClientKey, Path] = {}
        self._copied: dict[ClientKey, tuple[Path, Request]] = {}
        """Requests by UDP that were sent over a stream too: its path, and the request as it was there."""

    def __len__(self) -> int:
        return len(self._transactions)

    def fresh_branch(self) -> str:
        """Return a unique branch that nobody can guess (RFC 3261 8.1.1.7)."""
        return BRANCH_COOKIE + self._random.token(_BRANCH_BYTES).hex()

    def send(self, item: SendRequest, now: float) -> list[LayerOutput]:
        """Start a transaction.

        Raises:
            LocalProtocolError: the name still waits for its final response, or the request is an ACK.
        """
        if item.request.method == "ACK":
            raise LocalProtocolError("an ACK has no transaction; use SendAck")
        running = self._named(item.transaction)
        if running is not None and running.state in _UNANSWERED:
            raise LocalProtocolError(f"transaction {item.transaction} still waits for its final response")
        if item.request.method == "CANCEL":
            return self._send_cancel(item, now)
        path = self._transports.path(item.destination, item.connection)
        if path is None:
            return [TransactionTimedOut(item.transaction, "transport")]
        branch = self.fresh_branch() + item.branch_suffix
        return self._start(item, self._transports.via(path.target.transport, branch), path, now)

    def receive(self, response: Response, origin: Origin, now: float) -> list[LayerOutput]:
        """Pass ``response`` to its transaction; without one it is discarded (RFC 3261 18.1.2, RFC 6026 7.2).

        Raises:
            SIPParseError: its top Via or CSeq cannot be read.
        """
        via = response.via
        key = (via.branch or "", response.cseq.method)
        transaction = self._transactions.get(key)
        copied = self._copied.get(key)
        if transaction is None or sent_by(via) not in (transaction.sent_by, copied and sent_by(copied[1].via)):
            self._drops["stray response"] += 1
            return []
        if origin.transport == "UDP":
            self._transports.mark_answered(transaction.path.target.address, now)
        elif copied is not None and transaction.state in _SILENT:
            self._transports.mark_narrow(transaction.path.target.address, len(transaction.data), now)
            transaction.continue_on(*copied)
        return self._settle(key, transaction, _from(origin, transaction.receive(response, now)), now)

    def fire(self, key: ClientKey, timer: Trigger, now: float) -> list[LayerOutput]:
        """Pass a timer to its transaction, if that still exists."""
        transaction = self._transactions.get(key)
        if transaction is None:
            return []
        copy: list[LayerOutput] = []
        if timer in _REPEATS and transaction.repeated and transaction.state in _SILENT and key not in self._copied:
            copy = self._copy(key, transaction, now)
        return [*self._settle(key, transaction, transaction.fire(timer, now), now), *copy]

    def stream_closed(self, item: StreamClosed, now: float) -> list[LayerOutput]:
        """End every transaction that waits for a response on a closed connection, or send its request by UDP."""
        waiting = [*self._unanswered_on.pop(item.connection, ())]
        outputs: list[LayerOutput] = []
        if item.target is not None:
            waiting += self._unanswered_on.pop(item.target, ())
            copied = [key for key, (path, _) in self._copied.items() if path.target == item.target]
            if copied:
                self._transports.mark_udp_only(item.target.address, now)
            silent = [each for key in copied if (each := self._transactions[key]).state in _SILENT]
            outputs += [PathSeemsNarrow(len(each.data)) for each in silent[:1]]
        for key in waiting:
            transaction = self._transactions[key]
            repeats = not isinstance(transaction, InviteClientTransaction) or transaction.repeats
            if key in self._too_large and transaction.state in _SILENT and repeats:
                outputs += self._fall_back(key, transaction, now)
            else:
                outputs += self._settle(key, transaction, transaction.fail(now), now)
        return outputs

    def forget(self, name: str, now: float) -> list[LayerOutput]:
        """End the transaction ``name`` without a report."""
        for waiting in [key for key, item in self._waiting_cancels.items() if item.transaction == name]:
            del self._waiting_cancels[waiting]
        transaction = self._named(name)
        if transaction is None:
            return []
        return self._settle(self._keys[name], transaction, transaction.stop(), now)

    def cancel(self, item: CancelInvite, now: float) -> list[LayerOutput]:
        """Cancel an INVITE that has no final response."""
        invite = self._named(item.transaction)
        if not isinstance(invite, InviteClientTransaction) or invite.request is None:
            return [TransactionTimedOut(item.transaction)]
        key = self._keys[item.transaction]
        outputs: list[LayerOutput] = [] if item.repeats else scoped(("client", key), invite.silence())
        if not invite.given_up:
            invite.given_up = True
            name = f"{CANCEL_KIND} {item.transaction}"
            self._waiting_cancels.setdefault(key, SendRequest(name, make_cancel(invite.request), invite.path.target))
            outputs += self._release_cancel(key, invite, now)
        return outputs

    def _named(self, name: str) -> ClientTransaction | None:
        key = self._keys.get(name)
        return None if key is None else self._transactions[key]

    def _send_cancel(self, item: SendRequest, now: float) -> list[LayerOutput]:
        """Send a CANCEL on the path of its INVITE, but not before the first provisional response (RFC 3261 9.1)."""
        key = self._invites.get(_invite_key(item.request))
        invite = None if key is None else self._transactions[key]
        if key is None or invite is None or invite.state not in _UNANSWERED or self._is_cancelled(key):
            return [TransactionTimedOut(item.transaction)]
        if invite.state is State.CALLING:
            self._waiting_cancels[key] = item
            return []
        return self._start(item, invite.via, invite.path, now)

    def _is_cancelled(self, key: ClientKey) -> bool:
        return key in self._waiting_cancels or (key[0], "CANCEL") in self._transactions

    def _release_cancel(self, key: ClientKey, invite: ClientTransaction, now: float) -> list[LayerOutput]:
        if invite.state is State.CALLING or key not in self._waiting_cancels:
            return []
        item = self._waiting_cancels.pop(key)
        if invite.state is not State.PROCEEDING:
            return [TransactionTimedOut(item.transaction)]
        sent = self._start(item, invite.via, invite.path, now)
        if isinstance(invite, InviteClientTransaction) and invite.given_up:
            sent += scoped(("client", key), invite.expire(now))
        return sent

    def _start(self, item: SendRequest, via: Via, path: Path, now: float) -> list[LayerOutput]:
        evicted: list[LayerOutput] = []
        if len(self._transactions) >= self._transactions_max and self._answered:
            oldest = next(iter(self._answered))
            evicted = self._settle(oldest, self._transactions[oldest], self._transactions[oldest].stop(), now)
        if len(self._transactions) >= self._transactions_max:
            self._drops["over limit"] += 1
            return [TransactionTimedOut(item.transaction)]
        branch = via.branch or ""
        key = (branch, item.request.method)
        request = self._editor.request(with_via(item.request, via))
        transaction = self._made(item.transaction, request, path)
        stream = None if item.fixed else self._transports.instead(path, len(transaction.data), now)
        if stream is not None:
            request = with_via(request.without_first("Via"), self._transports.via(stream.target.transport, branch))
            transaction = self._made(item.transaction, request, stream)
            self._too_large[key] = path
        self._transactions[key] = transaction
        self._keys[item.transaction] = key
        if request.method == "INVITE":
            self._invites[_invite_key(request)] = key
        if transaction.reliable:
            self._unanswered_on.setdefault(_stream_of(transaction.path), {})[key] = None
        return evicted + self._settle(key, transaction, transaction.start(now), now)

    def _made(self, name: str, request: Request, path: Path) -> ClientTransaction:
        if request.method == "INVITE":
            return InviteClientTransaction(name, request, path, self._timers, self._editor)
        return NonInviteClientTransaction(name, request, path, self._timers)

    def _copy(self, key: ClientKey, transaction: ClientTransaction, now: float) -> list[LayerOutput]:
        """Send a request that UDP repeats over a stream too, under the same branch, if its path may be narrow."""
        stream = self._transports.beyond_narrow_path(transaction.path, len(transaction.data), now)
        if stream is None:
            return []
        request = self._at(transaction, stream)
        self._copied[key] = stream, request
        return [stream.send(encode_message(request))]

    def _fall_back(self, key: ClientKey, transaction: ClientTransaction, now: float) -> list[LayerOutput]:
        """Send by UDP a request that was sent over TCP only for its size (RFC 3261 18.1.1)."""
        path = self._too_large.pop(key)
        self._transports.mark_udp_only(path.target.address, now)
        self._transactions[key] = following = self._made(transaction.name, self._at(transaction, path), path)
        return scoped(("client", key), [*transaction.stop(), *following.start(now)])

    def _at(self, transaction: ClientTransaction, path: Path) -> Request:
        """Return an unanswered request with our Via of another path."""
        assert transaction.request is not None
        via = self._transports.via(path.target.transport, transaction.via.branch or "")
        return with_via(transaction.request.without_first("Via"), via)

    def _settle(
        self, key: ClientKey, transaction: ClientTransaction, outputs: list[LayerOutput], now: float
    ) -> list[LayerOutput]:
        """Name the timers in ``outputs``, and perform the actions of the transaction's new state."""
        settled: list[LayerOutput] = scoped(("client", key), outputs)
        if transaction.request is not None and transaction.state not in _UNANSWERED:
            self._conclude(key, transaction, transaction.request)
        if transaction.state is State.COMPLETED:
            self._answered[key] = None
        if transaction.terminated:
            del self._transactions[key]
            self._answered.pop(key, None)
            self._copied.pop(key, None)
            if self._keys.get(transaction.name) == key:
                del self._keys[transaction.name]
        return settled + self._release_cancel(key, transaction, now)

    def _conclude(self, key: ClientKey, transaction: ClientTransaction, request: Request) -> None:
        """Delete the data that only an unanswered request needs."""
        transaction.conclude()
        if transaction.reliable:
            self._no_longer_waiting(key, transaction.path)
        invite_key = _invite_key(request)
        if self._invites.get(invite_key) == key:
            del self._invites[invite_key]

    def _no_longer_waiting(self, key: ClientKey, path: Path) -> None:
        self._too_large.pop(key, None)
        stream = _stream_of(path)
        waiting = self._unanswered_on.get(stream, {})
        waiting.pop(key, None)
        if not waiting:
            self._unanswered_on.pop(stream, None)


def _from(origin: Origin, outputs: list[LayerOutput]) -> list[LayerOutput]:
    """Return ``outputs`` with the origin of the response in its report."""
    return [
        msgspec.structs.replace(output, source=origin.source, transport=origin.transport)
        if isinstance(output, ResponseReceived)
        else output
        for output in outputs
    ]


def _stream_of(path: Path) -> int | Target:
    """Return the key of the stream of ``path`` under which its end is reported: its number, or its target."""
    return path.target if path.connection is None else path.connection


def _invite_key(request: Request) -> InviteKey:
    return request.call_id, request.cseq.number, request.uri
