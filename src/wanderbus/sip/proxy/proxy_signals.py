"""Inputs and outputs of the proxy: its interface to the transaction layer, relays and the domain resolver."""

from __future__ import annotations

from wanderbus.machine import CancelTimer, SetTimer, TimerFired
from wanderbus.sip.message.message import Response
from wanderbus.sip.proxy.anchoring import Describe, Described, Release
from wanderbus.sip.proxy.domain_servers import DomainLookedUp, FindDomain
from wanderbus.sip.proxy.routing_script import RoutingFailed
from wanderbus.sip.transaction.transaction_signals import (
    ForgetTransaction,
    LayerReport,
    Respond,
    SendAck,
    SendRequest,
)

Report = LayerReport | TimerFired | Described | DomainLookedUp
"""Inputs: reports of the transaction layer, the proxy's own timers, and the answers of relays and of the resolver."""

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
"""Outputs: inputs of the transaction layer, timers (the key is a transaction's name or a domain's), a report, commands
for relays, and questions for the resolver.
"""


def refusal(transaction: str, response: Response) -> Respond:
    """Return the response to an unauthenticated request: its source may be forged."""
    return Respond(transaction, response, within_request=True)


def refused_at_once(transaction: str, response: Response) -> Respond:
    """Return such a response if it is the first to the request, whose transaction may then be forgotten."""
    return Respond(transaction, response, stateless=True)
