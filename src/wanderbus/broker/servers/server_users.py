"""Users that are reserved for servers of the domain, ``sip:NAME@servers.DOMAIN``, and for other domains (SPEC J-01).

A server has a session at another one as a user has, with ordinary subscriptions and numbers. The bounds on users do not
apply to it, because it stands for all its own users, whose server has applied them.

A foreign domain is ``sip:NAME@domains.DOMAIN`` (SPEC M-01; decision 0161). A gateway reads its session whole, as a
server reads its own, and publishes the events of that domain here. It is trusted less: the bounds on a user's queue and
subscriptions apply, nothing here waits for it, and it gets what this server has accepted from users of this domain.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Protocol

from wanderbus import protocol
from wanderbus.broker.state.rows import SessionRow


class SessionsByKey(Protocol):
    """The sessions of a server, by key, and those of one user."""

    @property
    def sessions(self) -> Mapping[str, SessionRow]:
        """Return all sessions, by key."""
        ...

    def sessions_of(self, user: str) -> Sequence[SessionRow]:
        """Return the sessions of a user."""
        ...


class ServerUsers:
    """The reserved users with a session or a link here.

    :param domain: the domain of the server; with "" no user is reserved
    """

    def __init__(self, state: SessionsByKey, domain: str) -> None:
        self._state = state
        self._ending = f"@servers.{domain}" if domain else ""
        self._foreign_ending = f"@domains.{domain}" if domain else ""
        self.users: set[str] = set()
        """Servers of the domain; others are added later."""
        self.foreign: set[str] = set()
        """Foreign domains; others are added later."""
        self.all: set[str] = set()
        """Servers and foreign domains together."""
        for each in state.sessions.values():
            if self.reserves(each.user):
                self.opened(each.user)

    def reserves(self, user: str) -> bool:
        """Return whether nobody but a server or a foreign domain may be ``user``."""
        return bool(self._ending) and user.endswith((self._ending, self._foreign_ending))

    def is_foreign(self, user: str) -> bool:
        """Return whether ``user`` stands for a foreign domain."""
        return bool(self._foreign_ending) and user.endswith(self._foreign_ending)

    def opened(self, user: str) -> None:
        """Count ``user`` as a server, or as a foreign domain, from now on."""
        (self.foreign if self.is_foreign(user) else self.users).add(user)
        self.all.add(user)

    def forget(self, user: str) -> None:
        """Count ``user`` no longer: its session is gone."""
        for each in (self.users, self.foreign, self.all):
            each.discard(user)

    def excluded(self, publisher: str, *, is_direct: bool) -> Collection[str]:
        """Return the users that get no event of ``publisher`` which this server accepts.

        Servers get the events of decentralised channels directly. No domain passes on what came from another one.
        """
        if self.is_foreign(publisher):
            return self.all if is_direct else self.foreign
        return self.users if is_direct else ()

    def refusal(self, user: str, *, is_server: bool) -> protocol.RequestRefused | None:
        """Return the reason of a refusal if ``user`` is reserved and not a server, or the reverse; None otherwise.

        A link of a foreign domain is opened as that of a server.
        """
        if self.reserves(user) is is_server:
            return None
        if is_server:
            return protocol.RequestRefused(0, f"{user} is no server of this domain: servers are NAME{self._ending}")
        what = "another domain" if self.is_foreign(user) else "a server of this domain"
        return protocol.RequestRefused(0, f"{user} is reserved for {what}; use another user")

    @property
    def sessions(self) -> Sequence[SessionRow]:
        """Return the sessions of all servers."""
        return [session for user in sorted(self.users) for session in self._state.sessions_of(user)]

    def rows(self, status: Callable[[str], str], unsettled: Iterable[str]) -> dict[str, Mapping[str, Any]]:
        """Return the listed session of each server, by the name of the server; ``status`` is that of a user.

        ``unsettled`` are the servers whose interest here is not complete.
        """
        rows: dict[str, dict[str, Any]] = {
            session.user.removeprefix("sip:").removesuffix(self._ending): {
                "is_linked_here": status(session.user) == "CONNECTED",
                "subscriptions_here": len(session.subscriptions),
                "waiting_here": session.waiting,
                "waiting_bytes_here": session.queued_bytes,
            }
            for session in self.sessions
        }
        for name in unsettled:
            rows.setdefault(name, {})["is_settled_here"] = False
        return {**rows}

    @property
    def queued_bytes(self) -> int:
        """Return the bytes of the events that wait for all servers."""
        return sum(session.queued_bytes for session in self.sessions)


def server_of(user: str, domain: str) -> str | None:
    """Return the name of the server of ``domain`` that is ``user``, None if it is no server."""
    ending = f"@servers.{domain}"
    return user.removeprefix("sip:").removesuffix(ending) if domain and user.endswith(ending) else None


def server_user(server: str, domain: str) -> str:
    """Return the user of ``server`` at the other servers of ``domain``."""
    return f"sip:{server}@servers.{domain}"


def domain_of(user: str, domain: str) -> str | None:
    """Return the name of the foreign domain that is ``user`` at the servers of ``domain``, None if it is none."""
    ending = f"@domains.{domain}"
    return user.removeprefix("sip:").removesuffix(ending) if domain and user.endswith(ending) else None


def domain_user(name: str, domain: str) -> str:
    """Return the user of the foreign domain ``name`` at the servers of ``domain``."""
    return f"sip:{name}@domains.{domain}"
