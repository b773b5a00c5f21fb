"""``wanderbus.connect``: creation of an agent from arguments and a file of settings (SPEC A-10).

The scheme of the URI selects the system: ``sip:`` and ``sips:`` name a user, who may move; ``eci:`` names the broker,
since the original ECI identifies users by address (SPEC A-09).
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, Unpack, get_args

from wanderbus.client.agent import Agent
from wanderbus.client.agent_sockets import ECI_SCHEME, AgentSockets, MobileEnd, shared_properties
from wanderbus.client.disconnection_hooks import DisconnectionHooks, OnDisconnected, OnReconnected
from wanderbus.client.machine.data_path import allowed_paths
from wanderbus.client.machine.messages import DATA_PATH_KINDS, AgentProperties, DataPathKind, DataTransport, OnEnded
from wanderbus.client.reports import OutboxSize
from wanderbus.client.user_uri import user_of
from wanderbus.detection import MakeDetector
from wanderbus.errors import ConfigurationError
from wanderbus.event import Position
from wanderbus.hosts import domain_of
from wanderbus.runtime.files.device_file import default_state_dir
from wanderbus.runtime.net.resolver import name_in, target_in
from wanderbus.settings.agent import CONFIG_VARIABLE, AgentArguments, AgentSettings
from wanderbus.sip.authentication.digest_values import ALGORITHMS
from wanderbus.sip.message.targets import PORTS, TRANSPORTS, Transport

_ON_ENDED: Final = get_args(OnEnded)

_DEFAULTS: Final = AgentSettings(uri="")

_DATA_TRANSPORTS: Final[dict[str, DataTransport]] = {"auto": "AUTO", "udp": "UDP", "tcp": "TCP"}


def connect(
    uri: str | None = None,
    *,
    config: Path | str | None = None,
    resume: Position | None = None,
    on_disconnected: OnDisconnected | None = None,
    on_reconnected: OnReconnected | None = None,
    detector: MakeDetector | None = None,
    **given: Unpack[AgentArguments],
) -> Agent:
    """Return an agent for the user ``uri``, to be opened with ``async with``.

    The other arguments are the keys of a file of settings, listed in docs/configuration.md and by ``wanderbus config
    sample agent``. Most programs give ``password`` and ``server``, which is ``host`` or ``host:port`` of the home SIP
    server. Arguments override the file. Without ``uri`` and ``config``, the environment variable WANDERBUS_CONFIG names
    the file, so that the program itself contains no connection settings.

    With ``eci://host:port`` the agent speaks the original ECI, which identifies it by its address: plain UDP without
    authentication, encryption or retransmission, to a server with an ECI port. After a move the agent is a different
    user, and lost events are not recovered. Only the settings ``keep``, ``keep_queue``, ``publish_per_s``,
    ``local_address``, ``connect_s_max`` and ``answer_s_max`` apply then; settings that promise more are refused.

    :param uri: the user, ``sip:name@domain`` or ``name@domain``; ``sips:name@domain`` requires TLS
    :param config: a TOML file of settings
    :param resume: the last position that the application has committed with its results (DESIGN 5.5). Everything up
        to it counts as acknowledged, for all subscriptions of the session. This is right if one subscription is read,
        or several in the order of their numbers. Otherwise use ``agent.subscribe(resume=...)`` for each subscription
    :param on_disconnected: awaited when the agent becomes DISCONNECTED, with a :class:`~wanderbus.Disconnection`; it
        may return ``"error"``, so that ``publish`` raises :class:`Unreachable` until the agent is CONNECTED (SPEC G-24)
    :param on_reconnected: awaited when the agent is CONNECTED again. Neither hook delays the agent; their errors are
        logged
    :param detector: returns the failure detector of each data channel, which decides whether the broker is gone; see
        :mod:`wanderbus.api.detecting` (SPEC G-26)
    :raises ConfigurationError: a file, a URI or an address cannot be read, or a setting cannot be met. Host names are
        looked up later, when the agent is opened
    """
    if uri is None and config is None:
        config = os.environ.get(CONFIG_VARIABLE)
        if config is None:
            raise ConfigurationError(f"no user given; give a URI, or a file of settings ({CONFIG_VARIABLE})")
    settings = _settings(uri, config, given)
    is_eci = settings.uri.lower().startswith(ECI_SCHEME)
    if is_eci and (on_disconnected or on_reconnected or detector):
        raise ConfigurationError(
            f"original ECI ({ECI_SCHEME}) does not detect disconnections; leave out on_disconnected, on_reconnected "
            "and detector"
        )
    end: AgentSockets
    if is_eci:
        # Few agents speak the original ECI.
        from wanderbus.client.eci_end import BaselineEnd

        end = BaselineEnd.of(settings, resume)
    else:
        end = _mobile_end(settings, resume, detector)
    return Agent(
        end,
        connect_s_max=settings.connect_s_max,
        publish_per_s=settings.publish_per_s,
        outbox_max=OutboxSize(settings.outbox_events_max, settings.outbox_bytes_max),
        offline=settings.offline,
        hooks=DisconnectionHooks(on_disconnected, on_reconnected),
    )


def _check_arguments(given: Mapping[str, object]) -> None:
    """Raise :class:`TypeError` for an unknown argument, :class:`ConfigurationError` for one of a wrong type."""
    for name, value in given.items():
        if name not in AgentSettings.__struct_fields__:
            import difflib

            close = difflib.get_close_matches(name, AgentSettings.__struct_fields__, n=1)
            remedy = f"did you mean {close[0]!r}?" if close else "'wanderbus config sample agent' lists them"
            raise TypeError(f"connect() got an unexpected keyword argument {name!r}; {remedy}")
        default = getattr(_DEFAULTS, name)
        kinds = (int, float) if type(default) is float else (type(default),)
        if type(default) in (bool, int, float, str) and type(value) not in kinds:
            raise ConfigurationError(f"{name}: {type(value).__name__} given (expected {kinds[-1].__name__})")


def _settings(uri: str | None, config: Path | str | None, given: AgentArguments) -> AgentSettings:
    _check_arguments(given)
    if config is None and given.get("password_file") is None:
        assert uri is not None, "without a file the user is an argument"
        return AgentSettings(uri=uri, **given)  # type: ignore[arg-type]  # paths may be texts
    # Only agents with a file of settings load the keys of such files and their reader.
    from wanderbus.runtime.files.config_files import load_agent

    return load_agent(config, given if uri is None else {**given, "uri": uri})


def _tls(ca_file: Path | None) -> ssl.SSLContext:
    # Only agents whose SIP uses TLS load it.
    from wanderbus.runtime.net.tls import client_tls

    return client_tls(ca_file)


def _mobile_end(settings: AgentSettings, resume: Position | None, make_detector: MakeDetector | None) -> AgentSockets:
    if not settings.digest_algorithms or not set(settings.digest_algorithms) <= set(ALGORITHMS):
        given = tuple(settings.digest_algorithms)
        raise ConfigurationError(f"digest_algorithms: invalid value {given!r} (expected SHA-256, MD5)")
    if settings.on_ended not in _ON_ENDED:
        raise ConfigurationError(f"on_ended: invalid value {settings.on_ended!r} (expected {', '.join(_ON_ENDED)})")
    if isinstance(settings.password, Mapping) and "sha-256" not in settings.password:
        raise ConfigurationError("password: a table of digests needs the one of sha-256; the broker checks keys by it")
    user, broker_uri = _uris(settings.uri, settings.broker)
    over = _transport(settings.uri, settings.transport)
    if domain_of(broker_uri) != domain_of(user):
        over = _transport_to_other_domain(broker_uri, settings)
    properties = AgentProperties(
        **shared_properties(settings)
        | {
            "uri": user,
            "server": target_in(settings.server, default_port=PORTS[over]),
            "transport": over,
            "server_name": name_in(settings.server) if over == "TLS" else None,
            "broker": broker_uri,
            "data_transport": _data_transport(settings.data_transport, settings.data_paths),
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
        data_port=settings.data_port,
        offline=settings.offline,
        tls=_tls(settings.ca_file) if over == "TLS" else None,
        make_detector=make_detector,
    )


def _uris(user: str, broker: str | None) -> tuple[str, str]:
    canonical = user_of(user)
    return canonical, user_of(broker) if broker else f"sip:broker@{canonical.partition('@')[2]}"


def _data_transport(wanted: str, ways: Sequence[DataPathKind]) -> DataTransport:
    """Return the data transport; :class:`ConfigurationError` if it is unknown, or ``ways`` has no path for it."""
    over = _DATA_TRANSPORTS.get(wanted)
    if over is None:
        raise ConfigurationError(f"data_transport: invalid value {wanted!r} (expected auto, udp or tcp)")
    if unknown := [way for way in ways if way not in DATA_PATH_KINDS]:
        raise ConfigurationError(f"data_paths: invalid value {unknown[0]!r} (expected {', '.join(DATA_PATH_KINDS)})")
    if not allowed_paths(over, ways):
        raise ConfigurationError(
            f"data_paths: none of them uses data_transport {wanted}; add one of {', '.join(DATA_PATH_KINDS)}"
        )
    return over


def _transport_to_other_domain(broker: str, settings: AgentSettings) -> Transport:
    """Return TLS; :class:`ConfigurationError` if another transport was requested.

    A broker of our own domain authenticates its keys with the shared password. Another domain's broker has no shared
    password, so only TLS protects its keys.
    """
    if settings.transport not in (None, "tls"):
        raise ConfigurationError(
            f"transport: {broker} is in another domain and shares no password with this user, so its keys are accepted "
            f"over TLS only; leave out transport {settings.transport}"
        )
    return "TLS"


def _transport(uri: str, wanted: str | None) -> Transport:
    """Return the SIP transport for ``uri``; :class:`ConfigurationError` if unknown, or not TLS for a ``sips`` URI."""
    secure = uri.strip().lower().startswith("sips:")
    over = TRANSPORTS.get(wanted or ("tls" if secure else "udp"))
    if over is None:
        raise ConfigurationError(f"transport: invalid value {wanted!r} (expected udp, tcp or tls)")
    if secure and over != "TLS":
        raise ConfigurationError(f"transport: {uri} requires TLS, so the transport cannot be {wanted}")
    return over
