"""Decisions about logins without a password, for programs on the server's own computer (SPEC U-11)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

import msgspec

from wanderbus.errors import SIPParseError
from wanderbus.machine import Address, shown
from wanderbus.runtime.services.login import Login, LoginDenied, LoginWanted
from wanderbus.sip.authentication.digest_values import HASHED, Secret, secret_ha1
from wanderbus.sip.message.uri import SIPUri, canonical_uri

OPERATOR: Final = "local-operator"
"""Name of the user as whom the operator on the server's computer makes requests, unless another user has it."""

_ROOT: Final = 0


def caller_refusal(caller: int, owner: int) -> str:
    """Return why a process of the user id ``caller`` gets no login at a server of ``owner``; empty if it gets one."""
    if caller in (_ROOT, owner):
        return ""
    return (
        f"the server is run by the user with id {owner} of this computer, not by {caller}; run the command as that "
        "user or as root, or give --user, --password and --server"
    )


def operator_name(users: Mapping[str, Secret]) -> str:
    """Return :data:`OPERATOR`, or a free name like it if one of ``users`` has it."""
    name = OPERATOR
    while name in users:
        name += "-"
    return name


class LocalAddress(msgspec.Struct, frozen=True, kw_only=True):
    """Address of a started server, for agents on its computer, and what they need to know."""

    server: Address
    server_name: str | None = None
    """Name in the certificate of ``server``, for TLS."""
    transport: Literal["udp", "tcp", "tls"] = "udp"
    broker: str
    encryption: bool
    ca_file: str | None = None
    event_server: str | None = None


class LocalLogins:
    """Logins at one server.

    :param users: the secret of each user of ``domain``, by name
    :param operator: name of the operator among them; None if the registrar is elsewhere and knows no such user
    :param roles: roles by the URIs of users; without ``operator``, the first with the highest role takes its place
    """

    def __init__(
        self,
        domain: str,
        users: Mapping[str, Secret],
        operator: str | None,
        roles: Mapping[str, str],
        reached: LocalAddress,
    ) -> None:
        self._domain = domain
        self._users = users
        self._operator = operator
        self._roles = roles
        self._reached = reached

    def answer(self, wanted: LoginWanted) -> Login | LoginDenied:
        """Return the login, or why there is none."""
        if wanted.user is None:
            return self._as_operator()
        text = wanted.user if set("@:") & set(wanted.user) else f"sip:{wanted.user}@{self._domain}"
        try:
            user = SIPUri.parse(canonical_uri(text))
        except SIPParseError as error:
            return LoginDenied("foreign", f"{wanted.user!r} is not a user: {error}; write sip:name@domain")
        if user.host != self._domain:
            return LoginDenied(
                "foreign", f"the server serves {self._domain}, not {user.host}; write NAME@{self._domain}"
            )
        found = self._login(user.user or "")
        if found is None or user.user == self._operator:
            return LoginDenied("unknown", f"the server has no user {user}; add it to the server's users file")
        return found

    def _as_operator(self) -> Login | LoginDenied:
        names = [] if self._operator is None else [self._operator]
        for role in ("administrator", "operator"):
            names += [SIPUri.parse(user).user or "" for user, each in self._roles.items() if each == role]
        for name in names:
            if (found := self._login(name)) is not None:
                return found
        return LoginDenied(
            "operator",
            f"the registrar of this server is {shown(self._reached.server)}, and no user has a role here; start the "
            "server with --admin NAME",
        )

    def _login(self, name: str) -> Login | None:
        secret = self._users.get(name)
        if secret is None:
            return None
        digests = {each: secret_ha1(secret, name, self._domain, each) for each in HASHED}
        reached = self._reached
        host, port = reached.server
        return Login(
            user=canonical_uri(f"sip:{name}@{self._domain}"),
            digests={algorithm: digest for algorithm, digest in digests.items() if digest is not None},
            server=shown((reached.server_name or host, port)),
            transport=reached.transport,
            broker=reached.broker,
            encryption=reached.encryption,
            ca_file=reached.ca_file,
            event_server=reached.event_server,
        )
