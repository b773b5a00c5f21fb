"""Items are effective once each of several peers has confirmed them, and not before (SPEC J-10)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from wanderbus.channels.pending import Pending

PEERS = "abc"


def test_an_item_is_effective_when_the_last_peer_has_confirmed_its_version() -> None:
    pending: Pending[str, str] = Pending()
    pending.add("item", {"a": 3, "b": 1})
    assert pending.confirmed("b", 5) == []
    assert pending.confirmed("a", 2) == []
    assert list(pending) == ["item"]
    assert pending.confirmed("a", 3) == ["item"]
    assert (list(pending), pending.awaited()) == ([], {})


def test_a_confirmation_counts_whatever_the_peer_confirms_later() -> None:
    pending: Pending[str, str] = Pending()
    pending.add("item", {"a": 3, "b": 1})
    pending.confirmed("a", 3)
    pending.confirmed("a", 0)
    assert pending.confirmed("b", 1) == ["item"]


def test_an_item_that_is_dropped_or_added_again_has_not_been_confirmed() -> None:
    pending: Pending[str, str] = Pending()
    pending.add("item", {"a": 1, "b": 1})
    pending.confirmed("a")
    pending.drop("item")
    pending.drop("item")
    assert pending.confirmed("b") == []
    pending.add("item", {"a": 1, "b": 1})
    pending.confirmed("a")
    pending.add("item", {"a": 2})
    assert pending.confirmed("b") == []
    assert pending.awaited() == {"a": 2}
    assert pending.confirmed("a", 2) == ["item"]


items = st.dictionaries(st.sampled_from(PEERS), st.integers(0, 2), min_size=1)
confirmations = st.tuples(st.sampled_from(PEERS), st.integers(0, 6))


@given(st.lists(st.one_of(items, confirmations, st.integers(0, 5)), max_size=30))
def test_it_follows_the_definition(steps: list[dict[str, int] | tuple[str, int] | int]) -> None:
    """Each item has the versions of the item before, and so much more; an integer drops an item."""
    pending: Pending[int, str] = Pending()
    last = dict.fromkeys(PEERS, 0)
    model: dict[int, dict[str, int]] = {}
    for place, step in enumerate(steps):
        if isinstance(step, dict):
            model[place] = {peer: last[peer] + more for peer, more in step.items()}
            last |= model[place]
            pending.add(place, model[place])
        elif isinstance(step, int):
            pending.drop(step)
            model.pop(step, None)
        else:
            peer, version = step
            for wanted in model.values():
                if wanted.get(peer, version + 1) <= version:
                    del wanted[peer]
            assert pending.confirmed(peer, version) == [item for item, wanted in model.items() if not wanted]
            model = {item: wanted for item, wanted in model.items() if wanted}
        assert list(pending) == list(model)
        assert pending.awaited().keys() == {peer for wanted in model.values() for peer in wanted}
