"""Expression and language of a subscription, from the arguments of an application."""

from __future__ import annotations

from wanderbus.errors import LocalProtocolError
from wanderbus.subscription import PATTERN


def subscribed_interest(subject: str, expression: str, language: str, pattern: str | None) -> tuple[str, str]:
    """Return the expression and its language, which are those of a pattern if there is one.

    :raises FilterError: the expression cannot be read
    :raises LocalProtocolError: there is a pattern and something else
    """
    if pattern is None:
        # Agents that only publish do not load the languages of filters.
        from wanderbus.filters import parse

        parse(expression, language)
        return expression, language
    if (subject, expression, language) != ("", "", "eci"):
        raise LocalProtocolError("subscribe() takes either a subject with an expression, or a pattern")
    return pattern, PATTERN  # the broker reads it, and knows the subject
