"""Digest authentication, both sides (RFC 7616, RFC 8760, RFC 3261 22)."""

from __future__ import annotations

import hashlib

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from wanderbus.errors import SIPParseError
from wanderbus.sip.authentication import digest as digest_module
from wanderbus.sip.authentication.digest import (
    Authenticator,
    Challenge,
    Credentials,
    DigestClient,
    ha1,
    response_digest,
)
from wanderbus.sip.authentication.verdicts import Authenticated, AuthenticationRejected, Challenged, Verdict
from wanderbus.sip.message.message import Request, make_response

PASSWORDS = {"alice": "wonder land", "bob": "b"}
texts = st.text(max_size=12)
tokens = st.text("abcXYZ019-", min_size=1, max_size=10)
challenges = st.builds(
    Challenge,
    texts,
    texts,
    tokens,
    st.lists(tokens.map(str.lower), max_size=2).map(tuple),
    st.booleans(),
    st.none() | texts,
)
credentials_values = st.builds(
    Credentials,
    username=texts,
    realm=texts,
    nonce=texts,
    uri=texts,
    response=texts.map(str.lower).filter(lambda text: text == text.lower()),
    algorithm=texts,
    cnonce=st.none() | texts,
    nonce_count=st.none() | st.integers(0, 2**32 - 1),
    qop=st.none() | texts,
    opaque=st.none() | texts,
)


class CountingRandom:
    """Every token another one, none by chance."""

    def __init__(self) -> None:
        self._drawn = 0

    def token(self, n_bytes: int) -> bytes:
        self._drawn += 1
        return self._drawn.to_bytes(n_bytes, "big")

    def uniform(self, low: float, high: float) -> float:
        return low


def request(number: int = 1, method: str = "REGISTER") -> Request:
    return Request(
        method,
        "sip:localhost",
        (
            ("Via", "SIP/2.0/UDP h"),
            ("From", "<sip:alice@localhost>;tag=1"),
            ("To", "<sip:alice@localhost>"),
            ("Call-ID", "c"),
            ("CSeq", f"{number} {method}"),
        ),
    )


def server(**changes: object) -> Authenticator:
    return Authenticator("localhost", PASSWORDS.get, b"key", **changes)  # type: ignore[arg-type]


def client(username: str = "alice", password: str = "wonder land") -> DigestClient:
    return DigestClient(username, password, CountingRandom())


def learned(peer: DigestClient, asked: Request, verdict: Verdict, *, asking: str = "WWW-Authenticate") -> bool:
    """Give the verdict to the client as the response to ``asked``."""
    assert isinstance(verdict, Challenged)
    return peer.learn(make_response(asked, 401, headers=[(asking, value) for value in verdict.challenges]))


@given(challenges)
def test_challenges_come_back(value: Challenge) -> None:
    assert Challenge.parse(str(value)) == value


@given(credentials_values)
@example(Credentials("", "", "", "", "", algorithm="[", qop=":"))
def test_credentials_come_back(value: Credentials) -> None:
    assert Credentials.parse(str(value)) == value


@given(st.text('a="\\, \t<>', max_size=30).map("Digest ".__add__) | st.text(max_size=20))
def test_any_text_is_read_or_refused(text: str) -> None:
    for kind in (Challenge, Credentials):
        try:
            kind.parse(text)
        except SIPParseError:
            continue


@given(st.text('a="\\, \t', max_size=30).map("Digest ".__add__))
def test_any_credentials_get_a_verdict(text: str) -> None:
    assert isinstance(server().check(request().with_header("Authorization", text), 0.0), Challenged)


@pytest.mark.parametrize(
    ("algorithm", "response"),
    [
        ("MD5", "8ca523f5e9506fed4657c9700eebdbec"),
        ("SHA-256", "753927fa0e85d155564e2e272a28d1802ca10daf4496794697cf8db5856cb6c1"),
    ],
)
def test_the_example_of_rfc7616_3_9_1(algorithm: str, response: str) -> None:
    credentials = Credentials(
        username="Mufasa",
        realm="http-auth@example.org",
        nonce="7ypf/xlj9XXwfDPEoM4URrv/xwf94BcCAzFZH4GiTo0v",
        uri="/dir/index.html",
        response=response,
        algorithm=algorithm,
        cnonce="f2/wE4q74E6zIJEtWaHKaf5wv/H5QzzpXusqGemxURZJ",
        nonce_count=1,
        qop="auth",
    )
    secret = ha1("Mufasa", "http-auth@example.org", "Circle of Life", algorithm)
    assert response_digest(secret, credentials, "GET") == response


def test_the_example_of_rfc7616_3_9_2_as_corrected_by_erratum_4897() -> None:
    credentials = Credentials(
        username="Jäsøn Doe",
        realm="api@example.org",
        nonce="5TsQWLVdgBdmrQ0XsxbDODV+57QdFR34I9HAbC/RVvkK",
        uri="/doe.json",
        response="",
        algorithm="SHA-512-256",
        cnonce="NTg6RKcb9boFIAS3KrFK9BGeh+iDa/sm6jUMp2wds69v",
        nonce_count=1,
        qop="auth",
    )
    secret = ha1("Jäsøn Doe", "api@example.org", "Secret, or not?", "SHA-512-256")
    expected = "3798d4131c277846293534c3edc11bd8a5e4cdcbff78b05db9d95eeb1cec68a5"
    assert response_digest(secret, credentials, "GET") == expected


def test_without_qop_the_digest_is_that_of_rfc2069() -> None:
    credentials = Credentials("u", "r", "n", "sip:x", "")
    inner = hashlib.md5(b"REGISTER:sip:x").hexdigest()
    expected = hashlib.md5(f"{ha1('u', 'r', 'p', 'MD5')}:n:{inner}".encode()).hexdigest()
    assert response_digest(ha1("u", "r", "p", "MD5"), credentials, "REGISTER") == expected


def test_commas_and_quotes_in_values_rfc7616_3_3() -> None:
    challenge = Challenge.parse(
        'DIGEST  realm="a, \\"b\\"",nonce="n",qop="auth, auth-int" ,stale=TRUE, algorithm="MD5"'
    )
    assert challenge == Challenge('a, "b"', "n", "MD5", ("auth", "auth-int"), stale=True)


@pytest.mark.parametrize(
    "text",
    [
        "Basic QWxhZGRpbg==",
        "Digest",
        'Digest realm="a"',
        'Digest realm="a", nonce="b", realm="c"',
        'Digest realm="a", nonce="b',
        'Digest realm="a", nonce=b c',
        f'Digest realm="a", nonce="{"n" * 2_000}"',
    ],
)
def test_a_bad_challenge_is_refused(text: str) -> None:
    with pytest.raises(SIPParseError):
        Challenge.parse(text)


@pytest.mark.parametrize("count", ["1", "000000001", "0000000g", "-0000001", "\u0660" * 7 + "\u0661"])
def test_a_nonce_count_has_eight_hexadecimal_digits_rfc7616_3_4(count: str) -> None:
    with pytest.raises(SIPParseError):
        Credentials.parse(f'Digest username="a", realm="r", nonce="n", uri="u", response="x", nc="{count}"')


@pytest.mark.parametrize("algorithm", ["SHA-256", "MD5", "SHA-512-256"])
def test_a_user_with_the_password_is_accepted(algorithm: str) -> None:
    alice, home = client(), server(algorithms=(algorithm,))
    first = request()
    assert alice.authorize(first) == first
    verdict = home.check(first, 10.0)
    assert isinstance(verdict, Challenged)
    assert not verdict.stale
    assert learned(alice, first, verdict)
    assert home.check(alice.authorize(request(2)), 10.1) == Authenticated("alice")


def test_the_servers_favourite_is_answered_once_per_realm_rfc8760_2_4() -> None:
    alice, home = client(), server()
    verdict = home.check(request(), 0.0)
    assert isinstance(verdict, Challenged)
    assert [Challenge.parse(value).algorithm for value in verdict.challenges] == ["SHA-256", "MD5"]
    unknown = verdict.challenges[0].replace("SHA-256", "SHA3-999")
    alice.learn(
        make_response(request(), 401, headers=[("WWW-Authenticate", v) for v in (unknown, *verdict.challenges)])
    )
    (proof,) = alice.authorize(request(2)).headers_all("Authorization")
    assert Credentials.parse(proof).algorithm == "SHA-256"


def test_the_next_request_is_sent_ahead_with_a_rising_count() -> None:
    alice, home = client(), server()
    learned(alice, request(), home.check(request(), 0.0))
    for number in range(2, 6):
        authorized = alice.authorize(alice.authorize(request(number)) if number == 4 else request(number))
        assert len(authorized.headers_all("Authorization")) == 1
        assert home.check(authorized, 1.0) == Authenticated("alice")


def test_a_repeated_request_is_not_accepted_twice_rfc7616_5_12() -> None:
    alice, home = client(), server()
    learned(alice, request(), home.check(request(), 0.0))
    earlier, later = alice.authorize(request(2)), alice.authorize(request(3))
    assert home.check(later, 1.0) == Authenticated("alice")
    for again in (later, earlier):
        verdict = home.check(again, 1.0)
        assert isinstance(verdict, Challenged)
        assert verdict.stale


def test_a_repetition_is_known_even_when_the_nonce_is_spelt_differently() -> None:
    alice, home = client("bob", "b"), server()
    learned(alice, request(), home.check(request(), 0.0))
    authorized = alice.authorize(request(2))
    assert home.check(authorized, 1.0) == Authenticated("bob")
    proof = Credentials.parse(authorized.headers_all("Authorization")[0])
    spelt = msgspec.structs.replace(proof, nonce=proof.nonce[:-2] + chr(ord(proof.nonce[-2]) + 1) + proof.nonce[-1])
    signed = msgspec.structs.replace(spelt, response=response_digest(ha1("bob", "localhost", "b"), spelt, "REGISTER"))
    assert not isinstance(home.check(authorized.replacing("Authorization", str(signed)), 1.0), Authenticated)


def test_an_old_nonce_is_stale_and_the_client_retries_rfc7616_3_3() -> None:
    alice, home = client(), server(nonce_lifetime_s=60.0)
    learned(alice, request(), home.check(request(), 0.0))
    assert home.check(alice.authorize(request(2)), 60.0) == Authenticated("alice")
    late = alice.authorize(request(3))
    verdict = home.check(late, 60.1)
    assert isinstance(verdict, Challenged)
    assert verdict.stale
    assert learned(alice, late, verdict)
    assert home.check(alice.authorize(request(4)), 60.1) == Authenticated("alice")


def test_a_restarted_server_reports_old_nonces_as_stale() -> None:
    alice, home = client(), server()
    learned(alice, request(), home.check(request(), 0.0))
    reborn = Authenticator("localhost", PASSWORDS.get, b"another key")
    asked = alice.authorize(request(2))
    verdict = reborn.check(asked, 1.0)
    assert isinstance(verdict, Challenged)
    assert verdict.stale
    assert learned(alice, asked, verdict)
    assert reborn.check(alice.authorize(request(3)), 1.0) == Authenticated("alice")


def test_a_wrong_password_and_an_unknown_user_get_the_same_response() -> None:
    for peer in (client(password="guess"), client("mallory"), client("mallory", "")):
        home = server()
        learned(peer, request(), home.check(request(), 0.0))
        assert home.check(peer.authorize(request(2)), 0.0) == AuthenticationRejected(403, "Wrong User Or Password")


def test_the_name_of_a_refused_user_forges_no_line_of_a_log() -> None:
    home, peer = server(), client("a from 1.2.3.4 refused\x1b[31m\u202e" + "x" * 900)
    learned(peer, request(), home.check(request(), 0.0))
    home.check(peer.authorize(request(2)), 0.0)
    (refused,) = home.take_refusals()
    assert refused.user == "sip:a%20from%201.2.3.4%20refused%1B%5B31m%E2%80%AE" + "x" * 36 + "@localhost"
    assert home.take_refusals() == []


def test_a_proof_holds_for_its_method_and_realm_alone() -> None:
    alice, home = client(), server()
    learned(alice, request(), home.check(request(), 0.0))
    (proof,) = alice.authorize(request(2)).headers_all("Authorization")
    assert home.check(request(3, "INVITE").with_header("Authorization", proof), 0.0) == AuthenticationRejected(
        403, "Wrong User Or Password"
    )
    elsewhere = Authenticator("example.com", PASSWORDS.get, b"key")
    assert isinstance(elsewhere.check(request(2).with_header("Authorization", proof), 0.0), Challenged)


def signed_for(uri: str) -> Verdict:
    """Check credentials for ``uri`` in a request whose Request-URI is ``sip:localhost``."""
    alice, home = client(), server()
    learned(alice, request(), home.check(request(), 0.0))
    proof = alice.authorize(msgspec.structs.replace(request(2), uri=uri)).header("Authorization")
    return home.check(request(3).with_header("Authorization", proof or ""), 0.0)


@pytest.mark.parametrize("uri", ["sip:localhost", "sip:LOCALHOST:5060", "sips:localhost;transport=tcp;lr"])
def test_a_proof_holds_for_what_its_uri_names_however_written(uri: str) -> None:
    assert signed_for(uri) == Authenticated("alice")


@pytest.mark.parametrize("uri", ["sip:example.com", "sip:alice@localhost", "localhost", "tel:1", "sip:"])
def test_a_proof_for_another_resource_is_refused_rfc7616_3_4_6(uri: str) -> None:
    assert signed_for(uri) == AuthenticationRejected(400, "Credentials For Another URI")


@pytest.mark.parametrize(
    "change", [{"qop": None}, {"cnonce": None}, {"nonce_count": 0}, {"algorithm": "SHA-1"}, {"nonce": "é"}]
)
def test_incomplete_credentials_are_challenged_again(change: dict[str, object]) -> None:
    alice, home = client(), server()
    learned(alice, request(), home.check(request(), 0.0))
    (proof,) = alice.authorize(request(2)).headers_all("Authorization")
    changed = msgspec.structs.replace(Credentials.parse(proof), **change)
    assert isinstance(home.check(request(2).with_header("Authorization", str(changed)), 0.0), Challenged)


def test_the_table_of_counts_is_bounded_and_what_it_forgets_is_stale(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(digest_module, "NONCES_REMEMBERED_MAX", 4)
    home = server()
    proofs = []
    for number in range(1, 12, 2):
        alice = client()
        learned(alice, request(number), home.check(request(number), 0.0))
        proofs.append(alice.authorize(request(number + 1)))
        assert home.check(proofs[-1], 0.0) == Authenticated("alice")
    assert len(home._counts) == len(home._serials) == 4
    for again in proofs:
        assert isinstance(home.check(again, 0.0), Challenged)


def test_a_refused_password_is_not_tried_again() -> None:
    alice, home = client(password="guess"), server()
    assert learned(alice, request(), home.check(request(), 0.0))
    asked = alice.authorize(request(2))
    assert not learned(alice, asked, home.check(request(), 0.0))


def test_a_worn_nonce_that_is_not_called_stale_is_worth_one_more_try() -> None:
    alice, home = client(), server()
    learned(alice, request(), home.check(request(), 0.0))
    alice.authorize(request(2))
    second, third = alice.authorize(request(3)), alice.authorize(request(4))
    assert learned(alice, second, home.check(request(), 0.0))
    assert learned(alice, third, home.check(request(), 0.0))
    assert not learned(alice, alice.authorize(request(5)), home.check(request(), 0.0))


def test_the_same_nonce_asked_for_again_means_that_the_password_was_refused() -> None:
    alice = client()
    again = Challenged([str(Challenge("old", "fixed", qop=()))], stale=False)
    assert learned(alice, request(), again)
    alice.authorize(request(2))
    assert not learned(alice, alice.authorize(request(3)), again)


def test_a_proxy_has_its_own_fields_rfc3261_22_3() -> None:
    alice, home = client(), server()
    learned(alice, request(), home.check(request(), 0.0), asking="Proxy-Authenticate")
    authorized = alice.authorize(request(2))
    assert authorized.header("Authorization") is None
    assert home.check(authorized, 0.0, header="Proxy-Authorization") == Authenticated("alice")


def test_unsupported_challenges_are_not_stored() -> None:
    alice = client()
    for value in (
        "Basic realm=x",
        "Digest",
        'Digest realm="r", nonce="n", qop="auth-int"',
        'Digest realm="r", nonce="n", algorithm=X',
    ):
        assert not alice.learn(make_response(request(), 401, headers=[("WWW-Authenticate", value)]))
    assert alice.authorize(request()) == request()


def test_a_client_keeps_a_bounded_number_of_realms_and_requests() -> None:
    alice = client()
    for number in range(20):
        value = str(Challenge(f"realm {number}", "n"))
        alice.learn(make_response(request(), 401, headers=[("WWW-Authenticate", value)]))
    for number in range(400):
        authorized = alice.authorize(request(number))
    realms = [Credentials.parse(value).realm for value in authorized.headers_all("Authorization")]
    assert realms == [f"realm {number}" for number in range(12, 20)]
    assert len(alice._sent) <= 256


def test_secrets_are_not_shown() -> None:
    alice, home = client(), server()
    learned(alice, request(), home.check(request(), 0.0))
    (proof,) = alice.authorize(request(2)).headers_all("Authorization")
    credentials = Credentials.parse(proof)
    shown = repr(credentials) + str(credentials.__rich_repr__()) + repr(alice) + repr(home)
    for secret in (credentials.response, ha1("alice", "localhost", "wonder land"), "wonder land", "key'"):
        assert secret not in shown
    with pytest.raises(SIPParseError) as caught:
        Credentials.parse(proof.replace('username="alice", ', ""))
    assert credentials.response not in str(caught.value)
