"""``wanderbus federation status``: what an operator reads about foreign domains."""

from __future__ import annotations

import msgspec

from wanderbus.cli.federation.status import shown
from wanderbus.operator_rows import DomainInfo


def test_status_is_a_line_for_each_domain() -> None:
    linked = DomainInfo("beta.test", True, filters=3, is_settled=True, sent=7, published=2, repeated=1, refused=1)
    linked = msgspec.structs.replace(linked, visitors="move")
    changing = DomainInfo("gamma.test", True, filters=4, waiting=5, not_received=2)
    assert [line.split() for line in shown([linked, changing])] == [
        ["domain", "link", "filters", "sent", "published", "waiting", "repeated", "refused", "lost", "visitors"],
        ["beta.test", "yes", "3", "7", "2", "0", "1", "1", "0", "move"],
        ["gamma.test", "yes", "4+", "0", "0", "5", "0", "2", "0", "own"],
    ]


def test_status_names_the_domains_that_a_link_goes_through() -> None:
    row = DomainInfo("beta.test", True, through=("gamma.test", "delta\n.test"))
    assert "through gamma.test, delta\\u000a.test" in shown([row])[1]


def test_status_begins_with_problems() -> None:
    away = DomainInfo("beta.test", trouble="127.0.0.2:5900 has acknowledged nothing for 3 s", lost=12)
    lines = shown([away, DomainInfo("gamma.test", is_in_turn=False, awaited=("s2",)), DomainInfo("delta.test")])
    assert lines[:4] == [
        "other domains are told nothing yet: the interest of s2 is not known here",
        "beta.test has no link: 127.0.0.2:5900 has acknowledged nothing for 3 s",
        "beta.test has lost 12 events before they were sent; its bounds are too low",
        "delta.test has no link: none of its gateways has answered yet",
    ]
    assert [line.split()[1] for line in lines[5:]] == ["no", "standby", "no"]


def test_status_of_causal_order() -> None:
    agreed = DomainInfo("beta.test", is_linked=True, order="causal", unordered=3)
    asked = DomainInfo("gamma.test", is_linked=True, order="asked here")
    lines = shown([agreed, asked, DomainInfo("delta.test", is_linked=True, order="asked there")])
    assert lines[:3] == [
        "3 events of beta.test went on without their causes, which were late",
        "no causal order with gamma.test: it is asked here alone",
        "no causal order with delta.test: it is asked there alone",
    ]


def test_status_of_a_server_that_is_no_gateway_says_so() -> None:
    assert shown([]) == ["this server is no gateway to other domains"]
