"""The demonstration: flights from New York, eight travellers who roam, and an audit of their deliveries.

``python -m demo`` starts a server, Spark, a publisher and eight travellers as processes of their own. It moves,
silences and kills some of them while events flow. Spark matches the arrivals beside the server, streams the event log
into a lake, and at the end computes what each traveller was due and what it got. It uses only the public interface of
wanderbus.
"""

from __future__ import annotations

DEPARTURE = "Departure"
ARRIVAL = "Arrival"

SUBJECTS = (DEPARTURE, ARRIVAL)
"""Subjects of the events: each flight from New York in 2013 has a departure, and unless it was cancelled an arrival."""

SPARK_SUBJECTS = {"both": (ARRIVAL,), "spark": SUBJECTS}
"""Subjects that Spark matches, by the value of ``--engine``; the server itself matches the others."""

DOMAIN = "localhost"
"""SIP domain that the demonstration's server answers for."""


class CannotRunError(Exception):
    """The demonstration cannot start or continue here; the message is one line that says what is missing."""
