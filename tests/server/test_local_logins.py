"""Logins without a password at a server on this computer: who gets one, and as whom (SPEC U-11)."""

from __future__ import annotations

import asyncio
import errno
import logging
import stat
from collections.abc import Mapping
from pathlib import Path

import pytest

from wanderbus import Server, connect
from wanderbus.errors import AuthenticationError, ConfigurationError, NoResponse, Refused
from wanderbus.runtime.services import login as login_module
from wanderbus.runtime.services.login import Login, LoginDenied, LoginWanted, request_login
from wanderbus.runtime.services.places import places_of
from wanderbus.runtime.services.service import Service
from wanderbus.server.local_logins import OPERATOR, LocalAddress, LocalLogins, caller_refusal, operator_name
from wanderbus.sip.authentication.digest_values import HASHED, Secret, ha1

REACHED = LocalAddress(server=("127.0.0.1", 5062), broker="sip:broker@localhost", encryption=True)
USERS: Mapping[str, Secret] = {"alice": "secret", OPERATOR: "random"}
WAIT_S = 5.0


def logins(
    users: Mapping[str, Secret] = USERS, operator: str | None = OPERATOR, roles: Mapping[str, str] | None = None
) -> LocalLogins:
    return LocalLogins("localhost", users, operator, roles or {}, REACHED)


def login(answer: Login | LoginDenied | None) -> Login:
    assert isinstance(answer, Login), answer
    return answer


def denied(answer: Login | LoginDenied | None) -> LoginDenied:
    assert isinstance(answer, LoginDenied), answer
    return answer


@pytest.mark.parametrize(("caller", "owner", "is_admitted"), [(0, 0, True), (0, 7, True), (7, 7, True), (7, 0, False)])
def test_u11_the_user_of_the_server_and_root_get_a_login_and_nobody_else(
    caller: int, owner: int, is_admitted: bool
) -> None:
    reason = caller_refusal(caller, owner)
    assert (reason == "") is is_admitted
    assert is_admitted or ("--user" in reason and "\n" not in reason)


def test_the_operator_needs_no_name() -> None:
    found = login(logins().answer(LoginWanted(None)))
    assert (found.user, found.server, found.broker) == (
        f"sip:{OPERATOR}@localhost",
        "127.0.0.1:5062",
        "sip:broker@localhost",
    )


@pytest.mark.parametrize("text", ["alice", "alice@localhost", "sip:alice@LOCALHOST", "sip:alice@localhost:5060"])
def test_a_user_gets_digests_and_no_password(text: str) -> None:
    found = login(logins().answer(LoginWanted(text)))
    assert found.user == "sip:alice@localhost"
    assert found.digests == {each: ha1("alice", "localhost", "secret", each) for each in HASHED}
    assert "secret" not in repr(found)
    assert not any(digest in repr(found) for digest in found.digests.values())


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("carol", "unknown"),
        ("sip:carol@localhost", "unknown"),
        (OPERATOR, "unknown"),
        ("alice@example.org", "foreign"),
        ("sip:localhost", "foreign"),
        ("al ice", "foreign"),
        ("", "foreign"),
    ],
)
def test_other_users_are_denied(text: str, kind: str) -> None:
    found = denied(logins().answer(LoginWanted(text)))
    assert found.kind == kind, found
    assert "\n" not in found.reason


def test_an_operators_name_that_a_user_has_is_not_used() -> None:
    assert operator_name({}) == OPERATOR
    assert operator_name({OPERATOR: "x", f"{OPERATOR}-": "x"}) == f"{OPERATOR}--"


def test_a_user_with_the_highest_role_is_the_operator_where_the_registrar_is_elsewhere() -> None:
    users: Mapping[str, Secret] = {"alice": "a", "olga": "o", "adam": "x"}
    roles = {"sip:olga@localhost": "operator", "sip:adam@localhost": "administrator", "sip:gone@localhost": "operator"}
    assert login(logins(users, None, roles).answer(LoginWanted(None))).user == "sip:adam@localhost"
    found = denied(logins(users, None, {"sip:gone@localhost": "operator"}).answer(LoginWanted(None)))
    assert found.kind == "operator"
    assert "--admin" in found.reason


def test_digests_without_the_one_that_the_broker_needs_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="sha-256"):
        connect("sip:alice@localhost", password={"md5": "0" * 32})


def server(tmp_path: Path, **more: object) -> Server:
    given = {"domain": "localhost", "data_dir": tmp_path / "data", "users": {"alice": "secret"}, "port": 0} | more
    return Server(**given)  # type: ignore[arg-type]


@pytest.mark.integration
def test_a_login_serves_and_ends_with_its_server(tmp_path: Path) -> None:
    socket = places_of(tmp_path / "data", login_module.NAME).socket

    async def scenario() -> list[str]:
        assert request_login(tmp_path / "data", LoginWanted(None), WAIT_S) is None
        assert not (tmp_path / "data").exists()
        async with server(tmp_path):
            assert stat.S_IMODE(socket.stat().st_mode) == 0o600
            ours = login(await asyncio.to_thread(request_login, tmp_path / "data", LoginWanted(None), WAIT_S))
            alices = login(await asyncio.to_thread(request_login, tmp_path / "data", LoginWanted("alice"), WAIT_S))
            async with connect(alices.user, password=alices.digests, server=alices.server) as alice:
                await alice.publish("Trade", {"n": 1})
                with pytest.raises(Refused, match="role"):
                    _ = [row async for row in alice.operator.filtering()]
            async with connect(ours.user, password=ours.digests, server=ours.server, session="operations") as agent:
                rows = [row.user async for row in agent.operator.sessions("sip:alice@localhost")]
                return [str(len([row async for row in agent.operator.filtering()])), *rows]

    assert asyncio.run(scenario())[0] != "0"
    assert not socket.exists()
    assert request_login(tmp_path / "data", LoginWanted(None), WAIT_S) is None


@pytest.mark.integration
def test_the_operators_digests_outlast_a_restart_and_a_killed_servers_socket_is_replaced(tmp_path: Path) -> None:
    socket = places_of(tmp_path / "data", login_module.NAME).socket

    async def once() -> Login:
        async with server(tmp_path):
            return login(await asyncio.to_thread(request_login, tmp_path / "data", LoginWanted(None), WAIT_S))

    first = asyncio.run(once())
    socket.write_bytes(b"")  # anything that a killed server left
    assert asyncio.run(once()).digests == first.digests
    assert not socket.exists()


@pytest.mark.integration
def test_a_server_serves_also_if_its_socket_cannot(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    services = tmp_path / "data" / "services"
    services.parent.mkdir(0o700)
    services.write_bytes(b"")  # in place of the directory

    async def scenario() -> None:
        async with server(tmp_path) as running:
            place = f"127.0.0.1:{running.address[1]}"
            await (await connect("sip:alice@localhost", password="secret", server=place)).close()

    with caplog.at_level(logging.WARNING, "wanderbus.server"):
        asyncio.run(scenario())
    assert "--user and --password" in caplog.text


def test_a_directory_of_another_user_is_refused_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def check(directory: Path) -> None:
        raise PermissionError(errno.EPERM, "it belongs to another user of this computer", str(directory))

    monkeypatch.setattr(login_module, "check_own_directory", check)
    with pytest.raises(AuthenticationError, match="belongs to another user") as caught:
        request_login(tmp_path, LoginWanted(None), WAIT_S)
    assert "\n" not in str(caught.value)


def test_a_server_that_does_not_answer_is_no_missing_one(tmp_path: Path) -> None:
    with Service(tmp_path, login_module.NAME, {}), pytest.raises(NoResponse, match="does not answer"):
        request_login(tmp_path, LoginWanted(None), WAIT_S)
