"""Epochs of numbered streams: which numbers two copies of one stream have in common (decision 0108).

A server that starts begins a new epoch, and the numbers of its streams rise on. So the number of an item alone does not
identify it: if the server's data was replaced by an earlier copy, the same number is given again. Epoch and number
together do. A list of the epochs, each with its first number, says where the two copies part; Kafka finds the point
of truncation in the same way (KIP-101).

An epoch list is a sequence of pairs ``(epoch, first number)``; both rise. At most :data:`EPOCHS_MAX` are kept, so the
first number of a list above the beginning of the stream means that earlier epochs were forgotten.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias

import msgspec

from wanderbus.event import Number, Position

EARLIER_MAX: Final = 64
"""Earlier leaders of a channel group that are known; those before them are forgotten."""


class Leadership(msgspec.Struct, frozen=True, array_like=True):
    """The server that leads a channel group under ``epoch``, or led it ``until_us``, in µs since the Unix epoch.

    With 0 it leads. The time is that of the server that has written the fence.
    """

    epoch: Number
    server: str
    until_us: int = 0


Epochs: TypeAlias = Sequence[tuple[int, int]]

EPOCHS_MAX: Final = 32
"""Most epochs of one stream that are kept; a position of an earlier one is trusted if its number is below them all."""


def epoch_of(epochs: Epochs, number: int) -> int:
    """Return the epoch in which ``number`` was given; the first known one if it is forgotten."""
    for epoch, first in reversed(epochs):
        if first <= number:
            return epoch
    return epochs[0][0]


def in_common(epochs: Epochs, epoch: int, number: int, begin: int = 1) -> int:
    """Return the highest number up to ``number`` that this stream shares with the one in which ``epoch`` gave it.

    ``begin`` is the first number of a stream. The result is below it if they have nothing in common.
    """
    if is_foreign(epochs, epoch, number, begin):
        return begin - 1
    following = next((first for each, first in epochs if each > epoch), None)
    if following is not None:
        return min(number, following - 1)
    return number if epochs[-1][0] == epoch else begin - 1


def is_foreign(epochs: Epochs, epoch: int, number: int, begin: int = 1) -> bool:
    """Return whether ``epoch`` and ``number`` are of another stream for certain, as of the session at another server.

    Two copies of one stream part before the first number of an epoch that only one of them knows. So no copy of this
    stream has given, in an epoch that is unknown here, a number below the first of our next epoch.
    """
    following = next((first for each, first in epochs if each > epoch), None)
    return following is not None and number < following and not is_known(epochs, epoch, begin)


def is_known(epochs: Epochs, epoch: int, begin: int = 1) -> bool:
    """Return whether ``epoch`` is one of this stream's, or older than all that are kept."""
    return any(each == epoch for each, _ in epochs) or (epoch < epochs[0][0] and epochs[0][1] > begin)


def has_position(epochs: Epochs, position: Position, end: int) -> bool:
    """Return whether a position was given in this stream, whose next number is ``end``."""
    epoch, number = position.epoch, position.number
    return is_known(epochs, epoch) and in_common(epochs, epoch, number) == number < end


def with_epoch(epochs: Epochs, epoch: int, first: int) -> tuple[tuple[int, int], ...]:
    """Return the list with another epoch; one that gave no number is replaced by it."""
    kept = [each for each in epochs if each[1] < first]
    return (*kept[1 - EPOCHS_MAX :], (epoch, first))
