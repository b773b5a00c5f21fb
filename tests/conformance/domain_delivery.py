"""Promises of delivery in a domain: those of a single server, except for subscriptions that begin in the past."""

from __future__ import annotations

import pytest

from tests.conformance.conditions import Conditions
from tests.conformance.delivery import Delivery
from tests.conformance.domain_conditions import DomainConditions
from wanderbus.errors import Refused


class DomainDelivery(Delivery):
    """The stories of :class:`Delivery` in a domain."""

    def test_t06_history_and_new_events_join_without_a_seam(self, conditions: Conditions) -> None:
        """The history of an ordered channel is read at its leader; that of a decentralised one is refused."""
        assert isinstance(conditions, DomainConditions)
        if conditions.has_history:
            super().test_t06_history_and_new_events_join_without_a_seam(conditions)
        else:
            with pytest.raises(Refused, match="are in the log"):
                super().test_t06_history_and_new_events_join_without_a_seam(conditions)

    def test_t06_history_goes_on_where_it_was_when_servers_are_started_again(self, conditions: Conditions) -> None:
        """The same, for a subscription that is kept."""
        assert isinstance(conditions, DomainConditions)
        if conditions.has_history:
            super().test_t06_history_goes_on_where_it_was_when_servers_are_started_again(conditions)
        else:
            with pytest.raises(Refused, match="are in the log"):
                super().test_t06_history_goes_on_where_it_was_when_servers_are_started_again(conditions)
