"""The registrar as a pure object (RFC 3261 10.3; RFC 5626 6 for instances; SPEC D-02, D-03, D-04, C-20)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.sip.phone_world import CountingRandom
from wanderbus.machine import CancelTimer, Output, SetTimer
from wanderbus.refusals import Limited
from wanderbus.sip.authentication.digest import Authenticator, DigestClient
from wanderbus.sip.message.message import Request, Response
from wanderbus.sip.proxy.bindings import Binding, BindingChanged, BindingsWritten, Domain, ExpiryPolicy
from wanderbus.sip.proxy.location import BINDINGS_PER_AOR_MAX, LocationService, moved
from wanderbus.sip.proxy.registrar import BINDING_TEXT_CHARACTERS_MAX, Registrar

DOMAIN = Domain("example.org", ("10.0.0.9", 5060))
ALICE = "sip:alice@example.org"
PASSWORDS = {"alice": "wonder", "bob": "builder"}
PHONE = '+sip.instance="<urn:uuid:00000000-0000-0000-0000-000000000001>"'
TABLET = '+sip.instance="<urn:uuid:00000000-0000-0000-0000-000000000002>"'


class Desk:
    """A registrar and one user's credentials in front of it."""

    def __init__(self, user: str = "alice", password: str = "wonder") -> None:
        self.location = LocationService()
        random = CountingRandom()
        authenticator = Authenticator(DOMAIN.name, PASSWORDS.get, b"k" * 32)
        self.registrar = Registrar(DOMAIN, self.location, authenticator, random, ExpiryPolicy())
        self.client = DigestClient(user, password, random)
        self.now = 1000.0
        self.outputs: list[Output] = []

    def register(
        self,
        *contacts: str,
        cseq: int = 1,
        call_id: str = "c1",
        aor: str = ALICE,
        uri: str = "sip:example.org",
        extra: tuple[tuple[str, str], ...] = (),
        signed_for: str | None = None,
        via: str = "10.0.0.1:7",
    ) -> Response:
        """Send a REGISTER, answer a challenge once, return the last response."""
        headers = (
            ("Via", f"SIP/2.0/UDP {via};branch=z9hG4bK1"),
            ("From", f"<{aor}>;tag=f"),
            ("To", f"<{aor}>"),
            ("Call-ID", call_id),
            ("CSeq", f"{cseq} REGISTER"),
            *(("Contact", contact) for contact in contacts),
            *extra,
        )
        request = Request("REGISTER", uri, headers)
        response, self.outputs = self.registrar.register(self.client.authorize(request), self.now)
        if response.status == 401 and self.client.learn(response):
            signed = self.client.authorize(Request("REGISTER", signed_for or uri, headers))
            sent = Request("REGISTER", uri, signed.headers)
            response, self.outputs = self.registrar.register(sent, self.now)
        return response

    def contacts(self) -> tuple[str, ...]:
        return self.location.contacts(ALICE, self.now)


def test_without_credentials_there_is_a_challenge_and_no_binding() -> None:
    desk = Desk()
    desk.client = DigestClient("alice", "wonder", CountingRandom())
    headers = (
        ("Via", "SIP/2.0/UDP 10.0.0.1:7;branch=z9hG4bK1"),
        ("From", f"<{ALICE}>;tag=f"),
        ("To", f"<{ALICE}>"),
        ("Call-ID", "c1"),
        ("CSeq", "1 REGISTER"),
        ("Contact", "<sip:alice@10.0.0.1:7>"),
    )
    response, outputs = desk.registrar.register(Request("REGISTER", "sip:example.org", headers), desk.now)
    assert response.status == 401
    assert 'realm="example.org"' in (response.header("WWW-Authenticate") or "")
    assert response.to.tag
    assert outputs == []
    assert desk.contacts() == ()


@pytest.mark.parametrize(
    ("user", "password", "status"), [("alice", "wrong", 403), ("nobody", "wonder", 403), ("bob", "builder", 403)]
)
def test_users_that_may_not_register_alice(user: str, password: str, status: int) -> None:
    """SPEC C-20: wrong password and unknown user 403, somebody else's address of record 403 (10.3 step 4)."""
    desk = Desk(user, password)
    assert desk.register("<sip:alice@10.0.0.1:7>").status == status
    assert desk.contacts() == ()


def test_a_registration_is_listed_timed_and_reported() -> None:
    """RFC 3261 10.3 step 8: the 200 lists each binding with the seconds left."""
    desk = Desk()
    response = desk.register(f"<sip:alice@10.0.0.1:7>;expires=30;{PHONE}")
    assert response.status == 200
    (contact,) = response.contacts
    assert str(contact.uri) == "sip:alice@10.0.0.1:7"
    assert contact.param("expires") == "30"
    assert contact.param("+sip.instance") == "<urn:uuid:00000000-0000-0000-0000-000000000001>"
    written = BindingsWritten(ALICE, desk.location.bindings(ALICE, desk.now))
    assert desk.outputs == [written, BindingChanged(ALICE, ("sip:alice@10.0.0.1:7",)), SetTimer(ALICE, 1030.0)]


def test_a_refresh_is_written_and_moves_the_timer_but_changes_nothing() -> None:
    desk = Desk()
    desk.register("<sip:alice@10.0.0.1:7>;expires=30")
    desk.now += 10
    desk.register("<sip:alice@10.0.0.1:7>;expires=30", cseq=2)
    refreshed = Binding("sip:alice@10.0.0.1:7", 1040.0, "c1", 2)
    assert desk.outputs == [BindingsWritten(ALICE, (refreshed,)), SetTimer(ALICE, 1040.0)]


@pytest.mark.parametrize(
    ("params", "expires_header", "granted_s"),
    [
        ("", None, 300),
        ("", "60", 60),
        (";expires=30", "60", 30),
        (";expires=5", None, 5),
        (";expires=999999", None, 3600),
        (";expires=soon", None, 3600),
        (";expires=99999999999999999999", None, 3600),
    ],
)
def test_the_granted_expiry(params: str, expires_header: str | None, granted_s: int) -> None:
    """RFC 3261 10.3 step 7, 20.10: the parameter, else Expires, else our default; never above our maximum."""
    desk = Desk()
    extra = () if expires_header is None else (("Expires", expires_header),)
    (contact,) = desk.register(f"<sip:alice@10.0.0.1:7>{params}", extra=extra).contacts
    assert contact.param("expires") == str(granted_s)


def test_too_brief_an_interval_is_refused_with_the_minimum() -> None:
    """RFC 3261 10.3 step 7: 423, and no binding of the request is stored."""
    desk = Desk()
    response = desk.register("<sip:alice@10.0.0.1:8>;expires=60", "<sip:alice@10.0.0.1:7>;expires=4")
    assert (response.status, response.header("Min-Expires")) == (423, "5")
    assert desk.contacts() == ()


def test_a_query_lists_and_changes_nothing() -> None:
    """RFC 3261 10.2.3: no Contact, no change."""
    desk = Desk()
    desk.register("<sip:alice@10.0.0.1:7>;expires=60")
    desk.now += 20
    (contact,) = desk.register(cseq=2).contacts
    assert contact.param("expires") == "40"
    assert desk.outputs == []


def test_expires_zero_removes_one_contact() -> None:
    """RFC 3261 10.2.2, SPEC D-04."""
    desk = Desk()
    desk.register("<sip:alice@10.0.0.1:7>", "<sip:alice@10.0.0.2:7>")
    response = desk.register("<sip:alice@10.0.0.1:7>;expires=0", cseq=2)
    assert [str(contact.uri) for contact in response.contacts] == ["sip:alice@10.0.0.2:7"]
    assert desk.outputs[1] == BindingChanged(ALICE, ("sip:alice@10.0.0.2:7",))


def test_star_removes_every_contact_and_cancels_the_timer() -> None:
    """RFC 3261 10.2.2."""
    desk = Desk()
    desk.register("<sip:alice@10.0.0.1:7>", "<sip:alice@10.0.0.2:7>")
    response = desk.register("*", cseq=2, extra=(("Expires", "0"),))
    assert (response.status, response.contacts) == (200, [])
    assert desk.outputs == [BindingsWritten(ALICE, ()), BindingChanged(ALICE, ()), CancelTimer(ALICE)]
    assert len(desk.location) == 0


@pytest.mark.parametrize("extra", [(), (("Expires", "60"),)])
def test_star_needs_expires_zero(extra: tuple[tuple[str, str], ...]) -> None:
    """RFC 3261 10.3 step 6."""
    desk = Desk()
    desk.register("<sip:alice@10.0.0.1:7>")
    assert desk.register("*", cseq=2, extra=extra).status == 400
    assert desk.contacts() == ("sip:alice@10.0.0.1:7",)


@pytest.mark.parametrize("late", ["<sip:alice@10.0.0.1:7>", "<sip:alice@10.0.0.1:7>;expires=0", "*"])
def test_a_request_older_than_the_binding_fails_whole(late: str) -> None:
    """RFC 3261 10.3 step 7: same Call-ID and a CSeq that is not higher."""
    desk = Desk()
    desk.register("<sip:alice@10.0.0.1:7>;expires=60", cseq=5)
    before = desk.location.bindings(ALICE, desk.now)
    extra = (("Expires", "0"),) if late == "*" else ()
    contacts = (late,) if late == "*" else ("<sip:alice@10.0.0.3:7>", late)
    assert desk.register(*contacts, cseq=5, extra=extra).status == 500
    assert desk.location.bindings(ALICE, desk.now) == before


def test_another_call_id_starts_its_own_order() -> None:
    """RFC 3261 10.3 step 7: a device that restarted begins with a new Call-ID and any CSeq."""
    desk = Desk()
    desk.register("<sip:alice@10.0.0.1:7>;expires=60", cseq=500)
    assert desk.register("<sip:alice@10.0.0.1:7>;expires=0", cseq=1, call_id="c2").status == 200
    assert desk.contacts() == ()


def test_the_same_instance_at_a_new_address_replaces_its_old_contact() -> None:
    """RFC 5626 6: a device that moved is found at its new address only; other devices stay."""
    desk = Desk()
    desk.register(f"<sip:alice@10.0.0.1:7>;{PHONE}")
    desk.register(f"<sip:alice@10.0.0.5:7>;{TABLET}", cseq=1, call_id="tablet")
    desk.register(f"<sip:alice@10.0.0.2:7>;{PHONE}", cseq=2)
    assert desk.contacts() == ("sip:alice@10.0.0.2:7", "sip:alice@10.0.0.5:7")


def test_a_late_register_from_before_the_move_does_not_move_the_device_back() -> None:
    desk = Desk()
    desk.register(f"<sip:alice@10.0.0.2:7>;{PHONE}", cseq=2)
    assert desk.register(f"<sip:alice@10.0.0.1:7>;{PHONE}", cseq=1).status == 500
    assert desk.contacts() == ("sip:alice@10.0.0.2:7",)


def test_a_refreshed_contact_does_not_overtake_a_newer_one() -> None:
    """The proxy tries the device that came last, not the one that refreshed last."""
    desk = Desk()
    desk.register("<sip:alice@10.0.0.1:7>", call_id="old")
    desk.register("<sip:alice@10.0.0.2:7>", call_id="new")
    desk.register("<sip:alice@10.0.0.1:7>", call_id="old", cseq=2)
    assert desk.contacts() == ("sip:alice@10.0.0.2:7", "sip:alice@10.0.0.1:7")


@pytest.mark.parametrize(
    "contact",
    [
        "<sip:alice@host.example.org>",
        "<sips:alice@10.0.0.1>",
        "<tel:+15551234>",
        "<sip:alice@10.0.0.1;transport=tcp>",
        f"<sip:alice@10.0.0.1;x={'y' * BINDING_TEXT_CHARACTERS_MAX}>",
    ],
)
def test_a_contact_that_cannot_be_sent_to_is_refused(contact: str) -> None:
    desk = Desk()
    assert desk.register(contact).status == 400
    assert desk.contacts() == ()


def test_an_ipv6_contact_is_kept_as_a_uri() -> None:
    desk = Desk()
    assert desk.register("<sip:alice@[2001:db8::1]:7>").status == 200
    assert desk.contacts() == ("sip:alice@[2001:db8::1]:7",)


def test_more_bindings_than_the_bound_are_refused_whole() -> None:
    desk = Desk()
    for port in range(BINDINGS_PER_AOR_MAX):
        assert desk.register(f"<sip:alice@10.0.0.1:{port + 1}>", cseq=port + 1).status == 200
    assert desk.register("<sip:alice@10.0.0.2:7>", cseq=100).status == 503
    assert len(desk.contacts()) == BINDINGS_PER_AOR_MAX
    (limited,) = (output for output in desk.outputs if isinstance(output, Limited))
    assert (limited.limit, limited.party) == ("registrar.BINDINGS_PER_AOR_MAX", ALICE)


def test_an_unknown_extension_is_named() -> None:
    """RFC 3261 10.3 step 2."""
    response = Desk().register("<sip:alice@10.0.0.1:7>", extra=(("Require", "path, gruu"),))
    assert (response.status, response.headers_all("Unsupported")) == (420, ["path", "gruu"])


@pytest.mark.parametrize(("uri", "status"), [("sip:elsewhere.org", 403), ("tel:1", 416), ("sip:10.0.0.9", 200)])
def test_the_request_uri_has_to_be_ours(uri: str, status: int) -> None:
    """RFC 3261 10.3 step 1."""
    assert Desk().register("<sip:alice@10.0.0.1:7>", uri=uri).status == status


@pytest.mark.parametrize(
    ("signed_for", "status"), [("sip:example.org:5060", 200), ("sip:10.0.0.9:5060", 200), ("sip:elsewhere.org", 400)]
)
def test_rfc7616_3_4_6_credentials_are_for_this_registrar(signed_for: str, status: int) -> None:
    """SIPp signs for the address that it sends to."""
    desk = Desk()
    assert desk.register("<sip:alice@10.0.0.1:7>", signed_for=signed_for).status == status
    assert len(desk.contacts()) == (status == 200)


NOWHERE = ["224.0.1.75", "255.255.255.255", "240.0.0.1", "0.0.0.0", "[ff02::1]", "[::]", "[::ffff:224.0.0.1]"]


@pytest.mark.parametrize("host", [*NOWHERE, "127.0.0.1", "127.9.9.9", "[::1]", "[::ffff:127.0.0.1]"])
def test_a_contact_is_one_host_and_not_this_one(host: str) -> None:
    """A contact cannot be many hosts at once, nor this host if the REGISTER is from elsewhere."""
    desk = Desk()
    assert desk.register("<sip:alice@10.0.0.1:7>", f"<sip:alice@{host}:7>").status == 400
    assert desk.contacts() == ()
    assert desk.register(f"<sip:alice@{host}:7>;expires=0", cseq=2).status == 200


@pytest.mark.parametrize("alias", ["224.0.0.1~7~1", "127.0.0.1~7~1", "[::1]~7~1"])
def test_nor_does_the_way_back_lead_to_many_hosts_or_to_this_one(alias: str) -> None:
    host = "127.0.0.1" if alias.startswith("224") else "10.0.0.1"
    assert Desk().register(f"<sip:alice@{host}:7;alias={alias}>").status == 400


def test_behind_nat_it_is_the_way_back_that_counts() -> None:
    assert Desk().register("<sip:alice@127.0.0.1:7;alias=10.0.0.1~7~1>").status == 200


@pytest.mark.parametrize("via", ["127.0.0.1:7", "10.0.0.1:7;received=127.0.0.1"])
def test_senders_on_this_host_may_have_contacts_here(via: str) -> None:
    assert Desk().register("<sip:alice@127.0.0.1:7>", via=via).status == 200


def test_a_server_on_loopback_has_its_users_there() -> None:
    desk = Desk()
    desk.registrar._domain = Domain("example.org", ("127.0.0.1", 5060))
    assert desk.register("<sip:alice@127.0.0.1:7>").status == 200


def test_expiry_by_timer_reports_and_sets_the_next() -> None:
    desk = Desk()
    desk.register("<sip:alice@10.0.0.1:7>;expires=30", "<sip:alice@10.0.0.2:7>;expires=60")
    left = Binding("sip:alice@10.0.0.2:7", 1060.0, "c1", 1)
    assert desk.registrar.expire(ALICE, 1030.0) == [
        BindingsWritten(ALICE, (left,)),
        BindingChanged(ALICE, ("sip:alice@10.0.0.2:7",)),
        SetTimer(ALICE, 1060.0),
    ]
    assert desk.registrar.expire(ALICE, 1050.0) == [SetTimer(ALICE, 1060.0)]
    ended = [BindingsWritten(ALICE, ()), BindingChanged(ALICE, ()), CancelTimer(ALICE)]
    assert desk.registrar.expire(ALICE, 1060.0) == ended


def test_stored_bindings_keep_their_expiry_after_a_restart() -> None:
    """RFC 3261 10.3 step 7: the CSeq numbers survive too, so an old REGISTER does not come back to life."""
    before = Desk()
    before.register(f"<sip:alice@10.0.0.1:7>;expires=60;{PHONE}", cseq=5)
    after = Desk()
    after.now = 7.0
    saved = {aor: moved(bindings, 7.0 - 1020.0) for aor, bindings in before.location.snapshot().items()}
    assert after.registrar.restore(saved, after.now) == [SetTimer(ALICE, 47.0)]
    assert after.contacts() == ("sip:alice@10.0.0.1:7",)
    assert after.location.next_expiry(ALICE) == 47.0
    assert after.register(f"<sip:alice@10.0.0.2:7>;{PHONE}", cseq=4).status == 500
    assert after.register(f"<sip:alice@10.0.0.2:7>;{PHONE}", cseq=6).status == 200
    assert after.contacts() == ("sip:alice@10.0.0.2:7",)


@pytest.mark.parametrize(
    ("aor", "contact", "expires_at"),
    [
        (ALICE, "sip:alice@10.0.0.1:7", 1000.0),
        (ALICE, "nonsense", 1060.0),
        (ALICE, "sip:alice@10.0.0.1;transport=tcp", 1060.0),
        ("sip:nobody@example.org", "sip:alice@10.0.0.1:7", 1060.0),
        ("sip:alice@elsewhere.org", "sip:alice@10.0.0.1:7", 1060.0),
        ("nonsense", "sip:alice@10.0.0.1:7", 1060.0),
    ],
)
def test_invalid_bindings_are_not_restored(aor: str, contact: str, expires_at: float) -> None:
    """Expired, malformed, not routable, of a user that no longer exists, of another domain."""
    desk = Desk()
    outputs = desk.registrar.restore({aor: [Binding(contact, expires_at, "c", 1)]}, desk.now)
    assert not [output for output in outputs if isinstance(output, SetTimer)]
    assert len(desk.location) == 0


def test_a_clock_that_went_back_prolongs_nothing_beyond_what_is_granted() -> None:
    desk = Desk()
    desk.registrar.restore({ALICE: [Binding("sip:alice@10.0.0.1:7", 1e9, "c", 1)]}, desk.now)
    assert desk.location.next_expiry(ALICE) == desk.now + 3600


moves = st.lists(
    st.tuples(st.sampled_from([PHONE, TABLET]), st.integers(1, 4), st.integers(1, 6), st.sampled_from([0, 60]))
)


@given(moves=moves)
def test_a_device_has_the_contact_of_its_highest_cseq_and_no_other(moves: list[tuple[str, int, int, int]]) -> None:
    """RFC 3261 10.3 step 7 and RFC 5626 6 in any order of arrival, against a model of two devices.

    Once a device has unregistered, no CSeq is kept for it, and the next request is accepted with any CSeq.
    """
    desk = Desk()
    model: dict[str, tuple[int, str]] = {}
    for instance, host, cseq, expires_s in moves:
        contact = f"sip:{'phone' if instance == PHONE else 'tablet'}@10.0.0.{host}:7"
        response = desk.register(
            f"<{contact}>;expires={expires_s};{instance}", cseq=cseq, call_id=f"call of {instance}".replace(" ", "-")
        )
        taken = cseq > model.get(instance, (0, ""))[0]
        assert response.status == (200 if taken else 500)
        if taken and expires_s:
            model[instance] = (cseq, contact)
        elif taken:
            model.pop(instance, None)
    assert sorted(desk.contacts()) == sorted(contact for _, contact in model.values())
