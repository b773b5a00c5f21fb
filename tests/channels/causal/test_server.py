"""Causal order at a server: holding, asking, gaps, cursors, restarts, joining and leaving (SPEC K-06)."""

from __future__ import annotations

from collections import deque
from typing import Any, TypeVar

from wanderbus.channels.causal import rows
from wanderbus.channels.causal.header import Header, Origin
from wanderbus.channels.causal.interface import (
    Acked,
    AnyCausalRecord,
    Carried,
    CausalLimits,
    CausalLinkClosed,
    CausalLinkOpened,
    Deliver,
    EventsDropped,
    ExportPast,
    GapFound,
    ImportPast,
    LogRewound,
    MessageCame,
    PastExported,
    PastReached,
    PublishTo,
    RemoveServer,
    SendToPeer,
    WriteRecord,
)
from wanderbus.channels.causal.server import CausalServer
from wanderbus.channels.causal.state import CausalState, restored
from wanderbus.machine import Input, Output, TimerFired

Kind = TypeVar("Kind")


class Domain:
    """Servers in memory; messages of a stopped way wait until it is freed."""

    def __init__(self, size: int, limits: CausalLimits | None = None) -> None:
        self.limits = limits or CausalLimits()
        self.logs: dict[int, list[AnyCausalRecord]] = {}
        self.servers: dict[int, CausalServer] = {}
        self.outputs: dict[int, list[Output]] = {}
        self.sent: deque[tuple[int, SendToPeer]] = deque()
        self.stopped: set[tuple[int, int]] = set()
        self.now = 0.0
        for server in range(1, size + 1):
            self.start((server, 1))

    def start(self, origin: Origin, *, connect: bool = True) -> None:
        """Start a server from its log, and open its links."""
        server = origin[0]
        self.logs.setdefault(server, [])
        self.outputs.setdefault(server, [])
        self.servers[server] = CausalServer(restored(origin, self.logs[server], self.limits))
        for other in list(self.servers) if connect else ():
            if other != server:
                self.connect(server, other)

    def connect(self, one: int, other: int) -> None:
        """Replace the link between two servers."""
        self.sent = deque(each for each in self.sent if {each[0], each[1].server} != {one, other})
        for server, peer in ((one, other), (other, one)):
            self.feed(server, CausalLinkClosed(peer))
            self.feed(server, CausalLinkOpened(peer))
        self.run()

    def feed(self, server: int, given: Input) -> None:
        """Feed an input to a server; its records are durable at once."""
        for output in self.servers[server].step([given], self.now):
            if isinstance(output, WriteRecord):
                self.logs[server].append(output.record)
            elif isinstance(output, SendToPeer):
                self.sent.append((server, output))
            else:
                self.outputs[server].append(output)

    def run(self) -> None:
        """Deliver all messages but those of the stopped ways."""
        stopped: deque[tuple[int, SendToPeer]] = deque()
        while self.sent:
            source, output = self.sent.popleft()
            if (source, output.server) in self.stopped:
                stopped.append((source, output))
            else:
                self.feed(output.server, MessageCame(source, output.message))
        self.sent = stopped

    def publish(self, server: int, payload: str, *servers: int) -> None:
        """Publish an event, and let the messages arrive."""
        self.feed(server, PublishTo(frozenset(servers), payload.encode()))
        self.run()

    def free(self, source: int, destination: int) -> None:
        """Let the messages of a stopped way arrive."""
        self.stopped.discard((source, destination))
        self.run()

    def pass_time(self, seconds: float) -> None:
        """Let time pass, a second at a time."""
        for _ in range(int(seconds)):
            self.now += 1.0
            for server in list(self.servers):
                self.feed(server, TimerFired("causes"))
            self.run()

    def delivered(self, server: int) -> list[str]:
        """Return the payloads that a server delivered."""
        return [each.payload.decode() for each in self.of(server, Deliver)]

    def of(self, server: int, kind: type[Kind]) -> list[Kind]:
        """Return the outputs of one kind."""
        return [each for each in self.outputs[server] if isinstance(each, kind)]


def held_back(limits: CausalLimits | None = None) -> Domain:
    """Server 1 sends a question to 2 and 3, 2 sends its answer to 3, and 3 has only the answer."""
    domain = Domain(3, limits)
    domain.stopped.add((1, 3))
    domain.publish(1, "question", 2, 3)
    domain.publish(2, "answer", 3)
    assert domain.delivered(3) == []
    return domain


def test_a_reply_waits_for_its_cause() -> None:
    domain = held_back()
    domain.free(1, 3)
    assert domain.delivered(3) == ["question", "answer"]


def test_a_reply_waits_for_no_event_that_was_filtered_away() -> None:
    domain = Domain(3)
    domain.stopped.add((1, 3))
    domain.publish(1, "question", 2)
    domain.publish(2, "answer", 3)
    assert domain.delivered(3) == ["answer"]


def test_a_cause_is_known_through_servers_that_do_not_get_it() -> None:
    """1 sends a to 4, then b to 2; 2 sends c to 3; 3 sends d to 4, which must wait for a."""
    domain = Domain(4)
    domain.stopped.add((1, 4))
    domain.publish(1, "a", 4)
    domain.publish(1, "b", 2)
    domain.publish(2, "c", 3)
    domain.publish(3, "d", 4)
    assert domain.delivered(4) == []
    domain.free(1, 4)
    assert domain.delivered(4) == ["a", "d"]


def test_a_change_is_told_on_each_link_once() -> None:
    domain = Domain(4)
    domain.stopped |= {(1, 4), (4, 1)}
    domain.publish(1, "a", 2, 4)
    headers: list[Header] = []
    for number in range(3):
        domain.feed(2, PublishTo(frozenset({3}), b"%d" % number))
        (output,) = (each.message for at, each in domain.sent if at == 2 and isinstance(each.message, Carried))
        headers.append(domain.servers[3].outgoing.link(2).decoder.decode(output.header))
        domain.run()
    assert [entry.servers for entry in headers[0].entries] == [1 << 4]
    assert [header.entries for header in headers[1:]] == [(), ()]


def test_entries_of_delivered_events_are_dropped() -> None:
    domain = Domain(3)
    for number in range(50):
        domain.publish(1, str(number), 2, 3)
        domain.publish(2, str(number), 1, 3)
    assert all(len(server.knowledge.entries()) <= 3 for server in domain.servers.values())
    assert all(not server.outgoing.retained for server in domain.servers.values())


def test_a_missing_cause_is_asked_for_from_the_sender_of_the_effect() -> None:
    domain = held_back()
    domain.pass_time(2)
    assert domain.delivered(3) == ["question", "answer"]
    domain.free(1, 3)
    assert domain.delivered(3) == ["question", "answer"], "the other copy is recognised"


def test_kept_events_are_bounded() -> None:
    domain = Domain(3, CausalLimits(kept_events_max=3))
    domain.stopped |= {(1, 3), (3, 1)}
    for number in range(10):
        domain.publish(1, str(number), 2, 3)
    assert len(domain.servers[2].state.kept) == 3
    domain.free(3, 1)
    domain.free(1, 3)
    for number in range(2):
        domain.publish(1, str(number), 2, 3)
    assert len(domain.servers[2].state.kept) <= 1, "what everybody has is not kept"


def test_a_cause_on_a_lost_disk_becomes_a_gap() -> None:
    domain = held_back(CausalLimits(kept_events_max=0))
    domain.pass_time(50)
    assert domain.delivered(3) == [], "its server may come back"
    domain.stopped.clear()
    domain.sent.clear()
    domain.logs[1] = []
    domain.start((1, 2))
    domain.pass_time(3)
    assert domain.delivered(3) == ["answer"]
    assert GapFound((1, 1), 0, 1) in domain.of(3, GapFound)
    domain.publish(1, "again", 3)
    assert domain.delivered(3) == ["answer", "again"]


def test_patience_ends() -> None:
    domain = held_back(CausalLimits(kept_events_max=0, patience_s=10.0))
    domain.pass_time(9)
    assert domain.delivered(3) == []
    domain.pass_time(3)
    assert domain.delivered(3) == ["answer"]
    assert domain.of(3, GapFound) == [GapFound((1, 1), 0, 1)]
    domain.free(1, 3)
    assert domain.delivered(3) == ["answer"], "what became a gap stays one"


def test_a_link_resumes_behind_the_cursor() -> None:
    domain = Domain(2)
    domain.publish(1, "a", 2)
    domain.stopped |= {(1, 2)}
    domain.publish(1, "b", 2)
    domain.publish(1, "c", 2)
    domain.stopped.clear()
    domain.connect(1, 2)
    assert domain.delivered(2) == ["a", "b", "c"]


def test_the_window_bounds_what_is_on_its_way() -> None:
    domain = Domain(2, CausalLimits(window_events=2))
    domain.stopped |= {(1, 2)}
    for number in range(5):
        domain.publish(1, str(number), 2)
    assert sum(isinstance(each.message, Carried) for _, each in domain.sent) == 2
    domain.free(1, 2)
    assert domain.delivered(2) == list("01234")


def test_beyond_the_retention_there_is_a_gap() -> None:
    domain = Domain(2, CausalLimits(retained_events_max=2))
    domain.feed(1, CausalLinkClosed(2))
    domain.feed(2, CausalLinkClosed(1))
    domain.publish(1, "first", 2)
    domain.connect(1, 2)
    domain.feed(1, CausalLinkClosed(2))
    for number in range(5):
        domain.publish(1, str(number), 2)
    assert len(domain.servers[1].outgoing.retained) == 2
    domain.connect(1, 2)
    assert domain.delivered(2) == ["first", "3", "4"]
    assert domain.of(2, GapFound) == [GapFound((1, 1), 1, 4)]


def test_a_restart_keeps_the_matrix_and_the_cursors() -> None:
    """Server 2 delivers the question, restarts, and answers: its answer still waits for the question."""
    domain = Domain(3)
    domain.stopped.add((1, 3))
    domain.publish(1, "question", 2, 3)
    domain.start((2, 1))
    domain.publish(2, "answer", 3)
    assert domain.delivered(3) == []
    domain.free(1, 3)
    assert domain.delivered(3) == ["question", "answer"]
    domain.start((3, 1))
    assert domain.delivered(3) == ["question", "answer"]
    assert domain.servers[3].delivered == {(1, 1): 1, (2, 1): 1}


def test_a_log_that_went_back_is_reported() -> None:
    domain = Domain(2)
    domain.publish(1, "a", 2)
    domain.logs[1] = []
    domain.start((1, 1))
    assert domain.of(1, LogRewound) == [LogRewound(2, ((1, 1), 1))]


def test_a_server_without_its_log_begins_where_others_know_it_to_be() -> None:
    domain = Domain(2)
    domain.publish(1, "a", 2)
    domain.logs[2] = []
    domain.start((2, 2))
    domain.publish(1, "b", 2)
    assert domain.delivered(2) == ["a", "b"]
    assert domain.of(2, GapFound) == []


def test_a_server_without_its_log_is_told_what_earlier_events_would_have_told() -> None:
    domain = Domain(3)
    domain.stopped.add((1, 3))
    domain.publish(1, "question", 2, 3)
    domain.logs[2] = []
    domain.start((2, 2))
    domain.publish(1, "note", 2)
    domain.publish(2, "answer", 3)
    assert domain.delivered(3) == []
    domain.free(1, 3)
    assert domain.delivered(3) == ["question", "answer"]


def test_a_server_joins() -> None:
    domain = Domain(2)
    domain.publish(1, "a", 2)
    domain.start((3, 1))
    domain.publish(1, "b", 2, 3)
    domain.publish(3, "c", 1, 2)
    assert domain.delivered(3) == ["b"]
    assert domain.delivered(2) == ["a", "b", "c"]


def test_nothing_is_kept_for_a_server_that_left() -> None:
    domain = Domain(3)
    domain.stopped |= {(1, 3), (2, 3)}
    domain.publish(1, "a", 2, 3)
    domain.publish(2, "b", 1, 3)
    for server in (1, 2):
        domain.feed(server, RemoveServer(3))
        domain.feed(server, RemoveServer(3, is_forgotten=True))
        domain.publish(server, "c", 1, 2, 3)
    for server in (1, 2):
        state = domain.servers[server]
        assert not state.outgoing.retained
        assert all(not entry.concerns(3) and entry.origin[0] != 3 for entry in state.knowledge.entries())


def test_a_past_is_reached_behind_all_that_is_delivered_in_the_same_step() -> None:
    """Publishes that wait for the past know all of that."""
    domain = Domain(3)
    domain.stopped.add((1, 3))
    domain.publish(1, "question", 2, 3)
    domain.feed(2, ExportPast(7))
    for payload in ("b", "c"):
        domain.publish(2, payload, 3)
    domain.feed(3, ImportPast(7, domain.of(2, PastExported)[0].past, 2))
    domain.publish(2, "d", 3)
    domain.free(1, 3)
    assert domain.delivered(3) == ["question", "b", "c", "d"]
    assert domain.outputs[3][-1] == PastReached(7)


def test_a_session_that_moves_waits_for_what_it_saw() -> None:
    """The session saw the question at 2, and continues at 3 once 3 has it too; then its past is that of 3."""
    domain = Domain(4)
    domain.stopped |= {(1, 3), (1, 4)}
    domain.publish(1, "question", 2, 3, 4)
    domain.feed(2, ExportPast(7))
    (exported,) = domain.of(2, PastExported)
    assert ((1, 1), 1) in exported.past.seen
    domain.feed(3, ImportPast(7, exported.past, 2))
    assert domain.of(3, PastReached) == []
    domain.free(1, 3)
    assert domain.of(3, PastReached) == [PastReached(7)]
    domain.start((3, 1))
    domain.publish(3, "answer", 4)
    assert domain.delivered(4) == []
    domain.free(1, 4)
    assert domain.delivered(4) == ["question", "answer"]


def test_an_acknowledgement_of_another_incarnation_is_ignored() -> None:
    domain = Domain(2)
    domain.stopped.add((1, 2))
    domain.publish(1, "a", 2)
    domain.feed(1, MessageCame(2, Acked(2, 1, 0, 0)))
    assert domain.servers[1].outgoing.retained
    domain.feed(1, MessageCame(2, Acked(1, 1, 0, 0)))
    assert not domain.servers[1].outgoing.retained


def test_a_new_link_tells_again_what_was_lost_on_the_one_before() -> None:
    """2 tells 3 that 4 was sent a, on a link that breaks; 3 sends c to 4, which must wait for a."""
    domain = Domain(4)
    domain.stopped |= {(1, 4), (2, 3)}
    domain.publish(1, "a", 2, 4)
    domain.publish(2, "b", 3)
    domain.stopped.discard((2, 3))
    domain.connect(2, 3)
    assert domain.delivered(3) == ["b"]
    domain.publish(3, "c", 4)
    assert domain.delivered(4) == []
    domain.free(1, 4)
    assert domain.delivered(4) == ["a", "c"]


def test_rows_stand_for_the_records() -> None:
    """The live state, one from its records, and one from its rows have the same rows."""
    domain = Domain(4, CausalLimits(retained_events_max=3, kept_events_max=2))
    domain.feed(1, CausalLinkClosed(3))
    domain.feed(3, CausalLinkClosed(1))
    for number in range(8):
        domain.publish(1, f"a{number}", 2, 3)
        domain.publish(2, f"b{number}", 1, 4)
        domain.publish(4, f"c{number}", 2, 3)
        if number == 5:
            domain.connect(1, 3)
            domain.stopped.add((1, 3))
    domain.feed(2, RemoveServer(3))
    assert any(isinstance(each, EventsDropped) for each in domain.logs[1])
    for server, records in domain.logs.items():
        live = rows_of(domain.servers[server].state)
        assert rows_of(restored((server, 1), records, domain.limits)) == live
        loaded = CausalState(domain.limits)
        loaded.begin((server, 1))
        load(loaded, live)
        assert rows_of(loaded) == live
        assert loaded.outgoing.befores([1, 2, 3, 4]) == domain.servers[server].outgoing.befores([1, 2, 3, 4])


def rows_of(state: CausalState) -> dict[str, dict[str, Any]]:
    """Every row of a state."""
    return {
        "counters": rows.counters(state),
        "peers": rows.peers(state),
        "origins": rows.origins(state),
        "columns": rows.columns(state),
        "retained": {str(number): rows.retained(state, number) for number in state.outgoing.retained},
        "kept": {str(dot): rows.kept(state, dot) for dot in state.kept},
    }


def load(state: CausalState, stored: dict[str, dict[str, Any]]) -> None:
    rows.load_counters(state, stored["counters"])
    rows.load_peers(state, stored["peers"])
    rows.load_origins(state, stored["origins"])
    rows.load_columns(state, stored["columns"])
    rows.load_retained(state, stored["retained"])
    rows.load_kept(state, stored["kept"])
