"""The binding at the registrar is refreshed, moves with the device and is removed on request (RFC 3261 10.2,
SPEC D).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

import pytest

from tests.mobility.world import SERVER, Node, SeededRandom, World, media_at
from wanderbus.machine import Input, Output
from wanderbus.mobility.messages import (
    AddressChanged,
    CreateSession,
    Registered,
    RegistrationFailed,
    SessionFailed,
    StopUserAgent,
    Unregistered,
)
from wanderbus.sip.message.message import make_response
from wanderbus.sip.transaction.transaction_layer import RequestReceived, Respond, TransactionLayer


class BrokenServer:
    """Answers 500 to everything."""

    def __init__(self) -> None:
        self._layer = TransactionLayer(SeededRandom("broken"))

    def step(self, inputs: Iterable[Input], now: float) -> Sequence[Output]:
        outputs = []
        for output in self._layer.step(inputs, now):
            if isinstance(output, RequestReceived):
                response = make_response(output.request, 500, to_tag="broken")
                outputs += self._layer.step([Respond(output.transaction, response)], now)
            else:
                outputs.append(output)
        return outputs


def test_d02_start_registers_the_contact(world: World) -> None:
    alice = world.phone("alice", "10.0.2.1")
    world.run(1.0)
    assert world.registered_at("alice") == ["10.0.2.1"]
    assert alice.reports == [Registered(60.0)]


def test_d03_refresh_at_a_third_of_the_registration(world: World) -> None:
    alice = world.phone("alice", "10.0.2.1", register_expires_s=30)
    world.run(45.0)
    gaps = [after - before for before, after in itertools.pairwise(alice.reported_at)]
    assert len(gaps) == 4
    assert gaps == pytest.approx([10.0] * 4, abs=0.1)


def test_x10_the_third_is_of_the_granted_expiry_not_of_the_requested(world: World) -> None:
    world.restart_server(expires_max_s=15)
    alice = world.phone("alice", "10.0.2.1", register_expires_s=3600)
    world.run(12.0)
    assert alice.all_of(Registered) == [Registered(15.0)] * 3


def test_refresh_sends_credentials_ahead(world: World) -> None:
    """RFC 3261 22.2: one challenge at the start, none at the refreshes."""
    world.phone("alice", "10.0.2.1", register_expires_s=30)
    world.run(45.0)
    assert len(world.sent("401 REGISTER")) == 1
    assert len(world.sent("200 REGISTER")) == 5


@pytest.mark.parametrize(("user", "password", "status"), [("alice", "guess", 403), ("mallory", "any", 403)])
def test_c20_refused_credentials_are_reported_once_and_not_retried(
    world: World, user: str, password: str, status: int
) -> None:
    phone = world.phone(user, "10.0.2.1", password=password)
    world.run(120.0)
    assert [report.status for report in phone.all_of(RegistrationFailed)] == [status]
    assert len(phone.reports) == 1


def test_without_a_password_a_challenge_is_a_failure(world: World) -> None:
    phone = world.phone("nobody", "10.0.2.1", password=None)
    world.run(60.0)
    assert [report.status for report in phone.all_of(RegistrationFailed)] == [401]


def test_rfc3261_10_2_8_interval_too_brief_is_asked_again_with_the_least_one(world: World) -> None:
    alice = world.phone("alice", "10.0.2.1", register_expires_s=2)
    world.run(1.0)
    assert alice.reports == [Registered(5.0)]


def test_d12_registration_is_retried_until_the_server_is_back(world: World) -> None:
    world.server.crash()
    alice = world.phone("alice", "10.0.2.1")
    world.run(100.0)
    assert {report.status for report in alice.all_of(RegistrationFailed)} == {None}
    world.restart_server()
    world.run_until(lambda: bool(alice.all_of(Registered)), 5.0)


def test_pauses_between_failures_double_up_to_eight_seconds(world: World) -> None:
    """A registrar that is broken answers 500 at once; the pauses then show alone."""
    world.server.crash()
    world.add(Node(world, BrokenServer(), SERVER))
    alice = world.phone("alice", "10.0.2.1")
    world.run(60.0)
    failures = [at for at, report in zip(alice.reported_at, alice.reports, strict=True) if _is_failure(report)]
    gaps = [after - before for before, after in itertools.pairwise(failures)]
    assert gaps[:6] == pytest.approx([0.5, 1.0, 2.0, 4.0, 8.0, 8.0], abs=0.1)


def test_d05_address_change_registers_at_once_and_replaces_the_old_contact(world: World) -> None:
    alice = world.phone("alice", "10.0.2.1")
    world.run(1.0)
    alice.move("10.0.3.1")
    world.run(0.1)
    assert world.registered_at("alice") == ["10.0.3.1"]


def test_address_change_overtakes_a_register_under_way(world: World) -> None:
    world.loses = lambda sent: sent.destination == SERVER and sent.source[0] == "10.0.2.1"
    alice = world.phone("alice", "10.0.2.1")
    world.run(5.0)
    alice.move("10.0.3.1")
    world.run(1.0)
    assert world.registered_at("alice") == ["10.0.3.1"]
    assert alice.reports == [Registered(60.0)]
    world.run(40.0)
    assert alice.all_of(RegistrationFailed) == []


def test_refused_credentials_are_tried_again_after_a_move(world: World) -> None:
    phone = world.phone("alice", "10.0.2.1", password="guess")
    world.run(1.0)
    phone.give(AddressChanged(phone.address))
    world.run(1.0)
    assert len(phone.all_of(RegistrationFailed)) == 2


def test_d04_stop_removes_the_binding(world: World) -> None:
    alice = world.phone("alice", "10.0.2.1")
    world.run(1.0)
    alice.give(StopUserAgent())
    world.run(1.0)
    assert world.registered_at("alice") == []
    assert alice.reports[-1] == Unregistered()
    world.run(100.0)
    assert alice.reports[-1] == Unregistered()


def test_stop_ends_even_if_nobody_answers(world: World) -> None:
    alice = world.phone("alice", "10.0.2.1")
    world.run(1.0)
    world.server.crash()
    alice.give(StopUserAgent())
    world.run(60.0)
    assert alice.reports[-1] == Unregistered()


def test_wrong_password_refuses_the_invite_too(world: World) -> None:
    """DESIGN 6.4: the called side checks digest itself."""
    world.phone("broker", "10.0.1.1", authenticates=True)
    mallory = world.phone("alice", "10.0.2.1", password="guess")
    world.run(1.0)
    mallory.give(CreateSession("call", "broker@example.org", media_at(mallory.address)))
    world.run(5.0)
    assert mallory.all_of(SessionFailed) == [SessionFailed("call", 403, "Wrong User Or Password")]
    assert mallory.agent.sessions == {}


def _is_failure(report: Output) -> bool:
    return isinstance(report, RegistrationFailed)


class Registrar(BrokenServer):
    """Answers each REGISTER with the next of ``answers``, and repeats the last one."""

    def __init__(self, *answers: tuple[int, tuple[tuple[str, str], ...]]) -> None:
        super().__init__()
        self._answers = list(answers)
        self.asked: list[int | None] = []

    def step(self, inputs: Iterable[Input], now: float) -> Sequence[Output]:
        outputs = []
        for output in self._layer.step(inputs, now):
            if isinstance(output, RequestReceived):
                self.asked.append(output.request.expires)
                status, headers = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
                response = make_response(output.request, status, to_tag="hostile", headers=headers)
                outputs += self._layer.step([Respond(output.transaction, response)], now)
            else:
                outputs.append(output)
        return outputs


def hostile(world: World, *answers: tuple[int, tuple[tuple[str, str], ...]]) -> Registrar:
    registrar = Registrar(*answers)
    world.nodes[SERVER].crash()
    world.add(Node(world, registrar, SERVER))
    return registrar


@pytest.mark.parametrize("expires", ["0", "1", "2"])
def test_a_registrar_that_grants_next_to_nothing_is_asked_at_a_pace(world: World, expires: str) -> None:
    registrar = hostile(world, (200, (("Expires", expires),)))
    world.phone("alice", "10.0.2.1", register_expires_s=600)
    world.run(60.0)
    assert 10 <= len(registrar.asked) <= 13


def test_a_requested_short_lifetime_is_refreshed_in_time(world: World) -> None:
    registrar = hostile(world, (200, (("Expires", "3"),)))
    world.phone("alice", "10.0.2.1", register_expires_s=3)
    world.run(30.0)
    assert 28 <= len(registrar.asked) <= 31


def test_a_registrar_that_grants_more_than_was_asked_for_is_asked_again_as_planned(world: World) -> None:
    registrar = hostile(world, (200, (("Expires", "4294967295"),)))
    alice = world.phone("alice", "10.0.2.1", register_expires_s=60)
    world.run(65.0)
    assert len(registrar.asked) == 4
    assert alice.all_of(Registered)[0] == Registered(60.0)


def test_a_least_lifetime_that_grows_with_every_answer_ends(world: World) -> None:
    demands = [(423, (("Min-Expires", str(600 + n)),)) for n in range(1, 10_000)]
    registrar = hostile(world, *demands)
    alice = world.phone("alice", "10.0.2.1", register_expires_s=600)
    world.run(60.0)
    assert len(registrar.asked) < 20
    assert alice.all_of(RegistrationFailed)


def test_a_least_lifetime_of_years_is_not_asked_for(world: World) -> None:
    registrar = hostile(world, (423, (("Min-Expires", "4294967295"),)))
    world.phone("alice", "10.0.2.1", register_expires_s=600)
    world.run(30.0)
    assert set(registrar.asked) == {600}
    assert len(registrar.asked) < 15


def test_a_user_who_was_registered_and_is_refused_asks_again_after_minutes(world: World) -> None:
    """A registrar without its users for a moment does not lose its agents for good."""
    registrar = hostile(world, (200, ()), (403, ()), (200, ()))
    alice = world.phone("alice", "10.0.2.1", register_expires_s=60)
    world.run(145.0)
    assert [type(report) for report in alice.reports] == [Registered, RegistrationFailed, Registered]
    assert len(registrar.asked) == 3
