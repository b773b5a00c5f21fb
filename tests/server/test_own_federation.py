"""Part of a server in a federation, as its settings give it (SPEC S-01)."""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import Any

import pytest

from wanderbus.channels.decentralised_channels import DecentralisedChannels
from wanderbus.channels.directory import Directory, first_table
from wanderbus.channels.groups import ChannelGroups
from wanderbus.channels.merging import Merging
from wanderbus.channels.own_channels import OwnChannels
from wanderbus.config import ServerSettings
from wanderbus.errors import ConfigurationError
from wanderbus.rudp.keys import KeyPair
from wanderbus.runtime.files.federation_file import create_federation, federation_key_file, put_domain, put_method
from wanderbus.runtime.system_random import SystemRandom
from wanderbus.server.own_federation import FederationContext, OwnFederation, federation_of
from wanderbus.settings.federation import ForeignDomainSettings


def settings(tmp_path: Path, **given: Any) -> ServerSettings:
    return ServerSettings(**{"domain": "alpha.example", "users": {}, "data_dir": tmp_path / "data", **given})


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "federation.toml"
    create_federation(file, "alpha.example", {"a1": "127.0.0.1:5900"})
    return file


def foreign_domain() -> ForeignDomainSettings:
    return ForeignDomainSettings(
        public_key=KeyPair(b"2" * 32).public.hex(), gateways={"b1": "127.0.0.2:5900"}, send=("T",)
    )


def test_address_and_key_of_a_gateway(tmp_path: Path, file: Path) -> None:
    member = federation_of(settings(tmp_path, federation=file, federation_gateway="a1", domain="Alpha.example"))
    assert member is not None
    assert member.key is not None
    assert (member.gateway, member.address, member.key.public) == (
        "a1",
        ("127.0.0.1", 5900),
        member.federation.public_key,
    )
    moved = federation_key_file(file).rename(tmp_path / "own.key")
    given = {"federation": file, "federation_gateway": "a1", "event_server": "a1", "federation_key": moved}
    assert federation_of(settings(tmp_path, **given)) is not None


def test_absence_of_an_address_and_a_key_in_a_server_that_is_no_gateway(tmp_path: Path, file: Path) -> None:
    federation_key_file(file).unlink()
    member = OwnFederation(file)
    assert member is not None
    assert (member.gateway, member.address, member.key) == (None, None, None)
    assert federation_of(settings(tmp_path)) is None


@pytest.mark.parametrize(
    ("given", "error"),
    [
        (
            {"federation": None},
            "federation_gateway, federation_key: apply only with federation; give it, or leave them out",
        ),
        (
            {"federation": None, "federation_gateway": None, "federation_key": Path("own.key")},
            "federation_gateway, federation_key: apply only with federation; give it, or leave them out",
        ),
        (
            {"federation_gateway": None},
            "federation: this server is alone, so it is the gateway; give federation_gateway",
        ),
        (
            {"federation_gateway": None, "federation_key": Path("own.key")},
            "federation_key: only a gateway needs it; give federation_gateway, or leave it out",
        ),
        ({"federation_gateway": "a2"}, "federation.toml has no gateway 'a2' (expected a1)"),
        ({"event_server": "s1"}, "federation_gateway: a1 is not s1, the name of this server in event_domain"),
        ({"domain": "localhost"}, "domain: localhost is not that of "),
        ({"federation": Path("nowhere.toml")}, "nowhere.toml cannot be read: No such file"),
        ({"federation_key": Path("nowhere.key")}, "federation_key: nowhere.key does not exist"),
    ],
)
def test_contradictions_of_the_settings(tmp_path: Path, file: Path, given: dict[str, Any], error: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(error)):
        federation_of(settings(tmp_path, **{"federation": file, "federation_gateway": "a1", **given}))


def test_keys_of_another_domain_and_damaged_keys(tmp_path: Path, file: Path) -> None:
    other = tmp_path / "other.toml"
    create_federation(other, "beta.example", {"b1": "127.0.0.1:5901"})
    key = federation_key_file(other)
    given = {"federation": file, "federation_gateway": "a1", "federation_key": key}
    with pytest.raises(ConfigurationError, match=r"other\.key is not the key of alpha\.example in .*; copy both"):
        federation_of(settings(tmp_path, **given))
    key.write_bytes(b"short")
    with pytest.raises(ConfigurationError, match=r"federation_key: .*other\.key is damaged"):
        federation_of(settings(tmp_path, **given))
    key.unlink()
    key.mkdir()
    with pytest.raises(ConfigurationError, match=r"federation_key: .*other\.key cannot be read: Is a directory"):
        federation_of(settings(tmp_path, **given))


def test_warning_about_a_key_that_others_can_read(tmp_path: Path, file: Path, caplog: pytest.LogCaptureFixture) -> None:
    federation_key_file(file).chmod(0o644)
    with caplog.at_level(logging.WARNING):
        federation_of(settings(tmp_path, federation=file, federation_gateway="a1"))
    assert "federation.key holds the private key of a domain and can be read by others: chmod 600" in caplog.text


def test_refusal_of_a_gateway_that_is_no_server_of_the_domain(tmp_path: Path, file: Path) -> None:
    own = OwnFederation(file, "a1")
    with pytest.raises(ConfigurationError, match="its gateway a1 is no server of the domain"):
        own.parts("s1", ["s1", "s2"], None, SystemRandom(), b"", 1)
    assert own.parts("a1", ["a1", "s2"], None, SystemRandom(), b"", 1).links is not None


def test_acceptance_of_a_rendezvous_between_several_gateways(tmp_path: Path) -> None:
    own = {"a1": "127.0.0.1:5900", "a2": "127.0.0.1:5901"}
    theirs = {"b1": "127.0.0.2:5900", "b2": "127.0.0.2:5901"}
    file = tmp_path / "several.toml"
    create_federation(file, "alpha.example", own)
    key = KeyPair(b"\7" * 32).public.hex()
    put_domain(file, "beta.example", ForeignDomainSettings(public_key=key, gateways=theirs, receive=("Price",)))
    put_method(file, "Price", "rendezvous")
    assert OwnFederation(file, "a1").parts("a1", list(own), None, SystemRandom(), b"", 1).links is not None


@pytest.mark.parametrize("is_decentralised", [True, False])
def test_refusal_of_several_gateways_with_a_decentralised_channel(tmp_path: Path, is_decentralised: bool) -> None:
    file = tmp_path / "several.toml"
    create_federation(file, "alpha.example", {"a1": "127.0.0.1:5900", "a2": "127.0.0.1:5901"})
    key = KeyPair(b"\7" * 32).public.hex()
    theirs = {"b1": "127.0.0.2:5900"}
    put_domain(file, "beta.example", ForeignDomainSettings(public_key=key, gateways=theirs, receive=("Price",)))
    names = ("a1", "a2")
    directory = Directory(ChannelGroups(bytes(32), 8), first_table(8, names, bytes(32)))
    own = DecentralisedChannels(
        *(directory, "a1", names, lambda subject: is_decentralised, lambda subject: Merging(), (Merging(),)),
        has_ordered=True,
    )
    channels = OwnChannels(directory, "a1", decentralised=own, others=["a2"])
    federation = OwnFederation(file, "a1")
    if is_decentralised:
        with pytest.raises(ConfigurationError, match="the channel of Price is decentralised"):
            federation.parts("a1", names, channels, SystemRandom(), b"", 1)
    else:
        assert federation.parts("a1", names, channels, SystemRandom(), b"", 1).links is not None


def test_refusal_of_causal_order_without_decentralised_channels_or_with_spark(tmp_path: Path) -> None:
    file = tmp_path / "causal.toml"
    create_federation(file, "alpha.example", {"a1": "127.0.0.1:5900"})
    key = KeyPair(b"\7" * 32).public.hex()
    put_domain(
        file,
        "beta.example",
        ForeignDomainSettings(public_key=key, gateways={"b1": "127.0.0.2:5900"}, receive=("Price",), causal=True),
    )
    federation, names = OwnFederation(file, "a1"), ("a1", "a2")
    directory = Directory(ChannelGroups(bytes(32), 8), first_table(8, names, bytes(32)))

    def channels(*, is_decentralised: bool) -> OwnChannels:
        own = DecentralisedChannels(
            *(directory, "a1", names, lambda subject: is_decentralised, lambda subject: Merging(), (Merging(),)),
            has_ordered=True,
        )
        return OwnChannels(directory, "a1", decentralised=own, others=["a2"])

    for unable in (None, channels(is_decentralised=False)):
        with pytest.raises(ConfigurationError, match=r"causal: the channel of Price is not decentralised; make it so"):
            federation.parts("a1", names, unable, SystemRandom(), b"", 1)
    able = channels(is_decentralised=True)
    with pytest.raises(ConfigurationError, match=r"causal: a matching engine on Spark matches events here"):
        federation.parts("a1", names, able, SystemRandom(), b"", 1, has_engine=True)
    assert (
        federation.parts("a1", names, able, SystemRandom(), b"", 1).member.rows()["beta.example"]["order"]
        == "asked here"
    )


@pytest.mark.parametrize("key", ["gateways", "public_key", ""])
def test_refusal_of_a_changed_file_in_one_line(file: Path, key: str, caplog: pytest.LogCaptureFixture) -> None:
    own = OwnFederation(file, "a1")
    own.parts("a1", ("a1",), None, SystemRandom(), b"", 1)
    assert own.look() is None, "nothing has changed"
    text, before = file.read_text(), own.federation
    match key:
        case "gateways":
            file.write_text(text.replace("5900", "5901"))
        case "public_key":
            file.write_text(text.replace(before.public_key.hex(), KeyPair(b"1" * 32).public.hex()))
        case _:
            file.write_text(f"{text}nonsense")
    assert own.look() is None
    assert own.look() is None, "the same file is refused once"
    assert own.federation is before
    [line] = [each.message for each in caplog.records if each.levelno >= logging.ERROR]
    assert "is not used, the former one stays" in line
    assert key in line
    assert "\n" not in line
    file.write_text(text)
    put_domain(file, "beta.example", foreign_domain())
    changed = own.look()
    assert changed is not None
    assert [each.name for each in changed.parameters.domains] == ["beta.example"]
    assert changed.epoch > 1
    assert own.look() is None


def test_m05_the_method_tree_and_a_domain_without_a_link(file: Path) -> None:
    put_method(file, "Price", "tree")
    for name, digit, gateways, distance_ms in (
        ("beta.example", b"\7", {"b1": "127.0.0.2:5900"}, 2.5),
        ("gamma.example", b"\x08", {}, None),
    ):
        key = KeyPair(digit * 32).public.hex()
        foreign = ForeignDomainSettings(
            public_key=key, gateways=gateways, receive=("Price",), send=("Price",), distance_ms=distance_ms
        )
        put_domain(file, name, foreign)
    own = OwnFederation(file, "a1")
    assert own.federation.links_of("a1").keys() == {"beta.example/b1"}
    assert own.parts("a1", ["a1"], None, SystemRandom(), b"", 1).links is not None
    parameters = own._parameters(FederationContext("a1", ("a1",), None, SystemRandom(), b"", 1))
    assert [each.gateways for each in parameters.domains] == [("b1",), ()]
    routing = parameters.routing
    assert (routing.method_of("Price"), routing.without_trees().method_of("Price")) == ("tree", "multicast")
    assert [routing.neighbours[each.name].distance for each in parameters.domains] == [2.5, 1.0]
