"""Mapping of refusals by server and broker to the package's errors, with a remedy in each message."""

from __future__ import annotations

from typing import Final

from wanderbus import protocol
from wanderbus.client.machine.messages import AgentProperties, ConnectRefused, PublishSettled, ServerUnreachable
from wanderbus.errors import (
    AuthenticationError,
    ConfigurationError,
    FilterError,
    LimitExceeded,
    NoResponse,
    PatternError,
    Refused,
    UnknownUser,
    Unreachable,
    WanderbusError,
    WrongPassword,
)
from wanderbus.hosts import domain_of
from wanderbus.machine import shown
from wanderbus.sip.message.words import NOT_SERVED
from wanderbus.subscription import PATTERN

_OUT_OF_TIME: Final = ("certificate is not yet valid", "certificate has expired")
"""OpenSSL's messages for a certificate whose validity period does not contain the local time."""


def connect_error(refused: ConnectRefused, properties: AgentProperties) -> WanderbusError:
    """Return the error for a refusal to connect, by the server or by the broker."""
    user, server = properties.uri, shown(properties.server)
    match refused:
        case ConnectRefused(stage="registration", status=404):
            return UnknownUser(f"the server {server} has no user {user}; add it to the server's users file")
        case ConnectRefused(stage="registration", status=403, reason=reason) if reason.startswith(NOT_SERVED):
            served, domain = reason.removeprefix(NOT_SERVED), domain_of(user)
            return UnknownUser(f"the server {server} serves {served}, not {domain}; write NAME@{served}")
        case ConnectRefused(stage="registration", status=401 | 403 | 407) if properties.password is None:
            return WrongPassword(
                f"no password given for {user}; use --password or WANDERBUS_PASSWORD, or password= in a program"
            )
        case ConnectRefused(stage="registration", status=401 | 403 | 407):
            return WrongPassword(
                f"the server {server} does not accept the password of {user}, or has no such user; "
                "check both, the user in the server's users file"
            )
        case ConnectRefused(stage="session", status=404, sent_to=sent_to) if sent_to:
            return Unreachable(
                f"{properties.broker} has sent the call to {sent_to}, and the server {server} knows no such broker"
            )
        case ConnectRefused(stage="session", status=404):
            return Unreachable(f"the server {server} knows no broker {properties.broker}; check the broker's URI")
        case ConnectRefused(stage="session", status=488):
            return Refused(f"no data channel between {user} and the broker {properties.broker}: {refused.reason}")
        case ConnectRefused(stage="session"):
            return AuthenticationError(f"the broker does not accept {user}: {refused.reason}")
        case _:
            return Refused(f"the broker does not attach {user}: {refused.reason}")


_REMOVALS: Final = {
    "grace": "it was away for longer than the server's broker.device_grace_s",
    "kicked": "somebody removed it with 'wanderbus kick --forget' or 'wanderbus discard'",
    "hook": "a hook of the server's operator removed it",
}


def removal_shown(reason: str) -> str:
    """Return why this device had been removed from its session, and what follows."""
    why = _REMOVALS.get(reason, f"it gave way to another device of the user, because broker.{reason} was reached")
    return f"this device had been removed from its session: {why}; what waited for it may be gone"


def check_follows(server: str, properties: AgentProperties) -> None:
    """Raise :class:`ConfigurationError` if the agent could not follow its session: to another domain, without TLS."""
    if {".", "/"} & set(server) and properties.transport != "TLS":
        raise ConfigurationError(
            f"{server} is in another domain, whose keys are accepted over TLS only; connect with transport='tls'"
        )


def not_reached(properties: AgentProperties, waited_s: float, trouble: ServerUnreachable) -> NoResponse:
    """Return the error for a broker that was not reached in time; ``trouble`` is the last failure, or empty."""
    broker, server = properties.broker, shown(properties.server)
    last = f" ({trouble.reason})" if trouble.reason else ""
    remedy = "check that the server runs (wanderbus up)"
    if domain_of(broker) != domain_of(properties.uri):
        remedy = f"it is in another domain, so {server} has to accept TLS: start that server with --tls-certificate"
    if any(words in trouble.reason for words in _OUT_OF_TIME):
        remedy = "check the clock of this device, then the server's certificate"
    return NoResponse(
        f"cannot reach the broker {broker} through {server} in {waited_s:g} s{last}; {trouble.remedy or remedy}"
    )


def request_error(refusal: protocol.RequestRefused, expression: str, language: str = "eci") -> WanderbusError:
    """Return the error for a request that the broker refused; ``expression`` is the request's, if any."""
    if refusal.position is not None and 0 <= refusal.position <= len(expression):
        error = PatternError if language == PATTERN else FilterError
        return error(refusal.reason, expression, refusal.position)
    if refusal.limit is not None:
        return LimitExceeded(refusal.reason, refusal.limit)
    return Refused(refusal.reason)


def publish_error(settled: PublishSettled, broker: str) -> WanderbusError:
    """Return the error for an event that ``broker`` refused or did not answer."""
    if not settled.answered:
        return unanswered(broker, settled.reason)
    reason = f"the broker refused the event: {settled.reason}"
    return Refused(reason) if settled.limit is None else LimitExceeded(reason, settled.limit)


def unanswered(broker: str, reason: str | None) -> NoResponse:
    """Return the error for a missing response of ``broker``."""
    return NoResponse(f"{broker}: {reason}")
