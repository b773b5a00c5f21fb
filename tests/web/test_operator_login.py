"""Login of operators over HTTP."""

from __future__ import annotations

import base64

import pytest

from wanderbus.parameters.signalling import LoginLimits
from wanderbus.sip.authentication.digest import Secret, ha1
from wanderbus.sip.authentication.login_guard import LoginGuard
from wanderbus.web.operator_login import OperatorLogin

DOMAIN = "example.org"
SECRETS: dict[str, Secret] = {
    "olga": "geheim",
    "alice": "secret",
    "hashed": {"sha-256": ha1("hashed", DOMAIN, "p:w")},
    "old": {"md5": ha1("old", DOMAIN, "pw", "MD5")},
}


def basic(name: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()


def login() -> OperatorLogin:
    return OperatorLogin(DOMAIN, SECRETS, lambda name: name != "alice", LoginGuard(LoginLimits(free_failures=2)))


@pytest.mark.parametrize(
    ("authorization", "status"),
    [
        (basic("olga", "geheim"), 200),
        (basic("hashed", "p:w"), 200),
        (basic("old", "pw"), 200),
        (basic("alice", "secret"), 403),
        (basic("alice", "wrong"), 401),
        (basic("nobody", "geheim"), 401),
        (basic("", ""), 401),
        ("", 401),
        ("Bearer geheim", 401),
        ("Basic !!!", 401),
        ("Basic /w==", 401),
    ],
)
def test_u08_credentials_decide(authorization: str, status: int) -> None:
    assert login().status(authorization, "192.0.2.1", 0.0) == status


def test_u08_wrong_passwords_have_to_wait_also_for_the_right_one() -> None:
    door, now = login(), 100.0
    assert [door.status(basic("olga", "wrong"), "192.0.2.1", now) for _ in range(3)] == [401, 401, 429]
    assert door.status(basic("olga", "geheim"), "192.0.2.1", now) == 429
    assert door.status(basic("olga", "geheim"), "192.0.2.2", now) == 200
    assert door.status(basic("olga", "geheim"), "192.0.2.1", now + 120.0) == 200
