"""Verdict on what subscribers of federated domains received: each broken promise is seen, and nothing else is."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path

import msgspec
import pytest

from faults.federation_journal import (
    ACKNOWLEDGED,
    BEGAN,
    GAP,
    STRAYED,
    TOOK,
    DomainRole,
    Journal,
    PublisherRole,
    ReaderRole,
    Wanted,
    entries,
    stream_of,
)
from faults.federation_servers import Cut
from faults.federation_truth import FederationTruth
from faults.verdict import Verdict
from wanderbus.event import Event, EventId
from wanderbus.protocol import encode_event
from wanderbus.records import Acceptance, Published, encode_record

SUBJECTS = ("A", "B")
NS = 10**9


class Story:
    """Two domains with a publisher and a reader each; the reader of beta wants A and a quarter of B."""

    def __init__(self, directory: Path) -> None:
        wants = (Wanted(0, "everything"), Wanted(1, "one"))
        self.roles = [
            DomainRole(
                name,
                number,
                str(directory),
                (PublisherRole(number, "s"),),
                (ReaderRole(number, "s", wants),),
                SUBJECTS,
                1.0,
                1,
            )
            for number, name in enumerate(("alpha.test", "beta.test"))
        ]
        self.journals = [Journal(role.journal) for role in self.roles]
        self.number = 0
        self.ids: dict[tuple[int, int], EventId] = {}

    def begin(self, n: int = 0) -> None:
        for by, journal in enumerate(self.journals):
            for subject in range(len(SUBJECTS)):
                journal.note(BEGAN, by, stream_of(by, subject, len(SUBJECTS)), n)

    def publish(self, by: int, n: int, subject: int = 0, at_s: int = 1, server: str = "s1") -> None:
        self.number += 1
        stream = stream_of(by, subject, len(SUBJECTS))
        self.ids[stream, n] = id = EventId(server, 1, self.number)
        self.journals[by].note(ACKNOWLEDGED, by, stream, n, id, at_s * NS)

    def take(self, reader: int, by: int, n: int, subject: int = 0, at_s: float = 2, id: EventId | None = None) -> None:
        stream = stream_of(by, subject, len(SUBJECTS))
        own = self.ids.get((stream, n), EventId("s1", 9, 9))
        self.journals[reader].note(TOOK, reader, stream, n, id or own, int(at_s * NS))

    def both(self, by: int, n: int, at_s: float = 2) -> None:
        """Let both readers take an event."""
        self.take(0, by, n, at_s=at_s)
        self.take(1, by, n, at_s=at_s)

    def truth(self, verdict: Verdict) -> FederationTruth:
        for journal in self.journals:
            journal.flush()
        return FederationTruth(self.roles, [entries(role.journal) for role in self.roles], verdict)

    def broken(self, *, is_settled: bool = True) -> Counter[str]:
        verdict = Verdict()
        self.truth(verdict).check(is_settled=is_settled)
        return Counter({str(kind): count for kind, count in verdict.counts.items()})


@pytest.fixture
def story(tmp_path: Path) -> Story:
    made = Story(tmp_path)
    made.begin()
    for n in range(1, 6):
        made.publish(0, n)
        made.publish(0, n, subject=1)
    return made


def test_a_whole_story_breaks_nothing(story: Story) -> None:
    for n in range(1, 6):
        story.both(0, n, at_s=2 + n)
    for reader in range(2):
        for n in (1, 5):
            story.take(reader, 0, n, subject=1, at_s=10 + n)
    assert story.broken() == Counter()
    truth = story.truth(Verdict())
    assert (truth.events, truth.deliveries, truth.missing) == (10, 14, 0)


def test_missing_events_are_lost_unless_the_run_ended_in_the_middle(story: Story) -> None:
    for n in range(1, 6):
        story.take(0, 0, n, at_s=2 + n)
    assert story.broken() == Counter(lost=5 + 2 + 2)
    assert story.broken(is_settled=False) == Counter()


def test_events_from_before_the_beginning_are_not_due(tmp_path: Path) -> None:
    story = Story(tmp_path)
    story.publish(0, 1)
    story.begin(1)
    story.publish(0, 2)
    story.both(0, 2)
    assert story.broken() == Counter()


def whole(story: Story) -> None:
    for n in range(1, 6):
        story.both(0, n, at_s=2 + n)
    for reader in range(2):
        for n in (1, 5):
            story.take(reader, 0, n, subject=1, at_s=10 + n)


def test_an_event_that_comes_again_is_repeated(story: Story) -> None:
    whole(story)
    story.take(1, 0, 3, at_s=20)
    assert story.broken() == Counter(repeated=1)


def test_an_event_behind_a_later_one_is_out_of_order(story: Story) -> None:
    for n in (1, 2, 4, 3, 5):
        story.take(0, 0, n, at_s=2 + n)
        story.take(1, 0, n, at_s=[0, 3, 4, 6, 5, 7][n])
    for reader in range(2):
        for n in (1, 5):
            story.take(reader, 0, n, subject=1, at_s=10 + n)
    assert set(story.broken()) == {"out_of_order"}


def test_events_of_several_publishers_keep_the_order_of_their_server(tmp_path: Path) -> None:
    story = Story(tmp_path)
    story.roles[0] = DomainRole(
        "alpha.test", 0, str(tmp_path), (PublisherRole(0, "s"), PublisherRole(2, "s")), (), SUBJECTS, 1.0, 1
    )
    for by in (0, 1, 2):
        for subject in range(len(SUBJECTS)):
            story.journals[0].note(BEGAN, by, stream_of(by, subject, len(SUBJECTS)), 0)
    story.journals.append(story.journals[0])
    story.publish(0, 1)
    story.publish(2, 1)
    story.take(1, 2, 1, at_s=2)
    story.take(1, 0, 1, at_s=3)
    assert story.broken() == Counter(out_of_order=1)


@pytest.mark.parametrize("reader", [0, 1])
def test_an_event_under_another_id_or_of_another_domain_was_in_a_loop(story: Story, reader: int) -> None:
    whole(story)
    story.publish(0, 6)
    for each in range(2):
        story.take(each, 0, 6, at_s=20, id=EventId("s2", 1, 99) if each == reader else None)
    assert story.broken() == Counter(loops=1)
    story.journals[reader].note(STRAYED, reader, 0, 6)
    assert story.broken() == Counter(loops=2)


def test_events_that_nobody_published_and_gaps_are_seen(story: Story) -> None:
    whole(story)
    story.take(1, 0, 9, at_s=30)
    story.journals[0].note(GAP, 0, 0, 7)
    assert story.broken() == Counter(integrity_errors=1, lost=7)


def test_the_time_until_events_flow_again_and_until_all_have_come(story: Story) -> None:
    cut = Cut(0, 1, 3 * NS, 6 * NS)
    story.publish(0, 6, at_s=4)
    story.publish(0, 7, at_s=7)
    story.take(1, 0, 6, at_s=8)
    story.take(1, 0, 7, at_s=9)
    truth = story.truth(Verdict())
    assert (truth.healed_s(cut), truth.caught_up_s(cut)) == (2.0, 2.0)
    assert truth.healed_s(Cut(1, 0, 3 * NS, 6 * NS)) == math.inf


def record(number: int, user: str, by: int, n: int) -> bytes:
    event = Event("A", {"by": by, "n": n, "k": n % 4})
    acceptance = Acceptance(EventId("s1", 1, number), msgspec.Raw(encode_event(event)), user, "d", 1, number)
    return encode_record(Published(at_us=1, acceptance=acceptance))


@pytest.mark.parametrize(
    ("records", "broken"),
    [
        ([("sip:alpha.test@domains.beta.test", 0, 1), ("sip:u@beta.test", 1, 1)], {}),
        ([("sip:gamma.test@domains.beta.test", 0, 1)], {"loops": 1}),
        ([("sip:alpha.test@domains.beta.test", 1, 1)], {"loops": 1}),
        ([("sip:alpha.test@domains.beta.test", 0, 1)] * 2, {"repeated": 1}),
    ],
)
def test_the_log_shows_from_which_domain_an_event_came(
    story: Story, monkeypatch: pytest.MonkeyPatch, records: list[tuple[str, int, int]], broken: dict[str, int]
) -> None:
    payloads = [record(number, *each) for number, each in enumerate(records)]
    monkeypatch.setattr("faults.federation_truth._payloads", lambda log: payloads)
    verdict = Verdict()
    crossed = story.truth(verdict).check_logs({"beta.test": [Path("log")]})
    assert dict(verdict.counts) == broken
    assert crossed == 1


def test_a_journal_without_its_end_has_its_complete_entries(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    assert len(entries(path)) == 0
    journal = Journal(path)
    journal.note(TOOK, 3, 7, 2**31, EventId("s2", 2**40, 2**50), 5)
    journal.note(TOOK, 3, 7, 2)
    journal.flush()
    path.write_bytes(path.read_bytes()[:-1])
    (entry,) = entries(path)
    assert [int(entry[name]) for name in entry.dtype.names] == [TOOK, 2, 3, 7, 2**31, 5, 2**40, 2**50]
