"""Records of the event log about advertisements: events that devices will publish (SPEC A-17)."""

from __future__ import annotations

from wanderbus.records.bases import Record


class Advertised(Record, frozen=True, tag="advertised", kw_only=True):
    """A device declared that it will publish events of ``subject`` that match ``expression`` (SPEC A-17).

    ``advertisement`` is the id of the declaration, which is used once.
    """

    user: str
    session: str
    device: str
    advertisement: str
    subject: str
    expression: str
    language: str = "eci"


class AdvertisementsCounted(Record, frozen=True, tag="advertisements_counted", kw_only=True):
    """This server knows what all servers of the domain want of the events that these advertisements declare.

    So the events may be published here, also while the leaders of their channels are away (SPEC K-07, K-08).
    """

    advertisements: tuple[str, ...]


class AdvertisementsWithdrawn(Record, frozen=True, tag="advertisements_withdrawn", kw_only=True):
    """These advertisements have ended."""

    advertisements: tuple[str, ...]
