"""The verdict of ``./do domainkill`` complains when it should, and by the right name."""

from __future__ import annotations

from pathlib import Path

import pytest

from faults.domain_journal import AgentRole, Entry, Journal, Name, Reader, entries
from faults.domain_truth import Truth
from faults.verdict import Verdict

ROLES = [
    AgentRole(0, "s", (Reader("Free", "everything"), Reader("Line", "everything"))),
    AgentRole(1, "s", (Reader("Free", "everything"), Reader("Line", "everything"))),
    AgentRole(2, "s", (Reader("Free", "everything"), Reader("Line", "one"))),
    AgentRole(3, "s", (Reader("Free", "one"),)),
]
LETTERS = {"s": "sent", "a": "acknowledged", "r": "refused", "t": "took", "g": "gap"}
LETTERS |= {"b": "began", "h": "heard", "e": "ended", "o": "acknowledged"}


def journal(agent: int, text: str) -> list[Entry]:
    """Return the entries of words such as ``s:F01``: a letter of the kind, then subject, publisher and number.

    The number of the id may follow, behind an ``x`` if the channel has the next leader by then.
    """
    found = []
    for at_ns, word in enumerate(text.split()):
        kind, _, event = word.partition(":")
        subject = {"F": "Free", "L": "Line", "": "-"}[event[:1]]
        by, n = (int(event[1]), int(event[2])) if event[1:] else (0, 0)
        id_number = event[3:] or f"{by + 1}{n}"
        origin = "leader" if subject == "Line" else f"s{by}"
        if id_number.startswith("x"):
            origin, id_number = "next", id_number[1:]
        words = {"b": "everything", "o": ""}.get(kind, f"{origin}-1-{id_number}")
        found.append(Entry(LETTERS[kind], agent, Name(by, n), subject, words, at_ns))  # type: ignore[arg-type]
    return found


def verdict_of(*journals: str) -> tuple[Verdict, Truth]:
    verdict = Verdict()
    written = [journal(agent, text) for agent, text in enumerate(journals)]
    truth = Truth(ROLES[: len(written)], written, frozenset({"Free"}), verdict)
    truth.check()
    return verdict, truth


ASKED = "s:F01 a:F01 t:F01 t:F11"
REPLIED = "t:F01 s:F11 a:F11 t:F11"


def test_everything_in_order_is_good() -> None:
    verdict, truth = verdict_of(ASKED, REPLIED, "t:F01 t:F11")
    assert verdict.good, verdict.words
    assert (truth.deliveries, len(truth.acknowledged)) == (6, 2)
    assert truth.causal_pairs == 3  # each agent received the reply after the question


@pytest.mark.parametrize(
    ("journals", "broken"),
    [
        ((ASKED, REPLIED, "t:F11 t:F01"), {"causal_violations": 1}),
        ((ASKED, REPLIED, "t:F01"), {"lost": 1}),
        ((ASKED, REPLIED, "t:F11"), {"lost": 1}),
        ((ASKED, REPLIED, "t:F01 t:F11 t:F01"), {"repeated": 1}),
        ((ASKED, REPLIED, "t:F01 t:F11 g:"), {"lost": 1}),
        (("s:F01 r:F01", "", ""), {}),
        (("s:F01 r:F01 t:F01", "t:F01", "t:F01"), {"integrity_errors": 1}),
        (("s:F01", "", ""), {"integrity_errors": 1}),
        (("s:F01 t:F01", "", ""), {"lost": 2, "integrity_errors": 1}),
        (("t:F01", "t:F01", "t:F01"), {"integrity_errors": 6}),
        # The second event of a publisher before its first: an order of its own, and a cause too.
        (
            ("s:F01 a:F01 s:F02 a:F02 t:F01 t:F02", "t:F01 t:F02", "t:F02 t:F01"),
            {"out_of_order": 1, "causal_violations": 1},
        ),
        # Two publishers in an ordered channel: all have the order of the ids.
        (("s:L02 a:L027 t:L027 t:L118", "s:L11 a:L118 t:L027 t:L118", "t:L118"), {}),
        (("s:L02 a:L027 t:L118 t:L027", "s:L11 a:L118 t:L027 t:L118", "t:L118"), {"out_of_order": 2}),
        # The numbers of the next leader say nothing of the former one's, but all have one order.
        (("s:L02 a:L028 t:L028 t:L11x7", "s:L11 a:L11x7 t:L028 t:L11x7", "t:L11x7"), {}),
        (("s:L02 a:L028 t:L028 t:L11x7", "s:L11 a:L11x7 t:L11x7 t:L028", "t:L11x7"), {"out_of_order": 1}),
        # An event that is stored in an outbox has no id yet, and is due.
        (("s:L01 o:L01 t:L01", "t:L01", "t:L01"), {}),
        (("s:L01 o:L01 t:L01", "", "t:L01"), {"lost": 1}),
        (("s:L01 o:L01 t:L018", "t:L017", "t:L018"), {"integrity_errors": 1}),
        (("s:L01 a:L017 t:L018", "t:L017", "t:L017"), {"integrity_errors": 1}),
        # A filter: only numbers with the rest 1 of 4 are due.
        (("s:L02 a:L02 t:L02", "t:L02", "t:L02"), {"integrity_errors": 1}),
    ],
)
def test_each_breach_has_its_name(journals: tuple[str, str, str], broken: dict[str, int]) -> None:
    verdict, _ = verdict_of(*journals)
    assert verdict.counts == broken, verdict.words


def test_causes_reach_across_agents_and_subjects_but_not_through_ordered_channels() -> None:
    """Agent 2 replies to the reply, which is received before the first event: that is a violation at agent 0 alone."""
    first, reply = "s:F11 a:F11 t:F11", "t:F11 s:F21 a:F21"
    verdict, _ = verdict_of("t:F21 t:F11", f"{first} t:F21", f"{reply} t:F21")
    assert verdict.counts == {"causal_violations": 1}
    by_leader = "s:L11 a:L11 t:L11"
    verdict, _ = verdict_of("t:F21 t:L11", f"{by_leader} t:F21", "t:L11 s:F21 a:F21 t:F21")
    assert verdict.good, verdict.words


def test_causes_that_are_filtered_away_count_for_what_they_have_caused() -> None:
    """Agent 3 does not receive the second event, by which the third one follows the first."""
    journals = "s:F01 a:F01 t:F01 t:F12 t:F21", "t:F01 s:F12 a:F12 t:F12 t:F21", "t:F01 t:F12 s:F21 a:F21 t:F21"
    assert verdict_of(*journals, "t:F01 t:F21")[0].good
    assert verdict_of(*journals, "t:F21 t:F01")[0].counts == {"causal_violations": 1}
    # The publisher of the third one has not received the first one, but an effect of it.
    journals = *journals[:2], "t:F12 s:F21 a:F21 t:F21 t:F01"
    assert verdict_of(*journals, "t:F21 t:F01")[0].counts == {"causal_violations": 3}


def test_missing_events_are_not_lost_if_the_run_ended_in_the_middle() -> None:
    verdict = Verdict()
    texts = ("s:F01 a:F01 s:F02 t:F01", "", "t:F01 t:F01")
    journals = [journal(agent, text) for agent, text in enumerate(texts)]
    Truth(ROLES[:3], journals, frozenset({"Free"}), verdict).check(is_settled=False)
    assert verdict.counts == {"repeated": 1}, verdict.words


@pytest.mark.parametrize(
    ("visitor", "broken"),
    [
        # The time of an entry is its place: the subscription begins with the second event or before it.
        ("b:F h:F11 h:F12", {}),
        ("b:F h:F12", {"lost": 1}),
        ("t:F11 t:F12 b:F h:F12", {}),
        ("b:F h:F12 h:F11", {"out_of_order": 1, "causal_violations": 1}),
        ("b:F h:F11 h:F12 h:F12", {"repeated": 1}),
        ("b:F e:", {}),
        ("b:F h:F11 e: b:F h:F11 h:F12 e:", {}),
        ("b:L h:F11", {"integrity_errors": 1}),
    ],
)
def test_a_subscription_is_due_what_is_sent_after_it_began(visitor: str, broken: dict[str, int]) -> None:
    role = AgentRole(0, "s", ())
    journals = [journal(0, visitor.replace("t:F11 t:F12", "e: e:")), journal(1, "e: s:F11 a:F11 s:F12 a:F12")]
    verdict = Verdict()
    truth = Truth([role, AgentRole(1, "s", ())], journals, frozenset({"Free"}), verdict)
    truth.check()
    assert verdict.counts == broken, verdict.words
    assert truth.missing == broken.get("lost", 0)
    assert truth.subscriptions == visitor.count("b:")


def test_causes_of_a_subscription_that_comes_and_goes_count() -> None:
    roles = [AgentRole(0, "s", ()), AgentRole(1, "s", ()), AgentRole(2, "s", ()), ROLES[3]]
    texts = ("", "s:F11 a:F11", "b:F h:F11 e: s:F21 a:F21", "t:F21 t:F11")
    verdict = Verdict()
    Truth(roles, [journal(agent, text) for agent, text in enumerate(texts)], frozenset({"Free"}), verdict).check()
    assert verdict.counts == {"causal_violations": 1}, verdict.words


def test_a_journal_is_read_as_it_was_written_without_an_incomplete_line(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    assert list(entries(path)) == []
    written = [
        Entry("sent", 1, Name(1, 2), "Free", "", 1),
        Entry("refused", 1, Name(1, 2), "Free", "the disk is full, try again", 2),
        Entry("moved", 2, Name(0, 0), "", "10.0.0.1:5", 3),
        Entry("acknowledged", 3, Name(3, 1), "Free", "", 4),
    ]
    kept = Journal(path)
    for entry in written:
        kept.note(entry)
    with path.open("a") as file:
        file.write("took 1 1")
    assert list(entries(path)) == written
