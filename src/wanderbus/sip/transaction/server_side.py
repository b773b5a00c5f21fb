"""Server side of the transaction layer: the requests of peers (RFC 3261 17.2.3, 9.2).

A request that is refused before its sender is authenticated leaves no state (8.2.7, 26.3.2.4): another copy of it is
refused again. The To tag of such a response is a keyed hash of the request. So each copy gets the same tag, and the ACK
with that tag is recognized. Only the refusal of an INVITE from a known peer over UDP is kept and retransmitted: on
lossy paths, calls and moves would otherwise take longer.
"""

from __future__ import annotations

import hashlib
import hmac
from collections import Counter
from collections.abc import Hashable
from typing import Final

import msgspec

from wanderbus.hosts import network_of
from wanderbus.machine import Address, RandomSource, scoped
from wanderbus.sip.message.message import Request, Response, make_response
from wanderbus.sip.message.targets import Origin, Path, response_path, sent_by
from wanderbus.sip.transaction.message_editor import MessageEditor
from wanderbus.sip.transaction.server_transactions import (
    InviteServerTransaction,
    NonInviteServerTransaction,
    ServerTransaction,
)
from wanderbus.sip.transaction.transaction_places import KnownPeers, TransactionPlaces
from wanderbus.sip.transaction.transaction_signals import (
    AckReceived,
    CancelReceived,
    LayerOutput,
    RequestReceived,
    Respond,
)
from wanderbus.sip.transaction.transaction_states import BaseTimers, RequestSender, State, Trigger

_TAG_BYTES: Final = 8
_KEY_BYTES: Final = 16
_KEYED_TAG_BYTES: Final = 4
"""Short, because a refusal must not be larger than the request; RFC 3261 19.3 asks for 32 bits."""

_REPEATING: Final = frozenset({State.COMPLETED, State.CONFIRMED})
"""States in which only the response is kept."""

ServerKey = tuple[str, Address, str]
"""Branch, sent-by and method; an ACK counts as INVITE."""


class ServerSide:
    """All server transactions of one layer; at most ``transactions_max``, ``drops`` counts the others.

    ``peers`` are the sources of users; strangers cannot take their places (:mod:`.transaction_places`).
    """

    def __init__(
        self,
        random: RandomSource,
        socket: str,
        timers: BaseTimers,
        transactions_max: int,
        drops: Counter[str],
        editor: MessageEditor,
        peers: KnownPeers,
    ) -> None:
        self._editor = editor
        self._random = random
        self._socket = socket
        self._timers = timers
        self._drops = drops
        self.peers = peers
        self._places = TransactionPlaces(transactions_max)
        self._key = b""
        self._transactions: dict[str, ServerTransaction] = {}
        self._by_key: dict[Hashable, ServerTransaction] = {}
        self._made = 0

    def __len__(self) -> int:
        return len(self._transactions)

    def fresh_tag(self) -> str:
        """Return a To tag for a response of the layer itself (RFC 3261 19.3)."""
        return self._random.token(_TAG_BYTES).hex()

    def receive(self, request: Request, origin: Origin, now: float) -> list[LayerOutput]:
        """Handle ``request`` from ``origin``, whose address is already in the top Via.

        Raises:
            SIPParseError: a header field needed for matching cannot be read.
        """
        key = server_key(request)
        known = self._by_key.get(key)
        if request.method == "ACK":
            return self._acknowledge(known, key, request, origin, now)
        path = response_path(request.via, origin, self._socket)
        if known is not None:
            return self._settle(known, known.receive_again(path, now, origin.datagram_bytes))
        if request.method == "CANCEL" and (key[0], key[1], "INVITE") not in self._by_key:
            response = self._tagged(make_response(request, 481), key, request)
            data = self._editor.response(response, origin.datagram_bytes)
            return [path.send(data)] if data else []
        return self._begin(key, request, path, origin, now)

    def _begin(self, key: ServerKey, request: Request, path: Path, origin: Origin, now: float) -> list[LayerOutput]:
        """Create the transaction of a new request, and report the request."""
        network = network_of(origin.source[0])
        party = RequestSender(network, self.peers.knows(network, now))
        size = request.content_bytes if origin.datagram_bytes is None else origin.datagram_bytes
        evicted: list[LayerOutput] = []
        while not self._places.has_room(size) and (oldest := self._places.oldest_answered()) is not None:
            evicted += self.forget(oldest)
        if not self._places.has_room(size):
            self._drops["over limit"] += 1
            return evicted
        crowded = self._places.is_crowded(party, size)
        transaction = self._add(key, request, path, origin.datagram_bytes)
        transaction.known = party.known
        self._places.enter(transaction.name, party, size)
        if request.method == "CANCEL":
            return evicted + self._cancel(key, transaction, request, now)
        received = RequestReceived(
            transaction.name,
            request,
            origin.source,
            origin.transport,
            origin.connection,
            origin.peer_domains,
            crowded,
        )
        return [*evicted, received, *self._settle(transaction, transaction.start(now))]

    def respond(self, item: Respond, now: float) -> list[LayerOutput]:
        """Send a response of the transaction user, if the transaction exists and its state allows it."""
        transaction = self._transactions.get(item.transaction)
        if transaction is None:
            return []
        request = transaction.unanswered
        if item.stateless and item.response.status >= 200 and request is not None:
            item = msgspec.structs.replace(item, response=self._tagged(item.response, transaction.key, request))
            if not (transaction.known and transaction.repeats_refusals):
                return self._settle(transaction, transaction.refuse(item.response))
        outputs = transaction.respond(item.response, now, within_request=item.within_request or item.stateless)
        if transaction.state in _REPEATING:
            self._places.answered(transaction.name, transaction.kept_bytes)
        return self._settle(transaction, outputs)

    def _tagged(self, response: Response, key: Hashable, request: Request) -> Response:
        """Return a response to ``request`` with the To tag that every copy of the request gets."""
        if request.to.tag is not None or response.status == 100:
            return response
        to = request.to.with_param("tag", self._tag_of(key, request))
        return response.replacing("To", str(to))

    def _tag_of(self, key: Hashable, request: Request) -> str:
        if not self._key:
            self._key = self._random.token(_KEY_BYTES)
        text = repr((key, request.call_id)).encode()
        return hmac.digest(self._key, text, hashlib.sha256)[:_KEYED_TAG_BYTES].hex()

    def fire(self, name: str, timer: Trigger, now: float) -> list[LayerOutput]:
        """Pass a timer to its transaction, if that still exists."""
        transaction = self._transactions.get(name)
        if transaction is None:
            return []
        # A device that calls just after a move authenticates from its new address a moment later.
        transaction.known = transaction.known or self.peers.knows(self._places.network_of(name), now)
        return self._settle(transaction, transaction.fire(timer, now))

    def forget(self, name: str) -> list[LayerOutput]:
        """End the transaction ``name`` without a report; another copy of its request would start a new one."""
        transaction = self._transactions.get(name)
        return [] if transaction is None else self._settle(transaction, transaction.stop())

    def _acknowledge(
        self, invite: ServerTransaction | None, key: ServerKey, request: Request, origin: Origin, now: float
    ) -> list[LayerOutput]:
        """Absorb the ACK for a refusal; pass any other to the user, also one for a 2xx under the INVITE's branch."""
        if invite is None and self._key and request.to.tag == self._tag_of(key, request):
            return []
        if not isinstance(invite, InviteServerTransaction) or invite.state is State.ACCEPTED:
            return [AckReceived(request, origin.source, origin.transport, origin.connection)]
        return self._settle(invite, invite.acknowledge(now))

    def _cancel(self, key: ServerKey, cancel: ServerTransaction, request: Request, now: float) -> list[LayerOutput]:
        """Respond to the CANCEL of an INVITE; report it if that has no final response yet (RFC 3261 9.2)."""
        branch, sender, _ = key
        invite = self._by_key.get((branch, sender, "INVITE"))
        tag = (invite and invite.answered_tag) or self.fresh_tag()
        response = make_response(request, 200, to_tag=tag)
        outputs = cancel.start(now) + cancel.respond(response, now, within_request=True)
        self._places.answered(cancel.name, cancel.kept_bytes)
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

    def _settle(self, transaction: ServerTransaction, outputs: list[LayerOutput]) -> list[LayerOutput]:
        """Name the timers in ``outputs``; remove the transaction if it has ended."""
        if transaction.terminated:
            del self._transactions[transaction.name]
            del self._by_key[transaction.key]
            self._places.leave(transaction.name)
        settled: list[LayerOutput] = scoped(("server", transaction.name), outputs)
        return settled


def server_key(request: Request) -> ServerKey:
    """Return the key that identifies the transaction of ``request`` (RFC 3261 17.2.3).

    A branch without the cookie is from an RFC 2543 client and may repeat: then further fields of the request are part
    of the key.

    Raises:
        SIPParseError: a header field of the key cannot be read.
    """
    method = "INVITE" if request.method == "ACK" else request.method
    via = request.via
    branch = via.branch or ""
    if not via.names_transaction:
        branch = " ".join((branch, request.call_id, str(request.cseq.number), request.from_.tag or ""))
    return branch, sent_by(via), method
