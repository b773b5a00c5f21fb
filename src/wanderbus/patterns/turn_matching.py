"""Matching of a pattern in turns, each of them bounded; together they find what one pass finds (SPEC T-07, U-02)."""

from __future__ import annotations

from collections import deque
from heapq import heappop, heappush

from wanderbus.patterns.automaton import Cost
from wanderbus.patterns.costs import WAITING
from wanderbus.patterns.matcher import Ended, PatternMatcher
from wanderbus.patterns.state import NEVER_US, Complete, KeyState, PatternState, in_order
from wanderbus.patterns.turns import Turn


class TurnMatching:
    """One turn of the matching of a state.

    A step is one event of one key, or the end of the partial matches of a key whose time ends at one instant. Steps are
    in order of time and key. The matches that an instant completes are taken after its last step and before the next
    instant, so that detections are in one order, whatever the turns.
    """

    def __init__(self, state: PatternState, matcher: PatternMatcher, turn: Turn, detection: Cost) -> None:
        """``detection`` is the work of a detection, which is spent when its match is taken."""
        self._state = state
        self._matcher = matcher
        self._turn = turn
        self._detection = detection
        self._places: dict[str, list[tuple[int, int]]] = {}
        """Places of the waiting events of each key that was looked at, the latest first."""

    def run(self) -> list[Complete]:
        """Do the turn; return the matches that it takes, in order."""
        state, found = self._state, list[Complete]()
        while self._is_due(state.watermark_us) or state.complete:
            if state.complete and not self._is_due(state.complete[0].at_us + 1):
                if not self._take(found):
                    return found
            elif self._turn.may_step(state.steps):
                self._match_instant(state.timers[0][0])
            else:
                return found
        state.steps = state.taken = 0
        return found

    def _take(self, found: list[Complete]) -> bool:
        """Take complete matches; return whether all of them were taken."""
        state, turn = self._state, self._turn
        while state.complete and turn.may_detect(state.taken):
            match = state.complete.popleft()
            found.append(match)
            state.taken += 1
            state.kept -= match.node.units
            turn.detect(self._detection.units(match.node.units))
        return not state.complete

    def _is_due(self, before_us: int) -> bool:
        """Return whether a key is due before a time; forget the timers of keys whose time has changed."""
        timers, keys = self._state.timers, self._state.keys
        while timers and ((key := keys.get(timers[0][1])) is None or key.due_us != timers[0][0]):
            heappop(timers)
        return bool(timers) and timers[0][0] < before_us

    def _match_instant(self, at_us: int) -> None:
        """Do the steps of one instant, as far as the turn allows; sort the matches if that was all of it."""
        state = self._state
        may_step = True
        while may_step:
            _, name = heappop(state.timers)
            key = state.keys[name]
            for time_us, node in self._step(name, key, at_us):
                state.complete.append(Complete(time_us, node, name))
                state.kept += node.units
            state.kept += key.count()
            if key.due_us == NEVER_US:
                del state.keys[name]
            else:
                heappush(state.timers, (key.due_us, name))
            if not self._is_due(at_us + 1):
                state.complete = deque(sorted(state.complete, key=in_order))
                return
            may_step = self._turn.may_step(state.steps)

    def _step(self, name: str, key: KeyState, at_us: int) -> list[Ended]:
        """Do the next step of a key that is due at ``at_us``; return the matches that it completes."""
        places = self._places.get(name)
        if places is None:
            places = self._places[name] = sorted(key.waiting, reverse=True)
            self._turn.spend(WAITING * len(places))
        self._state.steps += 1
        if places and places[-1][0] == at_us:
            ended = self._matcher.step(key, places.pop(), self._state, self._turn)
        else:
            ended = self._matcher.end(key, self._turn)
        self._matcher.settle(key, places[-1][0] if places else NEVER_US)
        return ended
