"""Answers from past events for a command: without Spark if the events are few, with it otherwise (decision 0137)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from wanderbus.cli.pipeline.past_events import (
    EventsPlace,
    PastSelection,
    require_one_lake,
    spark_history,
    wanted_events,
)
from wanderbus.cli.pipeline.progress_lines import PROGRESS_EACH_S, ProgressLines
from wanderbus.cli.pipeline.spark_options import needing_packages
from wanderbus.errors import ConfigurationError
from wanderbus.runtime.log.log_reader import oldest_record
from wanderbus.subscription import EVERY_SUBJECT, Subscription

if TYPE_CHECKING:
    import pyarrow as pa

    from wanderbus.pipeline.history.answers import PastEvents
    from wanderbus.pipeline.history.domain_lakes import DomainLake
    from wanderbus.pipeline.history.local_batches import LocalBatches

Answer = TypeVar("Answer")

WithSpark = Annotated[
    bool | None,
    typer.Option(
        "--spark/--no-spark",
        help="Read the events with Spark, or without; unless given, with it above 16 MiB of a lake or 64 MiB of a log.",
        show_default=False,
    ),
]

WithSparkForOne = Annotated[
    bool | None,
    typer.Option(
        "--spark/--no-spark", help="Read the event with Spark, or without; unless given, without.", show_default=False
    ),
]

_PURPOSE = "history"


class PastAnswers:
    """Events that are meant, and where to ask for answers."""

    def __init__(self, wanted: PastSelection, history: PastEvents, larger: Callable[[], PastEvents] | None) -> None:
        self._lakes = wanted.lakes
        self._log = wanted.log
        self._history = history
        self._larger = larger
        self.children = wanted.children

    def ask(self, question: Callable[[PastEvents], Answer]) -> Answer:
        """Return the answer; Spark gives it if it is too large for this process, and may be asked."""
        from wanderbus.pipeline.history.answers import AnswerTooLarge

        try:
            return question(self._history)
        except AnswerTooLarge:
            if self._larger is None:
                raise
        self._history, self._larger = self._larger(), None
        return question(self._history)

    def lost(self) -> int:
        """Return the number of records that a log has no more; 0 for a lake."""
        return 0 if self._log is None else oldest_record(self._log)

    def subscriptions(self, wanted: Subscription) -> list[Subscription]:
        """Return a subscription, and the same one to each subject below its own."""
        from wanderbus.pipeline.subject_children import with_children

        return with_children([wanted], self.children)

    def shown(self, offset: int, user: str | None = None) -> str:
        """Return the offset of an event in words, in several lakes after the domain that published it, by its user."""
        lake, own = self._place(offset)
        if lake is None:
            return str(offset)
        if len(self._lakes) == 1:
            return lake.logs.shown(own)
        domain = f"{lake.publishing_domain(user)} " if user is not None else ""
        return f"{domain}{lake.name}/{lake.logs.shown(own)}"

    def members(self, offset: int, user: str | None = None) -> dict[str, str | int]:
        """Return the offset of an event as members of a JSON object: that in its log, and that in a lake of several.

        In several lakes they name the lake, and with the ``user`` that published it also the domain.
        """
        lake, own = self._place(offset)
        if lake is None:
            return {"offset": offset}
        domain = {"domain": lake.publishing_domain(user)} if user is not None else {}
        whose: dict[str, str | int] = {**domain, "lake": lake.name} if len(self._lakes) > 1 else {}
        if len(lake.logs.identities) == 1:
            return {**whose, "offset": own}
        server, in_log = lake.logs.found(own)
        return {**whose, "server": server, "offset": in_log, "lake_offset": own}

    def _place(self, offset: int) -> tuple[DomainLake | None, int]:
        """Return the lake of an event, and its offset there."""
        from wanderbus.pipeline.lake_offsets import OFFSETS_A_LAKE

        if not self._lakes:
            return None, offset
        place, own = divmod(offset, OFFSETS_A_LAKE)
        return self._lakes[place], own


@contextmanager
def past_answers(
    place: EventsPlace, with_spark: bool | None, subject: str = EVERY_SUBJECT, *, has_records: bool = False
) -> Iterator[PastAnswers]:
    """Give the events that are meant, to be asked with Spark or without; ``has_records`` if records are needed too."""
    with needing_packages(_PURPOSE):
        wanted = wanted_events(place, subject)
    if has_records:
        require_one_lake(wanted.lakes)
    with _answers(wanted, place, with_spark, lambda batches: batches.is_small(has_records=has_records)) as past:
        yield past


@contextmanager
def past_answers_at(place: EventsPlace, with_spark: bool | None, offset: str) -> Iterator[tuple[PastAnswers, int]]:
    """Give the event whose offset is shown as ``offset``, and its number; Spark reads it only if it is asked to.

    The bounds of files and of their parts leave little to read, however large the lake or the log is.
    """
    with needing_packages(_PURPOSE):
        wanted = wanted_events(place)
    at = _offset(wanted.lakes, offset)
    one = wanted._replace(selection=wanted.selection._replace(from_offset=at, to_offset=at + 1))
    with _answers(one, place, with_spark, lambda _: True, every_row=True) as past:
        yield past, at


def _offset(lakes: Sequence[DomainLake], text: str) -> int:
    """Return the offset that is shown as ``text``; an error in one line if it is none."""
    if len(lakes) > 1:
        name, _, own = text.rpartition("/")
        for lake in lakes:
            if lake.name == name:
                return lake.base + lake.logs.lake_offset(own)
        names = ", ".join(lake.name for lake in lakes)
        raise ConfigurationError(f"--offset: {text!r} names none of the lakes {names}; give it as {lakes[0].name}/7")
    if lakes:
        return lakes[0].logs.lake_offset(text)
    if not (text.isascii() and text.isdigit()):
        raise ConfigurationError(f"--offset: invalid offset {text!r} (expected a number)")
    return int(text)


@contextmanager
def _answers(
    wanted: PastSelection,
    place: EventsPlace,
    with_spark: bool | None,
    are_few: Callable[[LocalBatches], bool],
    *,
    every_row: bool = False,
) -> Iterator[PastAnswers]:
    """Give events, to be asked with Spark or without; it is not asked for if they ``are_few``, unless it has to be.

    With ``every_row`` an event of several lakes has all its rows.
    """
    is_of_cluster = place.spark.master is not None or place.spark.environment is not None
    if is_of_cluster and with_spark is False:
        raise ConfigurationError("--no-spark: there is no cluster without Spark; give --master without it")
    with ExitStack() as stack:

        def spark() -> PastEvents:
            return stack.enter_context(spark_history(wanted, _PURPOSE, place.spark, every_row=every_row))

        local = None
        if not (with_spark or is_of_cluster):
            local = _local_history(wanted, with_spark, are_few, every_row=every_row)
        if local is None:
            yield PastAnswers(wanted, spark(), None)
        else:
            yield PastAnswers(wanted, local, None if with_spark is False else spark)


def _local_history(
    wanted: PastSelection, with_spark: bool | None, are_few: Callable[[LocalBatches], bool], *, every_row: bool
) -> PastEvents | None:
    """Return the events for this process; None unless they ``are_few`` or Spark is unwanted."""
    from wanderbus.pipeline.history.lakes_batches import LakesBatches
    from wanderbus.pipeline.history.local_batches import LakeBatches, LogBatches
    from wanderbus.pipeline.history.local_history import LocalHistory

    if wanted.log is not None:
        batches: LocalBatches = LogBatches(wanted.log)
    elif len(wanted.lakes) > 1:
        batches = LakesBatches(wanted.lakes, wanted.selection, every_row=every_row)
    else:
        batches = LakeBatches(wanted.lakes[0].path, wanted.selection)
    if with_spark is None and not are_few(batches):
        return None
    return LocalHistory(batches, wanted.selection, _counted, wanted.order)


def _counted(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Pass batches on, and print how many events have been read, every few seconds."""
    lines, events = ProgressLines(silent_s=PROGRESS_EACH_S), 0
    for batch in batches:
        yield batch
        events += len(batch)
        lines.show(f"{events} events read")
