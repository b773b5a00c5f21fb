"""Checks on a requested subscription or advertisement: subject, lifetime, queue bounds, size (SPEC G-04, G-18, X17)."""

from __future__ import annotations

from wanderbus import protocol
from wanderbus.errors import FilterError, LimitExceeded, Refused
from wanderbus.limits import EVENT_NAME_CHARACTERS_MAX, SUBSCRIPTION_BYTES_MAX
from wanderbus.parameters.broker import BrokerConfig
from wanderbus.subscription import PATTERN, QueuePolicy, Subscription, check_wanted_subject

_SECONDS_MAX = 1e10
"""Three hundred years: a longer time does not fit the microseconds of the broker's clock."""


def expiry_us(config: BrokerConfig, now_us: int, lifetime_s: float | None, expires_us: int | None) -> int | None:
    """Return the expiry of a subscription that begins at ``now_us``, None for never (SPEC X17).

    :class:`Refused` if both a lifetime and an instant are given or the time is past, :class:`LimitExceeded` if
    ``config`` does not allow the lifetime.
    """
    if lifetime_s is not None and expires_us is not None:
        raise Refused("give either a lifetime or a time of expiry, not both")
    if expires_us is not None:
        lifetime_s = (expires_us - now_us) / 1e6
    elif lifetime_s is None:
        lifetime_s = config.lifetime_s_default
    if lifetime_s is None:
        if config.lifetime_s_max is not None:
            raise LimitExceeded(
                f"a subscription lives for {config.lifetime_s_max:g} s at most; give the subscription a lifetime",
                "lifetime_s_max",
            )
        return None
    if not 0 < lifetime_s < _SECONDS_MAX:
        raise Refused("a subscription's lifetime must be above 0 seconds, and less than 300 years")
    if lifetime_s < config.lifetime_s_min:
        raise LimitExceeded(f"a subscription lives for {config.lifetime_s_min:g} s at least", "lifetime_s_min")
    if config.lifetime_s_max is not None and lifetime_s > config.lifetime_s_max:
        raise LimitExceeded(f"a subscription lives for {config.lifetime_s_max:g} s at most", "lifetime_s_max")
    return now_us + round(lifetime_s * 1e6) if expires_us is None else expires_us


def check_subject(subject: str, *, is_server: bool = False) -> None:
    """Raise :class:`Refused` for a subject that no event can have; another server asks for what it has admitted."""
    if not 0 < len(subject) <= EVENT_NAME_CHARACTERS_MAX:
        raise Refused(f"a subject has 1 to {EVENT_NAME_CHARACTERS_MAX} characters")
    if not is_server:
        check_wanted_subject(subject)


def check_foreign(request: protocol.Subscribe) -> None:
    """Raise :class:`Refused` for a subscription of a foreign domain that is more than a filter of new events."""
    if request.language == PATTERN or request.since is not None:
        raise Refused("another domain gets new events by filters: no patterns, and nothing of the past")


def check_queue(policy: QueuePolicy) -> None:
    """Raise :class:`Refused` for bounds that leave no room for a notification."""
    for name in ("notifications_max", "bytes_max"):
        if (most := getattr(policy, name)) is not None and most < 1:
            raise Refused(f"queue.{name} must be at least 1")
    if policy.age_max_s is not None and not 0 < policy.age_max_s < _SECONDS_MAX:
        raise Refused("queue.age_max_s must be above 0 seconds, and less than 300 years")


def check_size(subscription: Subscription) -> None:
    """Raise :class:`LimitExceeded` for a subscription that does not fit an answer."""
    check_bytes("subscription", protocol.size_of(subscription))


def check_bytes(what: str, size: int) -> None:
    """Raise :class:`LimitExceeded` if ``what`` takes more bytes than a subscription may."""
    if size > SUBSCRIPTION_BYTES_MAX:
        raise LimitExceeded(
            f"the {what} takes {size} bytes; the limit is {SUBSCRIPTION_BYTES_MAX}", "subscription_bytes_max"
        )


def refusal(request: int, error: FilterError | LimitExceeded | Refused) -> protocol.RequestRefused:
    """Return the answer to a request that failed with ``error``."""
    if isinstance(error, FilterError):
        return protocol.RequestRefused(request, protocol.shortened(error.reason), position=error.position)
    limit = error.limit if isinstance(error, LimitExceeded) else None
    return protocol.RequestRefused(request, protocol.shortened(error), limit=limit)
