"""Requests of another server for the past of channels where no server leads one (SPEC T-05)."""

from __future__ import annotations

from tests.access.town import Town
from wanderbus.protocol import Attach, ListEvents, RequestRefused, decode_from_broker
from wanderbus.subscription import EVERY_SUBJECT, Since


def test_every_subject_has_no_past_at_a_server_that_leads_nothing() -> None:
    """Question of a server whose file says something else."""
    town = Town()
    (link,) = [each for each, ends in town.wires.items() if ends == ("s1", "s2")]
    town["s2"].send(link, Attach(1, "default", None, keep=True))
    town.sent.clear()
    town["s2"].send(link, ListEvents(7, EVERY_SUBJECT, since=Since()))
    refused = decode_from_broker(town.sent.pop()[2])
    assert isinstance(refused, RequestRefused)
    assert refused.reason == "no servers lead the channels of '*', not s2; compare the domain files"
