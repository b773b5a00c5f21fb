"""``wanderbus session``: sessions of a domain are listed, and move between its servers (SPEC L-06)."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from tests.cli.shell import one_line
from wanderbus.broker.servers.server_users import server_user
from wanderbus.cli.application import run
from wanderbus.cli.domain import session
from wanderbus.cli.domain.servers_asked import ServerAnswer
from wanderbus.client import answer_wait
from wanderbus.errors import Refused
from wanderbus.operator_rows import DeviceInfo, MovedSession, ServerInfo, SessionInfo
from wanderbus.runtime.files.domain_file import create_domain

Output = pytest.CaptureFixture[str]

BOB, CAROL = "sip:bob@example.org", "sip:carol@example.org"
PHONE = DeviceInfo("phone", "CONNECTED", "192.0.2.1:5000", None, 1)
TABLET = DeviceInfo("tablet", "DISCONNECTED", None, 60.0, 0)


def at(user: str, name: str = "default", *devices: DeviceInfo) -> SessionInfo:
    return SessionInfo(user, name, "CONNECTED", 2, 7, 0, devices)


class Domain:
    """Three servers with these sessions; None does not answer. It notes what is asked to move, and does so."""

    def __init__(self, **servers: list[SessionInfo] | None) -> None:
        self.servers = servers
        self.moves: list[tuple[str, str, str, str]] = []
        self.refusal = ""
        self.loses_answer = False
        self.pause_s = 0.0
        self.is_interrupted = False

    async def ask_all(self, connection: object, file: object, question: Any) -> dict[str, ServerAnswer[Any]]:
        await asyncio.sleep(self.pause_s)
        return {
            name: ServerAnswer(name, f"{name}:5060", error="no answer")
            if rows is None
            else ServerAnswer(name, f"{name}:5060", found=await question(each), connection=cast(Any, each))
            for name, rows in self.servers.items()
            for each in [_Visited(self, name)]
        }

    async def move(self, source: str, user: str, name: str, to: str) -> MovedSession:
        self.moves.append((source, user, name, to))
        await asyncio.sleep(self.pause_s)
        if self.is_interrupted:
            os.kill(os.getpid(), signal.SIGINT)
            await asyncio.Event().wait()
        if self.refusal:
            raise Refused(self.refusal)
        rows = {each: rows for each, rows in self.servers.items() if rows is not None}
        (row,) = (each for each in rows[source] if (each.user, each.session) == (user, name))
        rows[source].remove(row)
        rows[to].append(row)
        if self.loses_answer:
            raise Refused(f"{user} has no session {name!r} at this server")
        return MovedSession(user, name, to)


class _Visited:
    """A server of the domain: options for it, its visitor, and its operator."""

    def __init__(self, domain: Domain, server: str) -> None:
        self._domain = domain
        self._server = server
        self.operator = self

    @contextlib.asynccontextmanager
    async def visitor(self) -> AsyncIterator[_Visited]:
        yield self

    async def servers(self) -> AsyncIterator[ServerInfo]:
        yield ServerInfo("other")

    async def sessions(self, user: str | None) -> AsyncIterator[SessionInfo]:
        for row in self._domain.servers[self._server] or ():
            if user in (None, row.user):
                yield row

    async def move(self, user: str, name: str, to: str) -> MovedSession:
        return await self._domain.move(self._server, user, name, to)


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Output) -> Any:
    """Return a function that runs a command at a domain, and returns its status and its outputs."""
    file = create_domain(tmp_path, "example.org", 3)

    def command(domain: Domain, *words: str) -> tuple[int, str, str]:
        monkeypatch.setattr(session, "ask_all", domain.ask_all)
        status = run(["session", *words, "--event-domain", str(file), "--user", "sip:alice@example.org"])
        return status, *capsys.readouterr()

    return command


def test_the_sessions_of_all_servers_are_listed_with_their_server(asked: Any) -> None:
    server = at(server_user("s2", "example.org"))
    coming = msgspec.structs.replace(at(BOB, "work"), arriving_from="s1")
    domain = Domain(s1=[at(BOB, "default", PHONE, TABLET), server, at(BOB, "")], s2=[coming], s3=[])
    status, out, err = asked(domain, "list")
    assert (status, err) == (0, "")
    assert [line.split() for line in out.splitlines()] == [
        ["user", "session", "server", "devices", "subs", "waiting"],
        ["bob@example.org", "default", "s1", "1/2", "2", "7"],
        ["bob@example.org", "work", "s2", "0/0", "2", "7"],
    ]
    status, out, err = asked(domain, "list", "--json")
    assert (status, err) == (0, "")
    first, second = map(json.loads, out.splitlines())
    counts = {"connected": 1, "devices": 2, "subscriptions": 2, "waiting": 7, "arriving_from": None}
    assert first == {"user": BOB, "session": "default", "server": "s1", **counts}
    assert (second["session"], second["server"], second["arriving_from"]) == ("work", "s2", "s1")


def test_a_server_that_does_not_answer_is_named_and_the_status_is_1(asked: Any) -> None:
    domain = Domain(s1=[at(BOB)], s2=None, s3=[])
    status, out, err = asked(domain, "list")
    assert (status, err) == (1, "")
    assert out.splitlines()[0] == "s2 at s2:5060 gives no answer: no answer"
    assert len(out.splitlines()) == 3
    status, out, _ = asked(domain, "list", "--json")
    assert status == 1
    assert json.loads(out.splitlines()[0]) == {"server": "s2", "address": "s2:5060", "error": "no answer"}


def test_l06_the_owner_is_asked_to_move_the_session(asked: Any) -> None:
    domain = Domain(s1=[at(CAROL)], s2=[at(BOB, "sub")], s3=[])
    assert asked(domain, "move", BOB, "--to", "s3") == (0, f"the session sub of {BOB} is at s3 now\n", "")
    assert domain.moves == [("s2", BOB, "sub", "s3")]
    assert asked(domain, "move", BOB, "--to", "s3") == (0, f"the session sub of {BOB} is at s3 already\n", "")
    assert len(domain.moves) == 1
    status, out, err = asked(domain, "move", BOB, "--to", "s1", "--session", "sub", "--json")
    assert (status, err) == (0, "")
    assert json.loads(out) == {"user": BOB, "session": "sub", "server": "s1", "moved": True}


@pytest.mark.parametrize(
    ("words", "status", "complaint"),
    [
        (
            (BOB, "--to", "s9"),
            2,
            "--to: the domain has no server 's9' (expected s1 or s2 or s3); another domain is DOMAIN, or DOMAIN/SERVER",
        ),
        ((BOB, "--to", "s3"), 2, f"give the session with --session NAME: {BOB} has default, work"),
        (
            (BOB, "--session", "play", "--to", "s3"),
            1,
            f"no server has a session 'play' of {BOB}; 'wanderbus session list' lists those that there are",
        ),
        (
            (BOB, "--session", "default", "--to", "s3"),
            2,
            f"the session 'default' of {BOB} is at s1 and s2, and cannot move where one is; remove one with 'wanderbus "
            f"discard {BOB} --session default --server s2:5060'",
        ),
    ],
)
def test_a_session_that_cannot_move_is_refused_in_one_line(
    asked: Any, words: tuple[str, ...], status: int, complaint: str
) -> None:
    domain = Domain(s1=[at(BOB), at(BOB, "work")], s2=[at(BOB)], s3=[])
    found, out, err = asked(domain, "move", *words)
    assert (found, out, one_line(err), domain.moves) == (status, "", complaint, [])


def test_an_unknown_session_may_be_at_a_server_that_does_not_answer(asked: Any) -> None:
    answers = "s2 at s2:5060 gives no answer: no answer"
    status, _, err = asked(Domain(s1=[], s2=None, s3=[]), "move", BOB, "--to", "s3")
    assert (status, one_line(err)) == (1, f"no server has a session of {BOB} that answers; {answers}")
    status, _, err = asked(Domain(s2=None, s3=None), "move", BOB, "--to", "s3")
    assert (status, one_line(err)) == (1, f"{answers}, nor do 1 more")


def test_a_refusal_is_one_line_unless_the_session_is_there_by_now(asked: Any) -> None:
    domain = Domain(s1=[at(BOB)], s2=[], s3=[])
    domain.refusal = "s2 cannot be reached; sessions move while all servers of the domain run"
    status, _, err = asked(domain, "move", BOB, "--to", "s3")
    assert (status, one_line(err)) == (1, domain.refusal)
    domain.refusal, domain.loses_answer = "", True
    assert asked(domain, "move", BOB, "--to", "s3")[0] == 0


def test_after_ctrl_c_the_move_goes_on_and_the_command_says_so(asked: Any) -> None:
    domain = Domain(s1=[at(BOB)], s2=[], s3=[])
    domain.is_interrupted = True
    status, out, err = asked(domain, "move", BOB, "--to", "s3")
    assert (status, out) == (130, "")
    assert one_line(err) == "s1 and s3 complete the move; 'wanderbus session list' shows where the session is"


def test_a_move_that_takes_long_says_so(asked: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answer_wait, "NOTICE_S", 0.01)
    domain = Domain(s1=[at(BOB)], s2=[], s3=[])
    domain.pause_s = 0.2
    _, out, err = asked(domain, "move", BOB, "--to", "s3", "--json")
    assert [json.loads(line)["status"] for line in err.splitlines()] == ["waiting", "answered"] * 2
    assert json.loads(out)["moved"] is True
