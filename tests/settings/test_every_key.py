"""Key by key: every setting of a file reaches the parameters of the agent or the server (SPEC Q-02)."""

from __future__ import annotations

import types
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Literal, get_args, get_origin

import msgspec
import pytest

import wanderbus
from tests.certificates import certify, make_certificates
from wanderbus.client.agent_sockets import MobileEnd
from wanderbus.client.eci_end import BaselineEnd
from wanderbus.config import AgentSettings, ServerSettings
from wanderbus.runtime.files.domain_file import create_domain
from wanderbus.server.domain_settings import name_servers, other_domains
from wanderbus.settings.keys import Key, plain, table_of
from wanderbus.settings.writing import toml
from wanderbus.sip.message.targets import Target

TEXTS: Final = {
    "uri": "sip:bob@example.org",
    "broker": "sip:other@localhost",
    "server": "127.0.0.9:5999",
    "host": "127.0.0.9",
    "advertise": "192.0.2.8",
    "eci_host": "127.0.0.8",
    "light": "127.0.0.8:5080",
    "local_address": "127.0.0.7",
    "broker.zone": "Europe/Lisbon",
    "sip_server": "sip:127.0.0.9:5999;transport=tcp",
    "relay.address": "127.0.0.6",
    "relay.advertise": "192.0.2.6",
    "relay.ports": "40000-40001",
}
"""Values of keys that do not accept every text."""


def keys(kind: type[msgspec.Struct]) -> list[Any]:
    return [pytest.param(key, id=key.name) for key in table_of(kind).all_keys()]


def another(key: Key) -> Any:
    """A value that ``key`` takes and that is not its default."""
    member = next(member for member in key.members if member is not types.NoneType)
    if get_origin(member) is Literal:
        return next(word for word in reversed(get_args(member)) if word != key.default)
    if get_origin(member) is tuple and get_origin(get_args(member)[0]) is Literal:
        return get_args(get_args(member)[0])[-1:]
    known: dict[Any, Callable[[], Any]] = {
        bool: lambda: not key.default,
        int: lambda: (key.default or 0) + 1,
        float: lambda: (key.default or 0.0) + 0.0625,
        str: lambda: TEXTS.get(key.name, "another"),
        tuple: lambda: ("127.0.0.6:2224",),
        Path: lambda: "some/where",
    }
    if key.name == "edge_proxies":
        return ("127.0.0.6",)
    if key.name == "access.nearest":
        return {"127.0.0.0/8": "127.0.0.6:5071"}
    if "may_" in key.name:
        return {"sip:bob@localhost": ("Trade", "News*")}
    return known.get(plain(member), lambda: {"sip:bob@localhost": "operator"})()


def write(file: Path, key: Key, value: Any, **others: Any) -> Path:
    """Write a file that sets ``key``, and the other keys that it requires."""
    *tables, name = key.path
    lines = [f"{other} = {toml(given)}" for other, given in others.items() if key.path != (other,)]
    file.write_text("\n".join([*lines, *([f"[{'.'.join(tables)}]"] if tables else []), f"{name} = {toml(value)}"]))
    return file


def within(struct: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        struct = getattr(struct, name)
    return struct


# Agents ------------------------------------------------------------------------------------------------------------

AGENT: Final[dict[str, Callable[[wanderbus.Agent, MobileEnd], Any]]] = {
    "server": lambda agent, end: "{}:{}".format(*end.properties.server),
    "transport": lambda agent, end: end.properties.transport.lower(),
    "data_transport": lambda agent, end: end.properties.data_transport.lower(),
    "connect_s_max": lambda agent, end: agent._connect_s_max,
    "outbox_file": lambda agent, end: end._outbox,
    "offline": lambda agent, end: agent._offline,
    "outbox_events_max": lambda agent, end: agent._outbox.most.events,
    "outbox_bytes_max": lambda agent, end: agent._outbox.most.bytes,
    "publish_per_s": lambda agent, end: agent._rate._per_s,
    "state_dir": lambda agent, end: end._state_dir,
    "local_address": lambda agent, end: end._local_address,
    "data_port": lambda agent, end: end._data_port,
    "rudp": lambda agent, end: end._rudp,
    "tcp_channels": lambda agent, end: end._tcp_channels,
}
"""Attributes that hold keys of an agent which are not properties of the machine."""


@pytest.mark.parametrize("key", [each for each in keys(AgentSettings) if each.id not in ("ca_file", "password_file")])
def test_agent(key: Key, tmp_path: Path) -> None:
    value = another(key)
    agent = wanderbus.connect(config=write(tmp_path / "agent.toml", key, value, uri="sip:alice@localhost"))
    end = agent._end
    assert isinstance(end, MobileEnd)
    first = key.path[0]
    found = AGENT[first](agent, end) if first in AGENT else getattr(end.properties, first)
    assert within(found, key.path[1:]) == (tmp_path / value if Path in key.members else value)


def test_u05_events_are_encrypted_unless_that_is_turned_off(tmp_path: Path) -> None:
    for text, encryption in (("", True), ("encryption = false", False)):
        file = tmp_path / "agent.toml"
        file.write_text(f'uri = "sip:alice@localhost"\n{text}')
        agent = wanderbus.connect(config=file)._end
        assert isinstance(agent, MobileEnd)
        assert agent.properties.encryption is encryption
    defaults = {field.name: field.default for field in msgspec.structs.fields(ServerSettings)}
    assert defaults["encryption"] is True


def test_agents_files(tmp_path: Path) -> None:
    """The two keys that name a file which is read at once."""
    authority = make_certificates(tmp_path).authority
    (tmp_path / "word").write_text("hunter2")
    file = tmp_path / "agent.toml"
    file.write_text(f'uri = "sips:alice@localhost"\nca_file = "{authority.name}"\npassword_file = "word"')
    end = wanderbus.connect(config=file)._end
    assert isinstance(end, MobileEnd)
    assert end._tls is not None
    assert len(end._tls.get_ca_certs()) == 1
    assert end.properties.password == "hunter2"


def test_an_agent_of_the_original_eci_takes_what_has_a_meaning(tmp_path: Path) -> None:
    file = tmp_path / "agent.toml"
    file.write_text('uri = "eci://127.0.0.1:5999"\nkeep = false\nlocal_address = "127.0.0.7"\nanswer_s_max = 9')
    end = wanderbus.connect(config=file)._end
    assert isinstance(end, BaselineEnd)
    assert (end.properties.server, end.properties.keep) == (("127.0.0.1", 5999), False)
    assert (end.properties.answer_s_max, end._local_address) == (9.0, "127.0.0.7")


def test_arguments_override_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "agent.toml"
    file.write_text('uri = "sip:alice@localhost"\nencryption = false\nsession = "written"\nkeepalive_s = 9')
    agent = wanderbus.connect("sip:bob@localhost", config=file, encryption=True, session="default")
    given = agent._end.properties
    assert (given.uri, given.encryption, given.session, given.keepalive_s) == (
        "sip:bob@localhost",
        True,
        "default",
        9.0,
    )
    monkeypatch.setenv("WANDERBUS_CONFIG", str(file))
    assert wanderbus.connect()._end.properties.session == "written"
    assert wanderbus.connect(session="given")._end.properties.session == "given"
    alone = wanderbus.connect("sip:bob@localhost")._end.properties
    assert (alone.encryption, alone.session) == (True, "default"), "who names a user is not told by the environment"
    monkeypatch.delenv("WANDERBUS_CONFIG")
    with pytest.raises(wanderbus.WanderbusError, match="WANDERBUS_CONFIG"):
        wanderbus.connect()


# Servers -----------------------------------------------------------------------------------------------------------

SERVER: Final[dict[str, Callable[[wanderbus.Server], Any]]] = {
    "domain": lambda server: server.domain,
    "host": lambda server: server.address[0],
    "port": lambda server: server.address[1],
    "eci_host": lambda server: server.eci_address and server.eci_address[0],
    "eci_port": lambda server: server.eci_address and server.eci_address[1],
    "broker": lambda server: server._broker_config,
    "sip_server": lambda server: server.sip_server and "sip:{}:{};transport=tcp".format(*server.sip_server.address),
    "broker_user": lambda server: server.broker_uri.partition(":")[2].partition("@")[0],
    "broker_password": lambda server: server._broker_password,
}
"""Attributes that hold the keys which are used at once; the others are read when the server starts."""


NEEDED: Final[dict[str, dict[str, Any]]] = {
    "relay_calls": {"relays": ["127.0.0.1"]},
}
"""Other keys that some keys require."""

READ_AT_ONCE: Final = (
    *("extensions", "users", "ca_file", "broker_password_file", "user_domains", "domains"),
    *("event_domain", "event_server", "event_key", "federation", "federation_gateway", "federation_key"),
)


def is_taken_as_it_is(name: str) -> bool:
    """Return whether a test value can be used directly; keys that require other keys or files have a test of
    their own.
    """
    return name.partition(".")[0] not in READ_AT_ONCE and name != "broker.queue.policy"


@pytest.mark.parametrize("key", [each for each in keys(ServerSettings) if is_taken_as_it_is(each.id)])
def test_server(key: Key, tmp_path: Path) -> None:
    value = another(key)
    others = NEEDED.get(key.name, {})
    file = write(
        tmp_path / "broker.toml", key, value, domain="localhost", data_dir="data", users={}, eci_port=0, **others
    )
    server = wanderbus.Server.from_file(file)
    first = key.path[0]
    found = SERVER[first](server) if first in SERVER else getattr(server._settings, first)
    assert within(found, key.path[1:]) == (tmp_path / value if Path in key.members else value)


def test_event_domain_of_a_server(tmp_path: Path) -> None:
    create_domain(tmp_path / "domain", "localhost", 2)
    (tmp_path / "domain" / "keys" / "s2.key").rename(tmp_path / "own.key")
    file = tmp_path / "broker.toml"
    file.write_text(
        'domain = "localhost"\ndata_dir = "data"\nusers = {}\n'
        'event_domain = "domain/domain.toml"\nevent_server = "s2"\nevent_key = "own.key"\n'
    )
    server = wanderbus.Server.from_file(file)
    assert server._member is not None
    assert (server._member.name, sorted(server._member.domain.settings.servers)) == ("s2", ["s1", "s2"])


def test_users_of_a_server(tmp_path: Path) -> None:
    (tmp_path / "users.txt").write_text("alice:secret\n")
    file = tmp_path / "broker.toml"
    rest = 'domain = "localhost"\ndata_dir = "data"\n'
    for text in ('users = "users.txt"', '[users]\nalice = "secret"'):
        file.write_text(rest + text)
        server = wanderbus.Server.from_file(file)
        assert server._secrets["alice"] == "secret"
        assert set(server._secrets) == {"alice", "broker"}
    file.write_text(rest + '[users]\nbroker = "secret"')
    with pytest.raises(wanderbus.WanderbusError, match="users: the name 'broker' is taken"):
        wanderbus.Server.from_file(file)


def test_a_brokers_files(tmp_path: Path) -> None:
    """The two keys that name a file which is read at once."""
    authority = make_certificates(tmp_path).authority
    (tmp_path / "word").write_text("quorum")
    file = tmp_path / "broker.toml"
    file.write_text(
        'domain = "localhost"\ndata_dir = "data"\nusers = {}\nsip_server = "sips:127.0.0.1"\n'
        f'ca_file = "{authority.name}"\nbroker_password_file = "word"'
    )
    server = wanderbus.Server.from_file(file)
    assert server._tls is not None
    assert len(server._tls.get_ca_certs()) == 1
    assert server._broker_password == "quorum"


def test_other_domains_of_a_server(tmp_path: Path) -> None:
    """Keys that have a meaning together alone, and with a certificate."""
    authority = make_certificates(tmp_path).authority
    certificate = certify(tmp_path, "own", "DNS:localhost")
    file = tmp_path / "broker.toml"
    file.write_text(
        f'domain = "localhost"\ndata_dir = "data"\nusers = {{}}\ntls_certificate = "{certificate.name}"\n'
        f'user_domains = ["Example.net"]\n[domains]\nlookup = false\ntrusted = ["example.net"]\n'
        f'ca_file = "{authority.name}"\nname_servers = ["127.0.0.6:5353"]\n'
        '[domains.routes]\n"Example.net" = ["127.0.0.7", "127.0.0.8:5099"]\n"example.com" = ["127.0.0.9;transport=tcp"]'
    )
    server = wanderbus.Server.from_file(file)
    assert server._user_domains == {"example.net"}
    assert server._settings.domains is not None
    assert server._settings.domains.ca_file == authority
    assert name_servers(server._settings.domains) == [("127.0.0.6", 5353)]
    others = other_domains(server._settings)
    assert others is not None
    assert others.trusted == {"example.net"}
    assert not others.lookup
    assert {domain: [each.target for each in servers] for domain, servers in others.routes.items()} == {
        "example.net": [
            Target("TLS", ("127.0.0.7", 5061), None, "example.net"),
            Target("TLS", ("127.0.0.8", 5099), None, "example.net"),
        ],
        "example.com": [Target("TCP", ("127.0.0.9", 5060))],
    }


def test_roles_belong_to_the_servers_domain_by_default(tmp_path: Path) -> None:
    file = tmp_path / "broker.toml"
    rest = 'domain = "Example.org"\ndata_dir = "data"\nusers = {}\n[broker.roles]\n'
    file.write_text(f'{rest}alice = "administrator"\n"bob@example.net" = "operator"')
    roles = wanderbus.Server.from_file(file)._broker_config.roles
    assert roles == {"sip:alice@example.org": "administrator", "sip:bob@example.net": "operator"}
    file.write_text(f'{rest}"a b" = "operator"')
    with pytest.raises(wanderbus.WanderbusError, match=r"broker\.roles: .*write sip:name@domain"):
        wanderbus.Server.from_file(file)


def test_a_time_zone_that_is_none(tmp_path: Path) -> None:
    file = tmp_path / "broker.toml"
    file.write_text('domain = "localhost"\ndata_dir = "data"\nusers = {}\n[broker]\nzone = "Mars/Base"')
    with pytest.raises(wanderbus.WanderbusError, match=r"broker\.zone: unknown time zone 'Mars/Base'"):
        wanderbus.Server.from_file(file)


def test_arguments_of_a_server_override_its_file(tmp_path: Path) -> None:
    file = tmp_path / "broker.toml"
    file.write_text('domain = "localhost"\ndata_dir = "data"\nport = 5999\nhost = "127.0.0.9"\nusers = {}')
    server = wanderbus.Server.from_file(file, port=0, data_dir=tmp_path)
    assert server.address == ("127.0.0.9", 0)
    assert server._settings.data_dir == tmp_path
