"""Inputs and outputs of the proxy: the words between it, the transaction layer, relays and the resolver of domains."""

from __future__ import annotations

from wanderbus.machine import CancelTimer, SetTimer, TimerFired
from wanderbus.sip.message.message import Response
from wanderbus.sip.proxy.anchoring import Describe, Described, Release
from wanderbus.sip.proxy.domain_routes import DomainLookedUp, FindDomain
from wanderbus.sip.proxy.routing_script import RoutingFailed
from wanderbus.sip.transaction.transaction_signals import (
    AckReceived,
    CancelReceived,
    ForgetTransaction,
    RequestReceived,
    Respond,
    ResponseReceived,
    SendAck,
    SendRequest,
    TransactionTimedOut,
)

Report = (
    RequestReceived
    | AckReceived
    | CancelReceived
    | ResponseReceived
    | TransactionTimedOut
    | TimerFired
    | Described
    | DomainLookedUp
)
"""Inputs: the transaction layer's reports, the proxy's own timers, and the answers of relays and of the resolver."""

Command = (
    SendRequest
    | Respond
    | SendAck
    | ForgetTransaction
    | SetTimer
    | CancelTimer
    | RoutingFailed
    | Describe
    | Release
    | FindDomain
)
"""Outputs: inputs of the transaction layer, timers whose key is a transaction's name or a domain's, a report, commands
for relays, and questions for the resolver."""


def refusal(transaction: str, response: Response) -> Respond:
    """Return the answer to a request that nobody vouched for: its source may be forged."""
    return Respond(transaction, response, within_request=True)


def refused_at_once(transaction: str, response: Response) -> Respond:
    """Return such an answer where it is the first to the request, which may be forgotten with it."""
    return Respond(transaction, response, stateless=True)
