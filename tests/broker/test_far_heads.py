"""Ends of the log for sessions that move to another domain (SPEC L-05; decision 0165)."""

from __future__ import annotations

from tests.broker.access_desk import OWN
from tests.broker.test_far_publishes import Source
from tests.broker.test_foreign_domains import foreign, wanted
from wanderbus.broker.servers.server_users import domain_user
from wanderbus.broker.sessions.handover_messages import HeadWanted
from wanderbus.channels.interest.messages import NumberedFilter


def test_l05_the_end_of_the_log_is_given_once_the_next_domain_wants_all_that_the_session_does() -> None:
    """From then on every later event goes there."""
    desk = Source()
    filters = (NumberedFilter(0, OWN, "N > 3"), NumberedFilter(1, OWN, "N < 1"))
    desk.give(HeadWanted("north", 1, "beta", filters))
    assert desk.heads == []
    link = foreign(desk, domain_user("beta", desk.config.domain))
    wanted(desk, link, "N > 5", OWN)
    wanted(desk, link, "N < 1", OWN)
    assert desk.heads == []
    wanted(desk, link, "N > 2", OWN)
    assert [each.end.origin for each in desk.heads] == ["south"]
