"""Yield of guessing passwords at the called side, straight and by way of the proxy (SPEC C-20)."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.mobility.world import DOMAIN, SERVER, Node, Phone, SeededRandom, Talk, World, established, media_at, settled
from wanderbus.machine import Address
from wanderbus.refusals import LoginRefused
from wanderbus.sip.authentication.digest import DigestClient
from wanderbus.sip.message.message import Request, Response
from wanderbus.sip.message.sdp import SessionDescription
from wanderbus.sip.transaction.transaction_layer import ResponseReceived, SendRequest, TransactionLayer

HOUR_S = 3_600


class Guesser(Node):
    """Calls the broker in the name of others, with one password after the other."""

    def __init__(self, world: World, asked: Address, host: str = "10.0.9.9") -> None:
        layer = TransactionLayer(SeededRandom(host), local=(host, 5060))
        super().__init__(world, layer, layer.local)
        world.add(self)
        self.asked = asked
        self.answers: Counter[int] = Counter()
        self._calls = 0

    def tries(self, user: str, password: str = "guess") -> Response:
        """Request a challenge, and answer it; return the response."""
        digest = DigestClient(user, password, SeededRandom(f"{user} {self._calls}"))
        assert digest.learn(self._sends(self._invite(user)))
        answer = self._sends(digest.authorize(self._invite(user)))
        self.answers[answer.status] += 1
        return answer

    def _invite(self, user: str) -> Request:
        self._calls += 1
        offer = SessionDescription("-", 1, 1, self.address[0], (media_at(self.address),))
        headers = {
            "Max-Forwards": "70",
            "From": f"<sip:{user}@{DOMAIN}>;tag=guesser",
            "To": f"<sip:broker@{DOMAIN}>",
            "Call-ID": f"guess-{self._calls}",
            "CSeq": "1 INVITE",
            "Contact": f"<sip:{user}@{self.address[0]}:5060>",
            "Content-Type": "application/sdp",
        }
        uri = f"sip:broker@{DOMAIN}" if self.asked == SERVER else f"sip:broker@{self.asked[0]}:{self.asked[1]}"
        return Request("INVITE", uri, tuple(headers.items()), offer.encode())

    def _sends(self, request: Request) -> Response:
        self.reports.clear()
        self.give(SendRequest(request.call_id, request, self.asked))
        self.world.run(0.2)
        return self.all_of(ResponseReceived)[-1].response


@pytest.fixture
def talk() -> Talk:
    return established()


def guesser(talk: Talk, way: str, host: str = "10.0.9.9") -> Guesser:
    return Guesser(talk[0], SERVER if way == "proxy" else talk[2].address, host)


@pytest.mark.parametrize("way", ["straight", "proxy"])
def test_one_address_reads_69_answers_about_one_user_in_an_hour(talk: Talk, way: str) -> None:
    world, mallory = talk[0], guesser(talk, way)
    began = world.now
    while world.now < began + HOUR_S:
        mallory.tries("bob")
        world.run(4.0 if world.now > began + 100 else 0.0)
    assert 60 <= mallory.answers[403] <= 69
    assert set(mallory.answers) == {403, 500}
    assert mallory.answers[500] > 700


@pytest.mark.parametrize("way", ["straight", "proxy"])
def test_nobody_else_is_delayed_by_it(talk: Talk, way: str) -> None:
    """Neither another user of the same proxy, nor the attacked user at a connected device."""
    world, alice, broker = talk
    mallory = guesser(talk, way)
    for number in range(150):
        mallory.tries("alice")
        mallory.tries(f"user-{number}")
    assert mallory.answers[500] > 100
    bob = world.phone("bob", "10.0.3.1")
    world.run(1.0)
    bob.call("broker", "of-bob")
    assert world.run_until(lambda: settled(bob, broker, "of-bob")) < 1.0
    alice.move("10.0.2.9")
    assert world.run_until(lambda: settled(alice, broker)) < 1.0


def test_a_user_calls_from_another_address_while_a_crowd_guesses(talk: Talk) -> None:
    world, alice, broker = talk
    for number in range(60):
        guesser(talk, "proxy", f"10.0.8.{number}").tries("alice")
    assert guesser(talk, "proxy", "10.0.7.1").tries("alice", "secret of alice").status == 500
    alice.restart()
    world.run(1.0)
    alice.call("broker", "again")
    assert world.run_until(lambda: settled(alice, broker, "again")) < 1.0


def test_known_and_unknown_users_get_one_answer(talk: Talk) -> None:
    given = []
    for user, host in (("bob", "10.0.9.1"), ("nob", "10.0.9.2")):
        mallory = guesser(talk, "straight", host)
        given.append([(each.status, each.reason, names(each)) for each in (mallory.tries(user) for _ in range(7))])
    assert given[0] == given[1]
    assert [status for status, _, _ in given[0]] == [403] * 5 + [500] * 2


def names(response: Response) -> list[str]:
    return [name for name, _ in response.headers]


def test_a_refused_caller_is_reported_with_the_address_behind_the_proxy(talk: Talk) -> None:
    broker: Phone = talk[2]
    guesser(talk, "proxy").tries("bob", "hunter2")
    (login,) = broker.all_of(LoginRefused)
    assert login == LoginRefused("sip:bob@example.org", "Wrong User Or Password", "10.0.9.9 via 10.0.0.1", 1)
