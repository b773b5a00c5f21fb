"""Interest of this server in the channels of one leader: subscriptions of its session there (SPEC J-10, J-11, B-10).

Local filters that others cover cost no message; the rest are merged as the channel's settings say. What is left are
ordinary subscriptions of this server's session at the leader, so they are durable there. A change adds first, and
removes once what it adds is confirmed: at no time is an event missed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence, Sized
from typing import Final

from wanderbus import protocol
from wanderbus.channels.interest.covering_index import Interest
from wanderbus.channels.interest.covering_set import InterestChange
from wanderbus.channels.interest.interest_set import InterestSet, Wanted
from wanderbus.channels.interest.measured_precision import MeasuredPrecision
from wanderbus.channels.own_channels import Merging
from wanderbus.filters import Filter
from wanderbus.filters.pieces import pieces_of
from wanderbus.subscription import EVERY_SUBJECT, Subscription

Key = tuple[str, str]
"""Subject and expression of a subscription at the leader."""

PIECE_CHARACTERS_MAX: Final = 4_096
"""Length of the expression of a subscription at a leader: a longer one would cost too much at each change of it."""

_QUERY: int = 0
"""Request number of the query for the subscriptions that the leader has."""


class LeaderInterest:
    """Local filters of subscriptions, and the subscriptions at one leader that stand for them."""

    def __init__(self, merging_of: Callable[[str], Merging]) -> None:
        self._merging_of = merging_of
        self._sets: dict[Merging, InterestSet] = {}
        self._local: dict[str, dict[Merging, list[Hashable]]] = {}
        """Ids of the filters of each subscription here, in the sets that have them."""
        self._measured: dict[str, MeasuredPrecision] = {}
        self._keys: dict[Interest, list[Key]] = {}
        """Subscriptions that stand for each merged filter."""
        self._wanted: Counter[Key] = Counter()
        """Number of merged filters of which each subscription is a piece."""
        self._present: dict[Key, str] = {}
        """Ids of the subscriptions at the leader."""
        self._unconfirmed: dict[Key, int] = {}
        """Version of each wanted subscription that the leader has not confirmed, in rising order."""
        self._removals: dict[Key, int] = {}
        """Version of each removal that waits for what was added before it."""
        self._requested: dict[int, Key] = {}
        self._requests = 0
        self.version = 0
        """Number of changes: what was added until now counts once the leader has confirmed all up to it."""
        self._queried: list[Subscription] = []
        self.units = 0.0
        """Units of work of merging what was added last."""
        self._is_ready = False
        """True if the leader's subscriptions are known on the present link."""
        self._has_lost = False
        """True if the leader lacked interest that it had confirmed, until it has all again."""

    @property
    def is_settled(self) -> bool:
        """Return whether the leader has exactly the subscriptions that are wanted."""
        return self._is_ready and self._present.keys() == self._wanted.keys()

    @property
    def confirmed(self) -> int:
        """Version up to which the leader has confirmed all changes; negative if that is unknown."""
        return next(iter(self._unconfirmed.values()), self.version + 1) - 1 if self._is_ready else -1

    @property
    def is_complete(self) -> bool:
        """Return whether the leader has all subscriptions that are wanted, and perhaps others."""
        return self._is_ready and not self._unconfirmed

    def diagnostics(self) -> dict[str, Sized]:
        """Return what is kept, by kind: what waits for the leader, and behind it what stands for local filters."""
        waiting: dict[str, Sized] = {
            "requested": self._requested,
            "unconfirmed": self._unconfirmed,
            "removals": self._removals,
        }
        return waiting | {"local": self._local, "keys": self._keys, "wanted": self._wanted, "present": self._present}

    def wanted(self) -> list[Key]:
        """Return the subjects and expressions that the leader should have."""
        return list(self._wanted)

    # Local filters ----------------------------------------------------------------------------------------------

    def add(self, subscriptions: Mapping[str, Sequence[tuple[str, Filter]]]) -> list[protocol.AgentMessage]:
        """Add the filters of subscriptions here, each with its subject; return the messages to the leader.

        Many at once cost far less than one after the other: they are merged once.
        """
        messages: list[protocol.AgentMessage] = []
        of_set: dict[Merging, dict[Hashable, Wanted]] = {}
        for subscription, entries in subscriptions.items():
            local: dict[Merging, list[Hashable]] = {}
            self._local[subscription] = local
            for place, (subject, interest) in enumerate(entries):
                merging = self._merging_of(subject)
                named = None if subject == EVERY_SUBJECT else subject
                of_set.setdefault(merging, {})[subscription, place] = named, interest
                local.setdefault(merging, []).append((subscription, place))
        self.units = 0.0
        for merging, added in of_set.items():
            messages += self._changed(self._set(merging).update(added))
            self.units += self._set(merging).units
        return messages

    def remove(self, subscription: str) -> list[protocol.AgentMessage]:
        """Remove the filters of a subscription here; return the messages to the leader."""
        messages: list[protocol.AgentMessage] = []
        for merging, ids in self._local.pop(subscription, {}).items():
            messages += self._changed(self._set(merging).update({}, ids))
        return messages

    @property
    def is_merged(self) -> bool:
        """Return whether :meth:`go_on` has nothing to do."""
        return all(each.is_settled for each in self._sets.values())

    def go_on(self) -> list[protocol.AgentMessage]:
        """Go on with changes that take several turns; return the messages to the leader."""
        return [m for each in self._sets.values() if not each.is_settled for m in self._changed(each.go_on())]

    def event_arrived(self, lineage: Sequence[str], *, is_matched: bool) -> list[protocol.AgentMessage]:
        """Count an event of the leader, and whether it matched here: adaptive merging holds its bound (SPEC S-04).

        ``lineage`` are the subject of the event, whose merging is adaptive, and its ancestors.
        """
        subject, merging = lineage[0], self._merging_of(lineage[0])
        measured = self._measured.setdefault(subject, MeasuredPrecision(merging.precision_min))
        if not measured.count(matched=is_matched):
            return []
        return self._changed(self._set(merging).set_precision((*lineage, None), measured.estimate))

    def take_lost(self) -> bool:
        """Return once that the leader lacked interest which it had confirmed, when it has all again."""
        is_over = self._has_lost and self.is_complete
        self._has_lost &= not is_over
        return is_over

    # The leader -------------------------------------------------------------------------------------------------

    def begin(self) -> list[protocol.AgentMessage]:
        """Begin on a new link, with the question for what the leader has."""
        self.end()
        return [protocol.Query(_QUERY)]

    def end(self) -> None:
        """Forget what is on its way: the link is closed."""
        self._is_ready = False
        self._requested.clear()
        self._queried.clear()

    def done(self, answer: protocol.Done) -> list[protocol.AgentMessage]:
        """Take an answer of the leader; return the messages to it."""
        if answer.request == _QUERY:
            self._queried += answer.subscriptions
            return [] if answer.more else self._compare()
        key = self._requested.pop(answer.request, None)
        if key is None:
            return []
        self._unconfirmed.pop(key, None)
        self._present[key] = answer.subscriptions[0].id
        if key not in self._wanted:
            self._removals[key] = self.version
        return self._due_removals()

    def refused(self, request: int) -> bool:
        """Take a refusal of the leader, which is temporary; return whether :meth:`retry` is needed."""
        key = self._requested.pop(request, None)
        if key is not None and key not in self._wanted:
            self._replace_unconfirmed(key)
        return key is not None

    def retry(self) -> list[protocol.AgentMessage]:
        """Return the requests that were refused, again, and the removals that have waited for them."""
        if not self._is_ready:
            return []
        asked = set(self._requested.values())
        return [*[self._subscribe(key) for key in self._unconfirmed if key not in asked], *self._due_removals()]

    def ended(self, subscription: str) -> list[protocol.AgentMessage]:
        """Take the report that the leader has ended a subscription; subscribe again if it is still wanted."""
        key = next((each for each, identity in self._present.items() if identity == subscription), None)
        if key is None:
            return []
        del self._present[key]
        self._removals.pop(key, None)
        if key not in self._wanted:
            return []
        self._unconfirmed = {key: 0} | self._unconfirmed
        return [self._subscribe(key)]

    def _compare(self) -> list[protocol.AgentMessage]:
        """Compare what the leader has with what is wanted, and become ready."""
        confirmed = [key for key in self._present if key in self._wanted]
        self._present = {(each.subject, each.expression): each.id for each in self._queried}
        self._queried.clear()
        self._is_ready = True
        self._has_lost |= any(key not in self._present for key in confirmed)
        self._unconfirmed = dict.fromkeys((key for key in self._wanted if key not in self._present), 0)
        self._removals = dict.fromkeys((key for key in self._present if key not in self._wanted), self.version)
        return [*map(self._subscribe, self._unconfirmed), *self._due_removals()]

    def _changed(self, change: InterestChange) -> list[protocol.AgentMessage]:
        if not change:
            return []
        self.version += 1
        added = [key for each in change.added for key in self._keys.setdefault(each, _keys_of(each))]
        removed = [key for each in change.removed for key in self._keys.pop(each)]
        former = {key for key in added if key in self._wanted}
        self._wanted.update(added)
        self._wanted.subtract(removed)
        for key in removed:
            if not self._wanted[key]:
                del self._wanted[key]
        new = [key for key in dict.fromkeys(added) if key in self._wanted and key not in former]
        asked = set(self._requested.values())
        messages: list[protocol.AgentMessage] = []
        for key in new:
            if self._removals.pop(key, None) is None and key not in self._present and key not in self._unconfirmed:
                self._unconfirmed[key] = self.version
                if self._is_ready and key not in asked:
                    messages.append(self._subscribe(key))
        for key in removed:
            if key in self._present and key not in self._wanted:
                self._removals[key] = self.version
            elif key not in asked and key not in self._wanted:
                self._replace_unconfirmed(key)
        return messages + self._due_removals()

    def _replace_unconfirmed(self, key: Key) -> None:
        """Forget a subscription that was not confirmed; what waits for it waits for all later ones instead.

        They include what has replaced it.
        """
        if (version := self._unconfirmed.pop(key, None)) is not None:
            self._unconfirmed = {each: min(version, later) for each, later in self._unconfirmed.items()}

    def _due_removals(self) -> list[protocol.AgentMessage]:
        """Return the requests to remove what is no longer wanted, unless what was added before is not confirmed."""
        if not self._is_ready or not self._removals:
            return []
        confirmed = self.confirmed
        due = [key for key, version in self._removals.items() if version <= confirmed]
        messages: list[protocol.AgentMessage] = []
        for key in due:
            del self._removals[key]
            self._requests += 1
            messages.append(protocol.Unsubscribe(self._requests, self._present.pop(key)))
        return messages

    def _subscribe(self, key: Key) -> protocol.AgentMessage:
        self._requests += 1
        self._requested[self._requests] = key
        return protocol.Subscribe(self._requests, *key, None, (), this_device_only=False)

    def _set(self, merging: Merging) -> InterestSet:
        if (found := self._sets.get(merging)) is None:
            found = self._sets[merging] = InterestSet(merging.mode, precision_min=merging.precision_min)
        return found


def _keys_of(interest: Interest) -> list[Key]:
    """Return the subscriptions that stand for a merged filter; a long one needs several."""
    subject = EVERY_SUBJECT if interest.subject is None else interest.subject
    return [(subject, piece.text) for piece in pieces_of(interest.conjunction, PIECE_CHARACTERS_MAX)]
