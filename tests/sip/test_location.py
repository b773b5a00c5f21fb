"""The location service (RFC 3261 10, 19.1.4; SPEC D-02, A-05)."""

from __future__ import annotations

import msgspec
import pytest

from wanderbus.errors import LimitExceeded
from wanderbus.sip.message.uri import SIPUri
from wanderbus.sip.proxy import location as location_module
from wanderbus.sip.proxy.bindings import Binding, Domain
from wanderbus.sip.proxy.location import BINDINGS_PER_AOR_MAX, LocationService, moved, same_contact

ALICE = "sip:alice@example.org"


def binding(port: int, expires_at: float = 100.0, q: float = 1.0) -> Binding:
    return Binding(f"sip:alice@10.0.0.1:{port}", expires_at, "call", 1, None, q)


def test_bindings_come_by_preference_and_then_newest_first() -> None:
    """RFC 3261 16.6: a higher q is tried first; among equals the newest."""
    location = LocationService()
    location.replace(ALICE, [binding(3, q=0.5), binding(2), binding(1)])
    assert [found.contact[-1] for found in location.bindings(ALICE, 0.0)] == ["2", "1", "3"]


def test_a_binding_ends_at_its_second_exactly() -> None:
    location = LocationService()
    location.replace(ALICE, [binding(1, expires_at=10.0)])
    assert location.contacts(ALICE, 9.999) == ("sip:alice@10.0.0.1:1",)
    assert location.contacts(ALICE, 10.0) == ()


def test_expire_removes_ended_bindings_and_reports_each_once() -> None:
    location = LocationService()
    location.replace(ALICE, [binding(2, expires_at=20.0), binding(1, expires_at=10.0)])
    assert location.next_expiry(ALICE) == 10.0
    assert location.expire(ALICE, 10.0)
    assert not location.expire(ALICE, 10.0)
    assert location.next_expiry(ALICE) == 20.0
    assert location.expire(ALICE, 20.0)
    assert location.next_expiry(ALICE) is None
    assert len(location) == 0


def test_expire_of_an_unknown_user_is_no_news() -> None:
    assert not LocationService().expire(ALICE, 0.0)


def test_bindings_of_one_user_are_bounded_and_a_refusal_changes_nothing() -> None:
    location = LocationService()
    location.replace(ALICE, [binding(1)])
    with pytest.raises(LimitExceeded) as refused:
        location.replace(ALICE, [binding(port) for port in range(1, BINDINGS_PER_AOR_MAX + 2)])
    assert refused.value.limit == "BINDINGS_PER_AOR_MAX"
    assert location.contacts(ALICE, 0.0) == ("sip:alice@10.0.0.1:1",)


def test_users_are_bounded_but_known_ones_may_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(location_module, "AORS_MAX", 1)
    location = LocationService()
    location.replace(ALICE, [binding(1)])
    location.replace(ALICE, [binding(2)])
    with pytest.raises(LimitExceeded):
        location.replace("sip:bob@example.org", [binding(1)])
    location.replace(ALICE, [])
    location.replace("sip:bob@example.org", [binding(1)])
    assert list(location) == ["sip:bob@example.org"]


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        ("sip:a@10.0.0.1:7", "sip:a@10.0.0.1:7", True),
        ("sip:a@10.0.0.1:7;transport=UDP", "sip:a@10.0.0.1:7;transport=udp", True),
        ("sip:a@10.0.0.1:7;ob", "sip:a@10.0.0.1:7", True),
        ("sip:a@10.0.0.1:7;x=1", "sip:a@10.0.0.1:7;x=2", False),
        ("sip:a@10.0.0.1:7;maddr=10.0.0.2", "sip:a@10.0.0.1:7", False),
        ("sip:a@10.0.0.1", "sip:a@10.0.0.1:5060", False),
        ("sip:a@10.0.0.1:7", "sip:A@10.0.0.1:7", False),
        ("sip:a@10.0.0.1:7", "sip:a@10.0.0.2:7", False),
        ("sips:a@10.0.0.1:7", "sip:a@10.0.0.1:7", False),
    ],
)
def test_contacts_compare_as_in_rfc_3261_19_1_4(first: str, second: str, same: bool) -> None:
    assert same_contact(SIPUri.parse(first), SIPUri.parse(second)) is same
    assert same_contact(SIPUri.parse(second), SIPUri.parse(first)) is same


@pytest.mark.parametrize(
    ("uri", "ours"),
    [
        ("sip:alice@example.org", True),
        ("sip:alice@EXAMPLE.org:5070", True),
        ("sip:alice@example.org:5060", False),
        ("sip:alice@10.0.0.9:5070", True),
        ("sip:alice@10.0.0.9", False),
        ("sip:alice@elsewhere.org", False),
        ("tel:example.org", False),
    ],
)
def test_a_domain_serves_its_name_and_address_at_its_own_port(uri: str, ours: bool) -> None:
    """RFC 3261 16.4 and 16.5: addresses of other domains are never resolved here."""
    assert Domain("example.org", ("10.0.0.9", 5070)).serves(SIPUri.parse_any(uri)) is ours


def test_a_contact_leads_to_its_binding_until_it_ends() -> None:
    """RFC 3261 19.1.4: for every equivalent spelling; the index keeps no entry of a removed binding."""
    location = LocationService()
    location.replace(ALICE, [binding(1), binding(2, expires_at=20.0)])
    assert list(location.bindings_at(SIPUri.parse("sip:alice@10.0.0.1:2;x=y"), 10.0)) == [binding(2, expires_at=20.0)]
    assert not list(location.bindings_at(SIPUri.parse("sip:alice@10.0.0.1:2"), 20.0))
    assert not list(location.bindings_at(SIPUri.parse("sip:bob@10.0.0.1:1"), 10.0))
    location.replace(ALICE, [binding(3)])
    assert not list(location.bindings_at(SIPUri.parse("sip:alice@10.0.0.1:1"), 10.0))
    location.replace(ALICE, [])
    assert location._owners == {}


def test_a_contact_of_two_users_stays_while_one_has_it() -> None:
    location = LocationService()
    for aor in (ALICE, "sip:bob@example.org"):
        location.replace(aor, [binding(1)])
    location.replace(ALICE, [])
    assert list(location.bindings_at(SIPUri.parse("sip:alice@10.0.0.1:1"), 10.0))


def test_a_snapshot_is_restored_without_what_ended_and_without_connections() -> None:
    location, later = LocationService(), LocationService()
    kept = msgspec.structs.replace(binding(1), connection=5)
    location.replace(ALICE, [kept, binding(2, expires_at=20.0)])
    snapshot = location.snapshot()
    location.replace(ALICE, [])
    later.restore({aor: moved(each, -10.0) for aor, each in snapshot.items()}, 10.0)
    assert later.held(ALICE) == (binding(1, expires_at=90.0),)
