"""The server half of the transaction layer: the requests of others and their transactions (RFC 3261 17.2.3, 9.2)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from typing import Final

from wanderbus.machine import Address, Output, RandomSource, scoped
from wanderbus.sip.message import Request, make_response
from wanderbus.sip.message_editor import MessageEditor
from wanderbus.sip.response_routing import Origin, response_path, sent_by
from wanderbus.sip.server_transactions import InviteServerTransaction, NonInviteServerTransaction, ServerTransaction
from wanderbus.sip.targets import Path
from wanderbus.sip.transaction_machine import State, Timers, Trigger
from wanderbus.sip.transaction_signals import AckReceived, CancelReceived, RequestReceived, Respond

_TAG_BYTES: Final = 8

ServerKey = tuple[str, Address, str]
"""Branch, sent-by and method, where an ACK counts as INVITE."""


class ServerSide:
    """All server transactions of one layer; at most ``transactions_max`` of them, ``drops`` counts the rest."""

    def __init__(
        self,
        random: RandomSource,
        socket: str,
        timers: Timers,
        transactions_max: int,
        drops: Counter[str],
        editor: MessageEditor,
    ) -> None:
        self._editor = editor
        self._random = random
        self._socket = socket
        self._timers = timers
        self._transactions_max = transactions_max
        self._drops = drops
        self._transactions: dict[str, ServerTransaction] = {}
        self._by_key: dict[Hashable, ServerTransaction] = {}
        self._made = 0

    def __len__(self) -> int:
        return len(self._transactions)

    def fresh_tag(self) -> str:
        """Return a To tag for an answer of the layer's own (RFC 3261 19.3)."""
        return self._random.token(_TAG_BYTES).hex()

    def receive(self, request: Request, origin: Origin, now: float) -> list[Output]:
        """Handle ``request`` from ``origin``, whose address is already in the top Via.

        Raises:
            SIPParseError: a header field needed for matching cannot be read.
        """
        key = server_key(request)
        known = self._by_key.get(key)
        if request.method == "ACK":
            return self._acknowledge(known, request, origin, now)
        path = response_path(request.via, origin, self._socket)
        if known is not None:
            return self._settle(known, known.receive_again(path, now, origin.datagram_bytes))
        if len(self._transactions) >= self._transactions_max:
            self._drops["over limit"] += 1
            return []
        transaction = self._add(key, request, path, origin.datagram_bytes)
        if request.method == "CANCEL":
            return self._cancel(key, transaction, request, now)
        received: list[Output] = [
            RequestReceived(
                transaction.name, request, origin.source, origin.transport, origin.connection, origin.peer_domains
            )
        ]
        return received + self._settle(transaction, transaction.start(now))

    def respond(self, item: Respond, now: float) -> list[Output]:
        """Send a response of the transaction user, if the transaction is still there and admits it."""
        transaction = self._transactions.get(item.transaction)
        if transaction is None:
            return []
        outputs = transaction.respond(item.response, now, within_request=item.within_request)
        return self._settle(transaction, outputs)

    def fire(self, name: str, timer: Trigger, now: float) -> list[Output]:
        """Hand a timer to its transaction, if that is still there."""
        transaction = self._transactions.get(name)
        return [] if transaction is None else self._settle(transaction, transaction.fire(timer, now))

    def forget(self, name: str) -> list[Output]:
        """End the transaction ``name`` in silence; another copy of its request would be a new one."""
        transaction = self._transactions.get(name)
        return [] if transaction is None else self._settle(transaction, transaction.stop())

    def _acknowledge(
        self, invite: ServerTransaction | None, request: Request, origin: Origin, now: float
    ) -> list[Output]:
        """An ACK for a refusal ends here; any other, also one for a 2xx under the INVITE's branch, is the user's."""
        if not isinstance(invite, InviteServerTransaction) or invite.state is State.ACCEPTED:
            return [AckReceived(request, origin.source, origin.transport, origin.connection)]
        return self._settle(invite, invite.acknowledge(now))

    def _cancel(self, key: ServerKey, cancel: ServerTransaction, request: Request, now: float) -> list[Output]:
        """Answer a CANCEL; report it if its INVITE has no final response yet (RFC 3261 9.2)."""
        branch, sender, _ = key
        invite = self._by_key.get((branch, sender, "INVITE"))
        tag = (invite and invite.answered_tag) or self.fresh_tag()
        response = make_response(request, 481 if invite is None else 200, to_tag=tag)
        outputs = cancel.start(now) + cancel.respond(response, now, within_request=True)
        settled = self._settle(cancel, outputs)
        if invite is not None and invite.state is State.PROCEEDING:
            settled.append(CancelReceived(invite.name, request))
        return settled

    def _add(self, key: ServerKey, request: Request, path: Path, datagram_bytes: int | None) -> ServerTransaction:
        self._made += 1
        kind = InviteServerTransaction if request.method == "INVITE" else NonInviteServerTransaction
        transaction = kind(f"server-{self._made}", request, path, self._timers, datagram_bytes, key, self._editor)
        self._transactions[transaction.name] = self._by_key[key] = transaction
        return transaction

    def _settle(self, transaction: ServerTransaction, outputs: list[Output]) -> list[Output]:
        """Name the timers in ``outputs``; drop the transaction if it is over."""
        if transaction.terminated:
            del self._transactions[transaction.name]
            del self._by_key[transaction.key]
        settled: list[Output] = scoped(("server", transaction.name), outputs)
        return settled


def server_key(request: Request) -> ServerKey:
    """Return what tells the transaction of ``request`` from all others (RFC 3261 17.2.3).

    A branch without the cookie comes from an RFC 2543 client and may repeat: the rest of what names a request is
    then part of the key.

    Raises:
        SIPParseError: a header field of the key cannot be read.
    """
    method = "INVITE" if request.method == "ACK" else request.method
    via = request.via
    branch = via.branch or ""
    if not via.names_transaction:
        branch = " ".join((branch, request.call_id, str(request.cseq.number), request.from_.tag or ""))
    return branch, sent_by(via), method
