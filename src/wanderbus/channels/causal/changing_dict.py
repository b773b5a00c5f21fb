"""Dictionary that knows which of its keys have changed, for a store that saves only these."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")


class ChangingDict(OrderedDict[Key, Value]):
    """Values in the order in which their keys were added; ``changed`` are the keys that were set or removed."""

    def __init__(self) -> None:
        super().__init__()
        self.changed: dict[Key, None] = {}
        """Keys in the order of their change; whoever saves them clears it."""

    def __setitem__(self, key: Key, value: Value) -> None:
        super().__setitem__(key, value)
        self.changed[key] = None

    def __delitem__(self, key: Key) -> None:
        super().__delitem__(key)
        self.changed[key] = None

    def load(self, items: Iterable[tuple[Key, Value]]) -> None:
        """Take over saved items, in this order."""
        for key, value in items:
            super().__setitem__(key, value)
