"""Questions about the past of a device: repeated until they are answered, and about that device (decision 0149)."""

from __future__ import annotations

import pytest

from tests.broker.desk import ALICE
from tests.peers.handover_town import NAMES, Town
from wanderbus.broker.sessions.handover_messages import (
    DevicePast,
    FormerServerAsked,
    FormerServerSilent,
    PastQuestion,
    PastReported,
    PastWanted,
)
from wanderbus.broker.state.exported_session import encode_publishers
from wanderbus.broker.state.rows import PublisherRow, device_key, publisher_key
from wanderbus.peers.handover.messages import PastAnswered, PastAsked
from wanderbus.records import DeviceCame, encode_record

OF_PHONE = PastQuestion(ALICE, "default", "phone")
ASKED = FormerServerAsked("north", 7, OF_PHONE)
QUESTION = PastAsked(7, OF_PHONE)


def publishers(device: str = "phone", *, decentralised: bool = True) -> bytes:
    """Publishes of a device, as a server tells them."""
    key = publisher_key(device_key(ALICE, device), decentralised=decentralised)
    return encode_publishers({key: PublisherRow(5, 3)})


@pytest.fixture
def town() -> Town:
    """South has decentralised channels: its devices have causal pasts."""
    found = Town()
    south = found["south"]
    south.broker.state.servers["south"].servers = tuple(NAMES)
    south.asked.clear()
    return found


def test_l04_a_question_is_repeated_until_it_is_answered(town: Town) -> None:
    south = town["south"]
    town.cut(town.link("south", "north"))
    south.hand(ASKED)
    assert (south.asked, town.answers("south")) == ([FormerServerSilent(7)], [])
    for _ in range(2):
        link = town.open("south", "north")
        assert town.answers("south") == [QUESTION]
        town.cut(link)
    town.open("south", "north")
    south.asked.clear()
    town.say("north", "south", PastAnswered(7, DevicePast(publishers(), b"past", "east")))
    assert south.asked == [PastReported("north", 7, DevicePast(publishers(), b"past", "east"))]
    town.cut(town.link("south", "north"))
    town.sent.clear()
    town.open("south", "north")
    assert town.answers("south") == []


def test_l04_the_last_question_of_a_device_counts(town: Town) -> None:
    south = town["south"]
    south.hand(ASKED)
    south.hand(FormerServerAsked("north", 8, OF_PHONE))
    town.say("north", "south", PastAnswered(7, DevicePast(b"", b"")))
    assert south.asked == []
    town.say("north", "south", PastAnswered(8, DevicePast(b"", b"")))
    assert south.asked == [PastReported("north", 8, DevicePast(b"", b""))]


@pytest.mark.parametrize(
    "answer", [publishers("desk"), publishers(decentralised=False), b"\xc1"], ids=["device", "model", "bytes"]
)
def test_a_server_that_tells_something_else_is_not_believed(town: Town, answer: bytes) -> None:
    south = town["south"]
    south.hand(ASKED)
    town.say("north", "south", PastAnswered(7, DevicePast(answer, b"")))
    assert (south.asked, len(south.closed)) == ([FormerServerSilent(7)], 1)


def test_a_server_that_was_not_asked_is_not_believed(town: Town) -> None:
    south = town["south"]
    south.hand(ASKED)
    town.say("east", "south", PastAnswered(7, DevicePast(publishers(), b"")))
    assert (south.asked, south.closed) == ([], [])


def test_l04_a_device_that_has_gone_has_no_link_here(town: Town) -> None:
    south = town["south"]
    link = south.attach(ALICE, "phone")
    south.give(PastWanted("north", 7, OF_PHONE))
    assert [each.link for each in south.dropped_links] == [link]
    assert south.broker.state.devices[f"{ALICE}/phone"].gone_to == "north"
    (answer,) = town.answers("south")
    assert isinstance(answer, PastAnswered)
    assert (answer.request, answer.past.publishers, answer.past.next_server) == (7, b"", "")


def test_a_server_without_decentralised_channels_lets_no_device_go() -> None:
    """No server has to know where it is; one that claims it again and again would only close its links."""
    south = Town()["south"]
    south.attach(ALICE, "phone")
    south.give(PastWanted("north", 7, OF_PHONE))
    assert (south.dropped_links, south.broker.state.devices[f"{ALICE}/phone"].gone_to) == ([], "")


def test_l04_a_later_question_is_sent_after_the_device_and_may_break_a_circle(town: Town) -> None:
    south = town["south"]
    south.attach(ALICE, "phone")
    south.give(PastWanted("north", 7, OF_PHONE))
    south.give(PastWanted("east", 8, OF_PHONE))
    south.give(PastWanted("east", 9, PastQuestion(ALICE, "default", "phone", "north")))
    named = [each.past.next_server for each in town.answers("south") if isinstance(each, PastAnswered)]
    assert named == ["", "north", ""]
    assert south.broker.state.devices[f"{ALICE}/phone"].gone_to == "east"


def test_l04_a_server_names_the_next_one_until_it_knows_everything(town: Town) -> None:
    south, key = town["south"], f"{ALICE}/phone"
    south.attach(ALICE, "phone")
    for following in ("east", ""):
        came = DeviceCame(at_us=south.wall_us, user=ALICE, device="phone", publishers=b"", following=following)
        south.log.append(encode_record(came))
        south.restart(with_rows=False)
        assert south.broker.state.devices[key].gone_to == following


def test_l04_rows_of_two_servers_know_together_what_each_does() -> None:
    here = PublisherRow(5, 3, {3: 30}, {}, {3: 1}, {4: 9})
    there = PublisherRow(5, 6, {}, {}, {6: 2}, {4: 7, 2: 1})
    both = here.merged(there)
    assert (both.number, both.recent, both.digests, both.former) == (6, {3: 30}, {3: 1, 6: 2}, {4: 9, 2: 1})
    newer = PublisherRow(8, 2, {}, {}, {}, {5: 7})
    for merged in (here.merged(newer), newer.merged(here)):
        assert (merged.epoch, merged.number, merged.former) == (8, 2, {4: 9, 5: 7})
