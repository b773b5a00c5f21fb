"""Properties and arguments of an application are checked before anything is sent (SPEC C-07, C-17, D-01)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.api_sip.parties import properties
from wanderbus.api.sip_mobility import SDPMediaDescriptionData, SIPHelper, SIPMobility
from wanderbus.api.sip_mobility.media import description_of
from wanderbus.errors import Closed, ConfigurationError, LocalProtocolError
from wanderbus.sip.message.sdp import SessionDescription

SERVER = "127.0.0.1:5060"


@pytest.mark.parametrize("uri", ["", "alice", "sip:example.org", "sip:alice@", "tel:+4930", "a b@c"])
def test_c07_a_malformed_uri_is_rejected_at_init(uri: str) -> None:
    with pytest.raises(ConfigurationError, match="sip:user@domain"):
        SIPMobility(properties("alice", SERVER, uri=uri))


@pytest.mark.parametrize(
    "wrong",
    [
        {"server": "127.0.0.1:none"},
        {"server": "127.0.0.1:70000"},
        {"local_address": "home"},
        {"local_address": "0.0.0.0"},
        {"sip_port": -1},
        {"sip_port": 65_536},
        {"register_expires_s": 0},
        {"poll_s": 0.0},
        {"transport": "SCTP"},
        {"session_expires_s": 10},
        {"wait_s_max": -1.0},
        {"media": (SDPMediaDescriptionData(0),)},
        {"media": (SDPMediaDescriptionData(65_536),)},
        {"media": (SDPMediaDescriptionData(4000, address="::"),)},
        {"media": (SDPMediaDescriptionData(4000, protocol="UDP TCP"),)},
        {"media": (SDPMediaDescriptionData(4000, attributes=(("note", "a\r\nm=audio"),)),)},
        {"media": (SDPMediaDescriptionData(4000),) * 2},
        {"media": tuple(SDPMediaDescriptionData(port) for port in range(4000, 4065))},
    ],
    ids=lambda wrong: "-".join(wrong),
)
def test_c07_other_malformed_properties_are_rejected_too(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        SIPMobility(properties("alice", **({"server": SERVER} | wrong)))


def test_c07_values_are_converted_through_the_helper() -> None:
    manager = SIPMobility(properties("alice", "localhost", uri="Alice@EXAMPLE.org")).properties_manager
    assert manager.values.uri == "sip:Alice@example.org"
    assert manager.stack.server == ("localhost", 5060), "looked up when it is opened, beside the loop"
    assert (manager.stack.username, manager.stack.password) == ("Alice", "secret")


def test_nothing_works_before_initialising() -> None:
    mobility = SIPMobility(properties("alice", SERVER))
    with pytest.raises(Closed, match="async with"):
        _ = mobility.address
    assert mobility.sessions == {}


def test_c17_sdp_is_made_of_plain_parameters_and_parses_back() -> None:
    media = (SDPMediaDescriptionData(4000), SDPMediaDescriptionData(4001, "TCP", "192.0.2.9"))
    described = SIPHelper.describe("alice", 7, 1, description_of(media, "192.0.2.1"))
    lines = SessionDescription.parse(described).media
    assert [(line.address, line.port, line.protocol) for line in lines] == [
        ("192.0.2.1", 4000, "UDP"),
        ("192.0.2.9", 4001, "TCP"),
    ]


def test_c16_local_media_are_added_retrieved_changed_and_removed() -> None:
    mobility = SIPMobility(properties("alice", SERVER, media=()))
    one, two, three = (SDPMediaDescriptionData(port) for port in (4000, 4001, 4002))
    mobility.add_media_description(one)
    mobility.add_media_description(two)
    mobility.change_media_description(one, three)
    assert mobility.media_descriptions() == (three, two)
    with pytest.raises(LocalProtocolError, match="no local medium"):
        mobility.remove_media_description(one)
    with pytest.raises(ConfigurationError, match="already"):
        mobility.change_media_description(three, two)
    mobility.remove_media_description(three)
    mobility.remove_media_description(two)
    assert mobility.media_descriptions() == ()
