"""Password guessing at registrar and proxy: its yield, and the information in the responses (SPEC C-20; RFC 7616 5)."""

from __future__ import annotations

import itertools
from collections import Counter

import msgspec
import pytest

from tests.sip.phone_world import PASSWORDS, CountingRandom, Phone, World
from wanderbus.machine import Address
from wanderbus.parameters.signalling import LoginLimits
from wanderbus.sip.authentication.digest import DigestClient, ha1
from wanderbus.sip.authentication.digest_values import Credentials, response_digest
from wanderbus.sip.message.message import Request, Response

HOUR_S = 3_600
ALICE = ("10.0.0.2", 7000)
MALLORY = ("10.0.0.66", 7000)
NONCE_S = 250


class Guesser:
    """Requests a nonce now and then, and answers it with one password after the other."""

    def __init__(self, world: World, address: Address = MALLORY) -> None:
        self.world = world
        self.phone = Phone(world, "mallory", address, "?")
        self.answers: Counter[int] = Counter()
        self._challenge: Response | None = None
        self._until = 0.0

    def tries(self, user: str, password: str = "guess") -> Response:
        """Try to register ``user``; return the answer."""
        self.phone.user = user
        to = f"<sip:{user}@example.org>"
        if self._challenge is None or self.world.now >= self._until:
            self.phone.digest = DigestClient(user, password, CountingRandom())
            self._challenge, self._until = self.phone.register_once(60, to), self.world.now + NONCE_S
        self.phone.digest = DigestClient(user, password, CountingRandom())
        self.phone.cseq = self._challenge.cseq.number
        assert self.phone.digest.learn(self._challenge)
        answer = self.phone.register_once(60, to)
        self.answers[answer.status] += 1
        return answer


@pytest.fixture
def world() -> World:
    return World()


def registered(world: World, address: Address = ALICE) -> Phone:
    phone = Phone(world, "alice", address)
    assert phone.register().status == 200
    return phone


def test_one_address_reads_69_answers_about_one_user_in_an_hour(world: World) -> None:
    mallory = Guesser(world)
    for _ in range(2 * HOUR_S):
        mallory.tries("alice")
        world.advance(0.5)
    assert mallory.answers[403] == 69
    assert mallory.answers[403] + mallory.answers[500] == 2 * HOUR_S


def test_any_number_of_addresses_read_a_hundred_and_fifty(world: World) -> None:
    crowd = [Guesser(world, (f"10.0.{number}.66", 7000)) for number in range(100)]
    for guesser in itertools.islice(itertools.cycle(crowd), HOUR_S):
        guesser.tries("alice")
        world.advance(1.0)
    answers = sum((guesser.answers for guesser in crowd), Counter[int]())
    assert answers[403] == pytest.approx(150, abs=2)
    assert answers[403] + answers[500] == HOUR_S


def test_while_they_guess_the_right_password_is_refused_like_a_wrong_one(world: World) -> None:
    mallory = Guesser(world)
    for _ in range(5):
        assert mallory.tries("alice").status == 403
    wrong, right = mallory.tries("alice"), mallory.tries("alice", PASSWORDS["alice"])
    assert (right.status, right.reason) == (500, "Too Many Failed Logins")
    assert shown(wrong) == shown(right)
    assert 1 <= int(right.header("Retry-After") or "") <= 60
    world.advance(int(right.header("Retry-After") or ""))
    assert mallory.tries("alice", PASSWORDS["alice"]).status == 200


def shown(response: Response) -> list[tuple[str, str]]:
    """Return a response without the fields that identify its request, and without nonces and tags, which are random."""
    own = {"via", "cseq", "call-id"}
    headers = [(name, value) for name, value in response.headers if name.lower() not in own]
    cleaned = [
        (name, ";".join(part for part in value.split(";") if not part.startswith("tag=")).partition("nonce=")[0])
        for name, value in headers
    ]
    return [("status", f"{response.status} {response.reason}"), *cleaned]


def test_no_response_reveals_users(world: World) -> None:
    """Without credentials, with wrong ones, with those of another nonce, and after too many."""
    answers: dict[str, list[object]] = {}
    for number, user in enumerate(("alice", "nobo1")):
        mallory = Guesser(world, (f"10.0.1.{number}", 7000))
        mallory.phone.user = user
        mallory.phone.digest = DigestClient(user, "guess", CountingRandom())
        said = [shown(mallory.phone.register_once(60, f"<sip:{user}@example.org>"))]
        for _ in range(8):
            said.append(shown(mallory.tries(user)))
            world.advance(0.1)
        world.advance(2 * NONCE_S)
        mallory._until = world.now + 1
        said.append(shown(mallory.tries(user)))
        answers[user] = [str(each).replace(user, "USER") for each in said]
    assert answers["alice"] == answers["nobo1"]
    assert {text.partition("'status', '")[2][:3] for text in map(str, answers["alice"])} == {"401", "403", "500"}


@pytest.mark.parametrize("password", ["guess", PASSWORDS["alice"]])
@pytest.mark.parametrize("age_s", [0, 400])
def test_an_invalid_nonce_reveals_nothing_about_the_password(world: World, password: str, age_s: int) -> None:
    """Else it could be tried as often as one likes: stale only with the right digest would be the answer."""
    mallory = Guesser(world)
    mallory.tries("alice")
    assert mallory._challenge is not None
    if not age_s:
        value = mallory._challenge.headers_all("WWW-Authenticate")[0]
        nonce = value.partition('nonce="')[2].partition('"')[0]
        headers = tuple((name, text.replace(nonce, "A" * 24)) for name, text in mallory._challenge.headers)
        mallory._challenge = msgspec.structs.replace(mallory._challenge, headers=headers)
    world.advance(age_s)
    mallory._until = world.now + 1
    answer = mallory.tries("alice", password)
    assert answer.status == 401
    assert "stale=true" in (answer.header("WWW-Authenticate") or "")


def test_stale_nonces_are_no_failures(world: World) -> None:
    mallory = Guesser(world)
    mallory.tries("alice", PASSWORDS["alice"])
    world.advance(400)
    mallory._until = world.now + 1_000
    for _ in range(50):
        assert mallory.tries("alice", PASSWORDS["alice"]).status == 401
    mallory._until = 0
    assert mallory.tries("alice", PASSWORDS["alice"]).status == 200
    assert world.refused_logins == []


def crowd_guesses(world: World, seconds: float) -> None:
    for number in range(int(seconds * 2)):
        Guesser(world, (f"10.{1 + number % 200}.0.66", 7000)).tries("alice")
        world.advance(0.5)


def test_a_user_is_not_delayed_at_an_address_of_their_own_while_others_guess(world: World) -> None:
    registered(world)
    for _ in range(10):
        crowd_guesses(world, 60)
        assert Phone(world, "alice", ALICE).register().status == 200


def test_a_device_that_moves_is_not_delayed_while_others_guess(world: World) -> None:
    """It goes on with its nonce, and when that is too old with the next."""
    phone = registered(world)
    for number in range(15):
        crowd_guesses(world, 50)
        phone.address = (f"10.9.9.{number}", 7000)
        asked = phone.cseq
        assert phone.register().status == 200
        assert phone.cseq - asked == 2  # a nonce is valid only for the address that requested it
    assert Phone(world, "alice", ("10.8.8.8", 1)).register().status == 500


def test_a_device_is_not_delayed_by_one_who_guesses_from_its_own_address(world: World) -> None:
    """It may share a NAT or forge the source; requests of the device in between do not reset the count."""
    phone, mallory = registered(world), Guesser(world, (ALICE[0], 9999))
    for _ in range(18):
        for _ in range(200):
            mallory.tries("alice")
            world.advance(1.0)
        assert phone.register().status == 200
    assert mallory.answers[403] == 69


class PhoneBehindEdge(Phone):
    """A phone at ``host`` whose requests are forwarded by a proxy at its address."""

    def __init__(self, world: World, user: str, host: str, password: str | None = None) -> None:
        super().__init__(world, user, ("10.0.0.200", 5060), password)
        self._host = host

    def request(self, method: str, uri: str, *extra: tuple[str, str], to: str | None = None) -> Request:
        request = super().request(method, uri, *extra, to=to)
        sender = ("Via", f"SIP/2.0/UDP {self._host}:7000;branch=z9hG4bKof{self._host}")
        return msgspec.structs.replace(request, headers=(request.headers[0], sender, *request.headers[1:]))


@pytest.mark.parametrize(("edge_proxies", "status"), [([], 500), (["10.0.0.200"], 200)])
def test_users_behind_a_known_edge_proxy_are_not_delayed_by_others_there(edge_proxies: list[str], status: int) -> None:
    world = World(edge_proxies=edge_proxies)
    for number in range(100):
        PhoneBehindEdge(world, f"user-{number}", "192.0.2.66", "guess").register()
    assert PhoneBehindEdge(world, "alice", "192.0.2.1").register().status == status
    assert PhoneBehindEdge(world, "bob", "192.0.2.66").register().status == 500


@pytest.mark.parametrize(("source", "answers"), [(ALICE, [403, 500, 500, 500, 500]), (MALLORY, [401] * 5)])
def test_a_recorded_nonce_of_a_device_is_good_for_one_guess_where_the_device_is(
    world: World, source: Address, answers: list[int]
) -> None:
    phone, mallory = registered(world), Guesser(world, source)
    for _ in range(6):
        mallory.tries("alice")
    recorded = phone.digest.authorize(phone.request("REGISTER", "sip:example.org", to="<sip:alice@example.org>"))
    proof = Credentials.parse(recorded.headers_all("Authorization")[0])
    statuses = []
    for number in range(5):
        guess = msgspec.structs.replace(proof, nonce_count=100 + number)
        secret = ha1("alice", "example.org", f"guess {number}")
        guess = msgspec.structs.replace(guess, response=response_digest(secret, guess, "REGISTER"))
        proofs = ("Authorization", str(guess))
        forged = mallory.phone.request("REGISTER", "sip:example.org", proofs, to="<sip:alice@example.org>")
        mallory.phone.send(forged)
        statuses += mallory.phone.statuses()
    assert statuses == answers


def test_a_guesser_with_an_account_clears_nothing_of_others(world: World) -> None:
    mallory = Guesser(world)
    for _ in range(HOUR_S):
        mallory.tries("alice")
        mallory.tries("bob", PASSWORDS["bob"])
        world.advance(1.0)
    assert mallory.answers[403] == 69


def test_refused_logins_are_counted_with_user_and_source_and_without_secrets(world: World) -> None:
    mallory = Guesser(world)
    for _ in range(10):
        mallory.tries("alice", "hunter2")
    assert [login.count for login in world.refused_logins] == list(range(1, 11))
    assert {(login.user, login.source) for login in world.refused_logins} == {("sip:alice@example.org", MALLORY[0])}
    assert [login.reason for login in world.refused_logins][4:6] == ["Wrong User Or Password", "Too Many Failed Logins"]
    assert "hunter2" not in repr(world.refused_logins)


def test_limits_can_be_set() -> None:
    world = World(logins=LoginLimits(free_failures=1, pause_s=10.0, pause_s_max=10.0))
    mallory = Guesser(world)
    for _ in range(100):
        mallory.tries("alice")
        world.advance(1.0)
    assert mallory.answers[403] == 10
