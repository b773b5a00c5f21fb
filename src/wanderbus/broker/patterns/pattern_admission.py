"""Checks on a requested subscription to a pattern (SPEC T-07, U-02)."""

from __future__ import annotations

from wanderbus import protocol
from wanderbus.broker import admission
from wanderbus.broker.engine.events import EngineEvents
from wanderbus.broker.permissions import Permissions
from wanderbus.broker.state.pattern_states import PatternStates, compiled
from wanderbus.errors import LimitExceeded, PatternError, Refused
from wanderbus.subscription import EVERY_SUBJECT, PATTERN, Subscription


def check_pattern(user: str, request: protocol.Subscribe, permissions: Permissions, engine: EngineEvents) -> str:
    """Return the subject of the detections.

    Raise :class:`PatternError` for a text that is no pattern, :class:`Refused` for one that cannot be used here.
    """
    pattern = compiled(request.expression)
    subject = pattern.declaration.subject
    admission.check_subject(subject)
    if subject == EVERY_SUBJECT:
        raise Refused("the subject of detections cannot be '*', which is every subject; give one subject")
    if request.subject not in ("", subject):
        raise Refused(f"the subject of a subscription to a pattern is that of its detections: {subject!r}")
    if request.since is not None:
        raise Refused("a pattern begins with new events; leave out since, and use 'wanderbus pattern run' for the past")
    for wanted in dict.fromkeys(leaf.subject for leaf in pattern.leaves):
        admission.check_subject(wanted)
        if refusal := permissions.refusal(user, wanted):
            raise Refused(refusal)
    check_engine(request.expression, engine)
    return subject


def check_engine(text: str, engine: EngineEvents) -> None:
    """Raise :class:`Refused` if the matching engine has events of a pattern; a text that is no pattern needs none."""
    try:
        pattern = compiled(text)
    except PatternError:
        return
    for wanted in dict.fromkeys(leaf.subject for leaf in pattern.leaves):
        if engine.concerns(wanted):
            raise Refused(
                f"Spark matches the events of the subject {wanted!r} (broker.spark_subjects), so a pattern inside the "
                "broker does not see them; use 'wanderbus pattern follow'"
            )


def has_its_events(subscription: Subscription, engine: EngineEvents) -> bool:
    """Return whether the broker has all events of a subscription, if that is one to a pattern."""
    if subscription.language != PATTERN:
        return True
    try:
        check_engine(subscription.expression, engine)
    except Refused:
        return False
    return True


def check_room(user: str, patterns: PatternStates, most: int) -> None:
    """Raise :class:`LimitExceeded` if the patterns of ``user`` keep as many events as they may."""
    if (kept := patterns.kept_of(user)) >= most:
        raise LimitExceeded(
            f"the patterns of {user} keep {kept} events; the limit is {most}: end one, or wait",
            "user_pattern_events_max",
        )
