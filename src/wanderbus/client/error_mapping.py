"""What the other side's refusals become: one error each, in words that say what to do."""

from __future__ import annotations

from typing import Final

from wanderbus import protocol
from wanderbus.client.machine.messages import AgentProperties, ConnectRefused, PublishSettled
from wanderbus.errors import (
    AuthenticationError,
    FilterError,
    LimitExceeded,
    Refused,
    UnknownUser,
    Unreachable,
    WanderbusError,
    WrongPassword,
)
from wanderbus.machine import shown
from wanderbus.sip.proxy.registrar import NOT_SERVED

_OUT_OF_TIME: Final = ("certificate is not yet valid", "certificate has expired")
"""Words of OpenSSL for a certificate that the clock here puts outside of its time."""


def connect_error(refused: ConnectRefused, properties: AgentProperties) -> WanderbusError:
    """Return the error for a refusal on the way to the broker, or by it."""
    user, server = properties.uri, shown(properties.server)
    match refused:
        case ConnectRefused(stage="registration", status=404):
            return UnknownUser(f"the server {server} has no user {user}; add it to the server's users file")
        case ConnectRefused(stage="registration", status=403, reason=reason) if reason.startswith(NOT_SERVED):
            served, domain = reason.removeprefix(NOT_SERVED), user.rpartition("@")[2]
            return UnknownUser(f"the server {server} serves {served}, not {domain}; write NAME@{served}")
        case ConnectRefused(stage="registration", status=401 | 403 | 407) if properties.password is None:
            return WrongPassword(
                f"no password given for {user}; use --password or WANDERBUS_PASSWORD, in a program password="
            )
        case ConnectRefused(stage="registration", status=401 | 403 | 407):
            return WrongPassword(
                f"the server {server} does not accept the password of {user}, or has no such user; "
                "check both, the user in the server's users file"
            )
        case ConnectRefused(stage="session", status=404):
            return Unreachable(f"the server {server} knows no broker {properties.broker}; check the broker's URI")
        case ConnectRefused(stage="session", status=488):
            return Refused(f"no data channel between {user} and the broker {properties.broker}: {refused.reason}")
        case ConnectRefused(stage="session"):
            return AuthenticationError(f"the broker does not accept {user}: {refused.reason}")
        case _:
            return Refused(f"the broker does not attach {user}: {refused.reason}")


def not_reached(properties: AgentProperties, waited_s: float, trouble: str) -> Unreachable:
    """Return the error for a broker that was not reached in time; ``trouble`` is what went wrong last, if anything."""
    broker, server = properties.broker, shown(properties.server)
    last = f" ({trouble})" if trouble else ""
    remedy = "is it up (wanderbus up)?"
    if broker.partition("@")[2] != properties.uri.partition("@")[2]:
        remedy = f"it is in another domain, so {server} has to accept TLS: start that server with --tls-certificate"
    if any(words in trouble for words in _OUT_OF_TIME):
        remedy = "check the clock of this device, then the server's certificate"
    return Unreachable(f"no broker {broker} could be reached through {server} in {waited_s:g} s{last}; {remedy}")


def request_error(refusal: protocol.RequestRefused, expression: str) -> WanderbusError:
    """Return the error for a request that the broker declined; ``expression`` is what it asked to be matched."""
    if refusal.position is not None and 0 <= refusal.position <= len(expression):
        return FilterError(refusal.reason, expression, refusal.position)
    if refusal.limit is not None:
        return LimitExceeded(refusal.reason, refusal.limit)
    return Refused(refusal.reason)


def publish_error(settled: PublishSettled, broker: str) -> WanderbusError:
    """Return the error for an event that ``broker`` did not take."""
    if not settled.answered:
        return unanswered(broker, settled.reason)
    reason = f"the broker refused the event: {settled.reason}"
    return Refused(reason) if settled.limit is None else LimitExceeded(reason, settled.limit)


def unanswered(broker: str, reason: str | None) -> Unreachable:
    """Return the error for an answer of ``broker`` that did not come."""
    return Unreachable(f"{broker}: {reason}")
