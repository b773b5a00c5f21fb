"""Requests of another server for the past of channels that a server does not lead (SPEC T-05)."""

from __future__ import annotations

from tests.access.town import Town
from wanderbus.protocol import Attach, ListEvents, RequestRefused, decode_from_broker
from wanderbus.subscription import EVERY_SUBJECT, Since


def refusal(request: ListEvents) -> str:
    """Return why s2 refuses a question of s1."""
    town = Town()
    (link,) = [each for each, ends in town.wires.items() if ends == ("s1", "s2")]
    town["s2"].send(link, Attach(1, "default", None, keep=True))
    town.sent.clear()
    town["s2"].send(link, request)
    refused = decode_from_broker(town.sent.pop()[2])
    assert isinstance(refused, RequestRefused)
    return refused.reason


def test_every_subject_has_no_past_at_a_server_that_leads_nothing() -> None:
    """Question of a server whose file says something else."""
    reason = refusal(ListEvents(7, EVERY_SUBJECT, since=Since()))
    assert reason == "no servers lead the channels of '*', not s2; compare the domain files"


def test_t05_the_next_leader_of_a_channel_is_asked_again_once_it_leads() -> None:
    """Question of a server that has learned of a move before the next leader."""
    reason = refusal(ListEvents(7, "Air", since=Since(), epoch=2))
    assert reason == "s2 is about to lead the channel of 'Air'; try again later"
