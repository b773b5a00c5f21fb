"""``wanderbus.connect``: from what a program or a file says to an agent that can be opened (SPEC A-10).

The scheme of the URI says which system it is: ``sip:`` and ``sips:`` name a user, who may move; ``eci:`` names the
broker alone, since to the original ECI a user is an address (SPEC A-09).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Unpack

from wanderbus.client.agent import Agent
from wanderbus.client.agent_sockets import BaselineEnd, End, MobileEnd
from wanderbus.client.disconnection_hooks import DisconnectionHooks, OnDisconnected, OnReconnected
from wanderbus.client.machine.messages import AgentProperties
from wanderbus.client.machine.path_choice import WAYS, DataTransport, Way, allowed_ways
from wanderbus.client.outbox import OutboxConfig
from wanderbus.config import AgentArguments, AgentSettings
from wanderbus.config.keys import default_of
from wanderbus.errors import ConfigurationError, SIPParseError
from wanderbus.event import Position
from wanderbus.runtime.files.config_files import CONFIG_VARIABLE, load_agent
from wanderbus.runtime.files.device_file import default_state_dir
from wanderbus.runtime.net.resolver import name_in, place_in
from wanderbus.runtime.net.tls import client_tls
from wanderbus.runtime.system_random import SystemRandom
from wanderbus.sip.authentication.digest import ALGORITHMS
from wanderbus.sip.message.targets import PORTS, TRANSPORTS, Transport
from wanderbus.sip.message.uri import canonical_uri

_DATA_TRANSPORTS: Final[dict[str, DataTransport]] = {"auto": "AUTO", "udp": "UDP", "tcp": "TCP"}
_ECI_SCHEME: Final = "eci://"
_NOT_IN_ECI: Final = (
    *("password", "transport", "ca_file", "broker", "session", "data_transport", "data_ways"),
    *("rudp", "tcp_channels", "on_ended", "offline", "outbox_file", "digest_algorithms"),
)
"""What the original ECI cannot keep to, so that a caller who counts on it is refused."""


def connect(
    uri: str | None = None,
    *,
    config: Path | str | None = None,
    resume: Position | None = None,
    on_disconnected: OnDisconnected | None = None,
    on_reconnected: OnReconnected | None = None,
    **given: Unpack[AgentArguments],
) -> Agent:
    """Return an agent for the user ``uri``, to be opened with ``async with``.

    The other arguments are the keys of a file of settings; docs/configuration.md lists them, and so does ``wanderbus
    config sample agent``. Most programs give ``password`` and ``server``, ``host`` or ``host:port`` of the home SIP
    server; what is given here comes before what the file says. Without ``uri`` and ``config`` the file is the one that
    the environment's WANDERBUS_CONFIG names: such a program says nothing of where and how it is connected.

    With ``eci://host:port`` it is one of the original ECI, known by its address: plain UDP without authentication,
    encryption or repetition, to a server that serves it there. A move makes it somebody else, and what is lost is
    lost. Of the settings only ``keep``, ``keep_queue``, ``publish_per_s``, ``local_address``, ``connect_s_max`` and
    ``answer_s_max`` have a meaning then; those that promise more are refused.

    :param uri: the user, ``sip:name@domain`` or ``name@domain``; ``sips:name@domain`` asks for TLS
    :param config: a TOML file of settings
    :param resume: the last position that the application has committed with its results (DESIGN 5.5). Everything up
        to there counts as taken, whatever subscription it came for: that is right where one subscription is read, or
        several in the order of their numbers. Otherwise each has its own, for ``agent.subscribe(resume=...)``
    :param on_disconnected: awaited when the agent becomes DISCONNECTED, with a :class:`~wanderbus.Disconnection`; it
        may return ``"error"``, so that ``publish`` raises :class:`Unreachable` until the agent is CONNECTED (SPEC G-24)
    :param on_reconnected: awaited when it is CONNECTED again; neither holds up the agent, and errors go to the log
    :raises ConfigurationError: a file, a URI or an address that cannot be read, or a setting that cannot be kept to. A
        host name is looked up when the agent is opened, beside the loop
    """
    if uri is None and config is None:
        config = os.environ.get(CONFIG_VARIABLE)
        if config is None:
            raise ConfigurationError(f"no user is named: give a URI, or a file of settings ({CONFIG_VARIABLE})")
    settings = load_agent(config, given if uri is None else {**given, "uri": uri})
    is_eci = settings.uri.lower().startswith(_ECI_SCHEME)
    if is_eci and (on_disconnected or on_reconnected):
        raise ConfigurationError(f"original ECI ({_ECI_SCHEME}) notices no disconnection; leave its hooks out")
    end = _baseline_end(settings, resume) if is_eci else _mobile_end(settings, resume)
    return Agent(
        end,
        connect_s_max=settings.connect_s_max,
        publish_per_s=settings.publish_per_s,
        outbox=OutboxConfig(settings.outbox_events_max, settings.outbox_bytes_max),
        offline=settings.offline,
        hooks=DisconnectionHooks(on_disconnected, on_reconnected),
    )


def _mobile_end(settings: AgentSettings, resume: Position | None) -> End:
    if not settings.digest_algorithms or not set(settings.digest_algorithms) <= set(ALGORITHMS):
        given = tuple(settings.digest_algorithms)
        raise ConfigurationError(f"digest_algorithms: invalid value {given!r} (expected SHA-256, MD5)")
    user, broker_uri = _uris(settings.uri, settings.broker)
    over = _transport(settings.uri, settings.transport)
    if broker_uri.partition("@")[2] != user.partition("@")[2]:
        over = _transport_to_other_domain(broker_uri, settings)
    properties = AgentProperties(
        **_shared(settings)
        | {
            "uri": user,
            "server": place_in(settings.server, default_port=PORTS[over]),
            "transport": over,
            "server_name": name_in(settings.server) if over == "TLS" else None,
            "broker": broker_uri,
            "data_transport": _data_transport(settings.data_transport, settings.data_ways),
            "resume": resume,
        }
    )
    return MobileEnd(
        properties,
        settings.rudp,
        settings.tcp_channels,
        state_dir=settings.state_dir or default_state_dir(user),
        outbox_file=settings.outbox_file,
        local_address=settings.local_address,
        offline=settings.offline,
        tls=client_tls(settings.ca_file) if over == "TLS" else None,
    )


def _baseline_end(settings: AgentSettings, resume: Position | None) -> End:
    named = [name for name in _NOT_IN_ECI if getattr(settings, name) != default_of(AgentSettings, name)]
    if named := [*named, *(["resume"] if resume else [])]:
        raise ConfigurationError(f"original ECI ({_ECI_SCHEME}) has no {' and no '.join(named)}; leave that out")
    server = place_in(settings.uri[len(_ECI_SCHEME) :], default_port=0)
    properties = AgentProperties(**_shared(settings) | {"server": server, "transport": "UDP", "broker": settings.uri})
    return BaselineEnd(properties, local_address=settings.local_address)


def _shared(settings: AgentSettings) -> dict[str, Any]:
    """Return what the machine is told as it stands in the settings, and a name for this life of an agent."""
    names = set(AgentProperties.__struct_fields__) & set(AgentSettings.__struct_fields__)
    epoch = int.from_bytes(SystemRandom().token(7), "big")
    return {name: getattr(settings, name) for name in names} | {"device": "", "epoch": epoch}


def user_of(uri: str) -> str:
    """Return the canonical URI of a user; :class:`ConfigurationError` for what is none."""
    if uri and not set("@:/ ") & set(uri):
        raise ConfigurationError(f"{uri!r} is not a user; write {uri}@localhost, or the domain of your server")
    try:
        return canonical_uri(uri)
    except SIPParseError as error:
        raise ConfigurationError(f"{uri!r} is not a user: {error}; write sip:name@domain") from None


def _uris(user: str, broker: str | None) -> tuple[str, str]:
    canonical = user_of(user)
    return canonical, user_of(broker) if broker else f"sip:broker@{canonical.partition('@')[2]}"


def _data_transport(wanted: str, ways: Sequence[Way]) -> DataTransport:
    """Return the transport to take; :class:`ConfigurationError` if it is unknown, or no way takes it."""
    over = _DATA_TRANSPORTS.get(wanted)
    if over is None:
        raise ConfigurationError(f"data_transport: invalid value {wanted!r} (expected auto, udp or tcp)")
    if unknown := [way for way in ways if way not in WAYS]:
        raise ConfigurationError(f"data_ways: invalid value {unknown[0]!r} (expected {', '.join(WAYS)})")
    if not allowed_ways(over, ways):
        raise ConfigurationError(f"data_ways: no way is left over {wanted}; name one of {', '.join(WAYS)}")
    return over


def _transport_to_other_domain(broker: str, settings: AgentSettings) -> Transport:
    """Return TLS; :class:`ConfigurationError` if less was asked for.

    Keys that a broker of our own domain signs with what it knows of the password are vouched for by TLS alone here.
    """
    if settings.transport not in (None, "tls"):
        raise ConfigurationError(
            f"transport: {broker} is in another domain and shares no password with us, so its keys are believed over "
            f"TLS alone; leave out transport {settings.transport}"
        )
    return "TLS"


def _transport(uri: str, wanted: str | None) -> Transport:
    """Return the transport for ``uri``; :class:`ConfigurationError` for one that is unknown, or less than it asks."""
    secure = uri.strip().lower().startswith("sips:")
    over = TRANSPORTS.get(wanted or ("tls" if secure else "udp"))
    if over is None:
        raise ConfigurationError(f"{wanted!r} is no transport; use udp, tcp or tls")
    if secure and over != "TLS":
        raise ConfigurationError(f"{uri} asks for TLS, so the transport cannot be {wanted}")
    return over
