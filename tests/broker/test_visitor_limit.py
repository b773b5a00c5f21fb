"""Users of other domains: no domain can fill the broker (SPEC D-13)."""

from __future__ import annotations

from tests.broker.desk import ALICE, Desk
from wanderbus.parameters.broker import BrokerConfig
from wanderbus.protocol import Attachment, RequestRefused

OURS = ALICE.rpartition("@")[2]


def refused(desk: Desk, user: str, device: str = "phone") -> str | None:
    """Return the bound that refuses a new device of ``user``; None once it is attached."""
    link = desk.attach(user, device=device)
    answers = desk.received(link, RequestRefused)
    if not answers:
        assert desk.received(link, Attachment)
        return None
    return answers[0].limit


def test_each_other_domain_has_so_many_users_and_our_own_any_number() -> None:
    desk = Desk(BrokerConfig(domain=OURS, domain_users_max=2))
    assert [refused(desk, f"sip:u{n}@a.example") for n in range(3)] == [None, None, "domain_users_max"]
    assert [refused(desk, f"sip:u{n}@b.example") for n in range(3)] == [None, None, "domain_users_max"]
    assert [refused(desk, f"sip:u{n}@{OURS}") for n in range(4)] == [None] * 4


def test_a_user_who_is_known_may_have_another_device_and_come_back() -> None:
    desk = Desk(BrokerConfig(domain=OURS, domain_users_max=1))
    assert refused(desk, "sip:u@a.example") is None
    assert refused(desk, "sip:u@a.example", "laptop") is None
    assert refused(desk, "sip:u@a.example") is None
    desk.restart(with_rows=True)
    assert refused(desk, "sip:other@a.example") == "domain_users_max"
    assert refused(desk, "sip:u@a.example") is None


def test_the_devices_of_a_domain_are_bounded_too() -> None:
    desk = Desk(BrokerConfig(domain=OURS, domain_devices_max=2))
    limits = [refused(desk, "sip:u@a.example", f"d{n}") for n in range(3)]
    assert limits == [None, None, "domain_devices_max"]
    assert refused(desk, "sip:u@xa.example") is None


def test_devices_that_have_not_attached_count_as_well() -> None:
    """The layer below has channels on which no device has attached at the broker yet."""
    desk = Desk(BrokerConfig(domain=OURS, domain_users_max=1))
    present = [("sip:first@a.example", "phone"), ("sip:someone@b.example", "phone")]
    refusal = desk.broker.refusal("sip:u@a.example", "phone", 0, present)
    assert refusal is not None
    assert refusal.limit == "broker.domain_users_max"
    assert desk.broker.refusal("sip:first@a.example", "laptop", 1, present) is None


def test_without_a_domain_nobody_is_a_visitor() -> None:
    desk = Desk(BrokerConfig(domain_users_max=1))
    assert [refused(desk, f"sip:u{n}@a.example") for n in range(3)] == [None] * 3
