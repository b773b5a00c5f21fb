"""The demonstration: a day of New York departures, eight travellers who roam, and an audit of their deliveries.

``python -m demo`` starts a server, a publisher and eight travellers as processes of their own, moves, silences and
kills some of them while events flow, and then lets a Spark job over the event log compute what each traveller was due
and what it got. It uses only the public interface of wanderbus.
"""

from __future__ import annotations

SUBJECT = "Departure"
"""Subject of every event: one departure from New York in 2013."""

DOMAIN = "localhost"
"""SIP domain that the demonstration's server answers for."""

BROKER = f"sip:broker@{DOMAIN}"
"""Address of record of the broker within :data:`DOMAIN`."""


class CannotRunError(Exception):
    """The demonstration cannot start or continue here; the message is one line that says what is missing."""
