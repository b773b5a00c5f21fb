"""Comparison of what the agents of federated domains received with what they were due.

An event is due to each subscriber of any domain whose subscription matches it. It comes once, and names the id that it
has in its own domain. Events of one subject that a server has accepted come in that order everywhere, type by type.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from faults.agents import INTERESTS
from faults.federation_journal import ACKNOWLEDGED, BEGAN, GAP, REFUSED, STRAYED, TOOK, DomainRole, Entries, ReaderRole
from faults.federation_servers import Cut
from faults.verdict import Verdict
from wanderbus.records import Published, decode_record
from wanderbus.runtime.segment_files import segment_paths
from wanderbus.segments import HEADER, frames

_NS: Final = 1_000_000_000


class Stretch(NamedTuple):
    """Events of one stream that a subscriber received, in order, and the numbers that were due to it."""

    reader: ReaderRole
    stream: int
    taken: Entries
    due: NDArray[np.uint32]


class FederationTruth:
    """The events of a run and everything that was due; ``journals`` has the entries of each domain in their order."""

    def __init__(self, roles: Sequence[DomainRole], journals: Sequence[Entries], verdict: Verdict) -> None:
        self._roles = roles
        self._verdict = verdict
        self._subjects = roles[0].subjects
        self._home = {each.number: role.number for role in roles for each in role.publishers}
        """Domain of each publisher."""
        every: Entries = np.concatenate(journals)
        self._nothing = every[:0]
        self._accepted = _split(every[every["kind"] == ACKNOWLEDGED], "stream", "n")
        began = every[every["kind"] == BEGAN]
        self._began = dict(zip(began["stream"].tolist(), began["n"].tolist(), strict=True))
        """Last number of each stream that does not count."""
        self.refused = int(np.count_nonzero(every["kind"] == REFUSED))
        self._strayed = int(np.count_nonzero(every["kind"] == STRAYED))
        self._gaps = every[every["kind"] == GAP]["n"].tolist()
        self._taken = {
            each.number: _split(journal[(journal["kind"] == TOOK) & (journal["agent"] == each.number)], "stream")
            for role, journal in zip(roles, journals, strict=True)
            for each in role.readers
        }
        self._stretches = list(self._compared())

    @property
    def events(self) -> int:
        """Return the number of events that were acknowledged."""
        return sum(map(len, self._accepted.values()))

    @property
    def deliveries(self) -> int:
        """Return the number of notifications that the agents have received."""
        return sum(len(each) for several in self._taken.values() for each in several.values())

    @property
    def missing(self) -> int:
        """Return how many notifications are due and have not been received."""
        return sum(len(np.setdiff1d(each.due, each.taken["n"])) for each in self._stretches)

    def _compared(self) -> Iterator[Stretch]:
        for role in self._roles:
            for reader in role.readers:
                for want in reader.wants:
                    for publisher in self._home:
                        stream = publisher * len(self._subjects) + want.subject
                        taken = self._taken[reader.number].get(stream, self._nothing)
                        numbers = self._accepted.get(stream, self._nothing)["n"]
                        numbers = numbers[numbers > self._began.get(stream, math.inf)]
                        matches = INTERESTS[want.interest].matches
                        is_due = np.fromiter(map(matches, numbers.tolist()), bool, len(numbers))
                        yield Stretch(reader, stream, taken, numbers[is_due])

    def check(self, *, is_settled: bool = True) -> None:
        """Compare everything; differences go to the verdict.

        Unless ``is_settled``, the run ended in the middle: what is missing was not lost, it had no time.
        """
        for each in self._stretches:
            self._check(each, is_settled=is_settled)
        if self._strayed:
            words = f"{self._strayed} events named another domain than their publisher"
            self._verdict.broken("loops", words, self._strayed)
        for count in self._gaps:
            self._verdict.broken("lost", f"a subscriber received a gap of {count}", count)
        for role in self._roles:
            for reader in role.readers:
                self._check_order(role, reader)

    def _check(self, stretch: Stretch, *, is_settled: bool) -> None:
        numbers, what = stretch.taken["n"], f"{stretch.reader.user} of {self._words(stretch.stream)}"
        counted, places = np.unique(numbers, return_index=True)
        if repeated := len(numbers) - len(counted):
            self._verdict.broken("repeated", f"{what}: {repeated} came again", repeated)
        if wrong := int(np.count_nonzero(np.diff(numbers[np.sort(places)].astype(np.int64)) < 0)):
            self._verdict.broken("out_of_order", f"{what}: {wrong} came after higher numbers", wrong)
        lacking = np.setdiff1d(stretch.due, numbers)
        if is_settled and len(lacking):
            self._verdict.broken("lost", f"{what} lacks {lacking[:5].tolist()} of {len(lacking)}", len(lacking))
        known = self._accepted.get(stretch.stream, stretch.taken[:0])["n"]
        strange = np.setdiff1d(counted, known)
        if is_settled and len(strange):
            self._verdict.broken("integrity_errors", f"{what}: nobody published {strange[:5].tolist()}", len(strange))

    def _check_order(self, role: DomainRole, reader: ReaderRole) -> None:
        """Check for each subject the order of each server that accepted events, and their ids."""
        for want in reader.wants:
            streams = [publisher * len(self._subjects) + want.subject for publisher in self._home]
            several = [self._taken[reader.number].get(each) for each in streams]
            # Entries of a reader are in the order of their time.
            taken: Entries = np.concatenate([each for each in several if each is not None] or [self._nothing])
            taken = taken[np.argsort(taken["at_ns"], kind="stable")]
            homes = np.array([self._home[each] for each in sorted(self._home)])[taken["stream"] // len(self._subjects)]
            for home in set(homes.tolist()):
                of_home = taken[homes == home]
                ids = self._ids(of_home)
                of_home, ids = of_home[ids["n"] == of_home["n"]], ids[ids["n"] == of_home["n"]]
                self._check_servers(f"{reader.user} of {role.name}", want.subject, home, ids)
                self._check_ids(f"{reader.user} of {role.name}", of_home, ids)

    def _ids(self, taken: Entries) -> Entries:
        """Return the entry of the publisher for each event; one of another number where it has none."""
        found = np.zeros(len(taken), taken.dtype)
        for stream in np.unique(taken["stream"]).tolist():
            if (known := self._accepted.get(stream)) is not None:
                which = np.flatnonzero(taken["stream"] == stream)
                places = np.searchsorted(known["n"], taken["n"][which])
                found[which] = known[np.minimum(places, len(known) - 1)]
        return found

    def _check_servers(self, who: str, subject: int, home: int, ids: Entries) -> None:
        for server in np.unique(ids["server"]).tolist():
            of_server = ids[ids["server"] == server]
            ranks = np.lexsort((of_server["number"], of_server["incarnation"])).argsort()
            _, first = np.unique(of_server[["incarnation", "number"]], return_index=True)
            ranks = ranks[np.sort(first)]
            if wrong := int(np.count_nonzero(np.diff(ranks) < 0)):
                where = f"{self._subjects[subject]} of s{server} of {self._roles[home].name}"
                self._verdict.broken("out_of_order", f"{who}: {wrong} of {where} are in another order", wrong)

    def _check_ids(self, who: str, taken: Entries, ids: Entries) -> None:
        names = ["server", "incarnation", "number"]
        if strange := int(np.count_nonzero(taken[names] != ids[names])):
            self._verdict.broken("loops", f"{who}: {strange} events have another id than in their domain", strange)

    def _words(self, stream: int) -> str:
        publisher, subject = divmod(stream, len(self._subjects))
        return f"p{publisher}, {self._subjects[subject]}"

    # Logs -------------------------------------------------------------------------------------------------------------

    def check_logs(self, logs: Mapping[str, Sequence[Path]]) -> int:
        """Check in the logs of each domain that every foreign event came from its own domain, and once.

        Return the number of foreign events that were accepted.
        """
        total = 0
        for domain, paths in logs.items():
            accepted: Counter[tuple[int, str, int]] = Counter()
            for source, by, subject, n in (each for path in paths for each in _foreign(path, domain)):
                home = self._roles[self._home[by]].name
                if source != home:
                    self._verdict.broken("loops", f"{domain} took an event of {home} from {source}")
                accepted[by, subject, n] += 1
            total += len(accepted)
            if twice := [event for event, count in accepted.items() if count > 1]:
                self._verdict.broken("repeated", f"{domain} has published {twice[:3]} more than once", len(twice))
        return total

    # Cuts -------------------------------------------------------------------------------------------------------------

    def healed_s(self, cut: Cut) -> float:
        """Return the time from the end of a cut until events flow again: until the first one comes that way."""
        arrived = self._arrivals(cut)["at_ns"]
        arrived = arrived[arrived >= cut.healed_ns]
        return float(arrived.min() - cut.healed_ns) / _NS if len(arrived) else math.inf

    def caught_up_s(self, cut: Cut) -> float:
        """Return the time from the end of a cut until everything that was published during it has come that way."""
        taken = self._arrivals(cut)
        sent_ns = self._ids(taken)["at_ns"]
        waited = taken["at_ns"][(sent_ns >= cut.began_ns) & (sent_ns < cut.healed_ns)]
        return max(0.0, float(waited.max() - cut.healed_ns) / _NS) if len(waited) else 0.0

    def _arrivals(self, cut: Cut) -> Entries:
        streams = [
            publisher * len(self._subjects) + subject
            for publisher, home in self._home.items()
            if home == cut.source
            for subject in range(len(self._subjects))
        ]
        several = [self._taken[each.number].get(one) for each in self._roles[cut.target].readers for one in streams]
        return np.concatenate([each for each in several if each is not None] or [self._nothing])


def _split(entries: Entries, *order: str) -> dict[int, Entries]:
    """Return the entries of each stream, in the given ``order`` or else as they came."""
    entries = entries[np.lexsort([entries[each] for each in reversed(order)])]
    streams, starts = np.unique(entries["stream"], return_index=True)
    return dict(zip(streams.tolist(), np.split(entries, starts)[1:], strict=True))


def _foreign(log: Path, domain: str) -> Iterator[tuple[str, int, str, int]]:
    """Return the events of foreign domains in a log: the domain that it came from, publisher, subject and number."""
    ending = f"@domains.{domain}"
    for payload in _payloads(log):
        record = decode_record(payload)
        if isinstance(record, Published) and record.acceptance.user.endswith(ending):
            event = record.event
            source = record.acceptance.user.removeprefix("sip:").removesuffix(ending)
            yield source, event.attributes["by"], event.subject, event.attributes["n"]


def _payloads(log: Path) -> Iterable[bytes]:
    for path in segment_paths(log):
        for frame in frames(path.read_bytes(), len(HEADER)):
            yield frame.payload
