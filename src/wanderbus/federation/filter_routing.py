"""Routing of filters between domains, at the gateway of one: a method for each type (SPEC M-01 to M-05).

::

    own domain ──OwnInterestChanged──▶ ┌────────────────┐ ──SendToDomain──▶ other domains
                                       │ FilterRouting  │
    own domain ◀──WantedByDomain────── └────────────────┘ ◀──DomainMessage── other domains

The method of a type decides by which way the own interest goes to others. What comes is taken on every way, so domains
may change the method of a type one after the other. An interest that comes on two ways counts once.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import Final

from wanderbus.channels.interest.covering_index import Interest
from wanderbus.channels.interest.covering_set import InterestChange
from wanderbus.channels.interest.interest_set import InterestMode, Wanted
from wanderbus.errors import RemoteProtocolError
from wanderbus.federation.methods.filter_bounds import TYPES_MAX
from wanderbus.federation.methods.filter_method import FilterMethod, Outputs
from wanderbus.federation.methods.multicast_method import MulticastMethod
from wanderbus.federation.methods.rendezvous_method import RendezvousMethod
from wanderbus.federation.methods.tree_method import TreeMethod
from wanderbus.federation.methods.wanted_interests import WantedInterests
from wanderbus.federation.methods.widened_filters import WidenedFilters
from wanderbus.federation.methods.wire import (
    EPOCH_MAX,
    ROLES,
    LinkState,
    MethodsAnnounced,
    Role,
    TreeAdopted,
    TrustAnnounced,
    decode,
    encode,
)
from wanderbus.federation.routing_messages import (
    DomainLinked,
    DomainMessage,
    DomainUnlinked,
    Method,
    OwnInterestChanged,
    RoutingFailed,
    RoutingInput,
    RoutingOutput,
    RoutingSettings,
    RoutingSuperseded,
    SendToDomain,
    UseMethod,
    WantedByDomain,
    WantedKnown,
)
from wanderbus.machine import SetTimer, TimerFired

_TIMER: Final = "repeat"

_METHOD_OF_ROLE: Final[Mapping[Role, Method]] = {
    "multicast": "multicast",
    "asked": "rendezvous",
    "spread": "rendezvous",
    "tree": "tree",
}


class FilterRouting:
    """Tells other domains what the own one wants, and the own one what they want; ``step`` works as in every machine.

    :param epoch: rises with each life of each gateway of the domain
    :param former: methods that an earlier life may have had; until the present one counts, their routes stay
    """

    def __init__(
        self,
        settings: RoutingSettings,
        *,
        epoch: int,
        mode: InterestMode = "perfect",
        former: Iterable[Method] = (),
    ) -> None:
        assert 0 <= epoch <= EPOCH_MAX, epoch
        self._settings = settings
        self._wanted = WantedInterests()
        self._rendezvous = RendezvousMethod(settings, self._wanted, epoch=epoch, mode=mode)
        self._tree = TreeMethod(settings, self._wanted, epoch=epoch, mode=mode)
        self._methods: dict[Method, FilterMethod] = {
            "multicast": MulticastMethod(settings, self._wanted, epoch=epoch, mode=mode),
            "rendezvous": self._rendezvous,
            "tree": self._tree,
        }
        self._is_started = False
        self._received = settings.received()
        self._method_of = {type: self._possible(type, settings.method_of(type)) for type in sorted(settings.shared())}
        self._former: dict[str, dict[Method, Hashable]] = {}
        """Methods of a type whose routes stay for a while, with the mark of the present method."""
        for type, method in self._method_of.items():
            others = [each for each in former if each != method and self._possible(type, each) == each]
            if others:
                self._former[type] = dict.fromkeys(others, self._methods[method].mark(type))
        self._own: dict[str, WidenedFilters] = {}
        """Interest of the own domain, by type."""
        self._announced: dict[str, dict[str, Method]] = {}
        """Methods by which other domains tell what they want, by domain and type, if not by multicast."""
        self._linked: dict[str, None] = {}
        self._unknown = {name: set(each.sends) for name, each in settings.neighbours.items() if each.sends}
        """Types of which it is not known yet what the domain wants."""
        self._outputs: list[RoutingOutput] = []
        self._timer_at: float | None = None
        self._epoch_max = EPOCH_MAX

    def step(self, inputs: Iterable[RoutingInput], now: float) -> list[RoutingOutput]:
        """Take a batch of inputs at monotonic second ``now``; return the outputs in order."""
        if not self._is_started:
            self._is_started = True
            for each in self._methods.values():
                self._outputs += each.start(now)
        for given in inputs:
            match given:
                case DomainMessage():
                    self._on_message(given, now)
                case OwnInterestChanged(change=change):
                    self._on_interest_changed(change, now)
                case DomainLinked(domain=domain):
                    self._on_linked(domain, now)
                case DomainUnlinked(domain=domain):
                    self._unlink(domain, now)
                case UseMethod(type=type, method=method):
                    self._on_use_method(type, method, now)
                case TimerFired():
                    self._timer_at = None
                    for each in self._methods.values():
                        self._outputs += each.repeat(now)
        self._end_former(now)
        return self._take_outputs()

    def believe(self, epoch_max: int) -> None:
        """Believe that gateways have lives of such an epoch, but of no higher one."""
        self._epoch_max = epoch_max

    def wanted_by(self, domain: str) -> list[Interest]:
        """Return all interests whose events have to be sent to a domain."""
        return self._wanted.of(domain)

    def method_of(self, type: str) -> Method:
        """Return the present method of a type."""
        return self._method_of.get(type) or self._settings.method_of(type)

    def forwards(self, type: str, source: str | None) -> tuple[str, ...]:
        """Return the next hops in the tree of a type for an event that came from ``source``, None for an own one.

        It is sent to those of them that want it by :class:`WantedByDomain`.
        """
        return self._tree.forwards(type, source)

    def tree_neighbours(self, type: str) -> tuple[str, ...]:
        """Return the neighbours in the tree of a type."""
        return self._tree.neighbours(type)

    def is_effective(self, type: str) -> bool:
        """Return whether all that the own domain wants of a type counts wherever it is received from."""
        method = self._methods[self.method_of(type)]
        return method.is_effective(type, method.mark(type))

    def marks(self) -> dict[str, tuple[Method, Hashable]] | None:
        """Return marks of what the own domain wants, for :meth:`counts`; None while a change takes several turns."""
        if not all(each.is_settled for each in self._methods.values()):
            return None
        return {type: (each := self.method_of(type), self._methods[each].mark(type)) for type in self._received}

    def counts(self, marks: Mapping[str, tuple[Method, Hashable]]) -> bool:
        """Return whether what was wanted as of ``marks`` counts in the domains that are linked now."""
        return all(self._methods[method].counts(type, mark, self._linked) for type, (method, mark) in marks.items())

    def filters_held(self) -> int:
        """Return the number of filters in all tables of other domains."""
        return sum(each.filters_held() for each in self._methods.values())

    def stalled(self) -> dict[str, str]:
        """Return the types whose rendezvous is away, and its name: what is wanted of them changes nowhere else."""
        found = {}
        for type in self._received:
            rendezvous = self._rendezvous.rendezvous_of(type) if self._method_of[type] == "rendezvous" else None
            if rendezvous is not None and rendezvous != self._settings.name and rendezvous not in self._linked:
                found[type] = rendezvous
        return found

    def changing(self) -> list[str]:
        """Return the types whose former method is still in use, because the present one does not count yet."""
        return list(self._former)

    # Links --------------------------------------------------------------------------------------------------------

    def _on_linked(self, domain: str, now: float) -> None:
        if domain not in self._settings.neighbours:
            self._outputs.append(RoutingFailed(domain, f"{domain} is not in the federation file"))
            return
        self._unlink(domain, now)
        self._linked[domain] = None
        self._announced.pop(domain, None)
        self._announce(domain)
        for each in self._methods.values():
            self._outputs += each.link_up(domain, now)

    def _announce(self, domain: str, *, is_change: bool = False) -> None:
        """Tell a domain on which way all that is wanted of it is sure to be: a new life there sends no events before.

        While a way does not count, what comes on it may be of an earlier life, and multicast has all.
        """
        settled = [each for each in sorted(self._settings.neighbours[domain].receives) if each not in self._former]
        announced = MethodsAnnounced(
            tuple([each for each in settled if self._method_of[each] == "rendezvous"]),
            tuple([each for each in settled if self._method_of[each] == "tree"]),
        )
        if is_change or announced.rendezvous or announced.tree:
            self._outputs.append(SendToDomain(domain, encode(announced)))

    def _announce_change(self, types: Iterable[str]) -> None:
        changed = set(types)
        for domain in self._linked:
            if not changed.isdisjoint(self._settings.neighbours[domain].receives):
                self._announce(domain, is_change=True)

    def _unlink(self, domain: str, now: float) -> None:
        if domain in self._linked:
            del self._linked[domain]
            for each in self._methods.values():
                self._outputs += each.link_down(domain, now)

    def _on_message(self, received: DomainMessage, now: float) -> None:
        domain = received.domain
        if domain not in self._linked:
            return
        try:
            self._outputs += self._believed(domain, self._received_from(domain, received.payload, now))
        except RemoteProtocolError as error:
            self._unlink(domain, now)
            self._outputs.append(RoutingFailed(domain, f"{domain}: {error}"))

    def _received_from(self, domain: str, payload: bytes, now: float) -> Outputs:
        message = decode(payload)
        if isinstance(message, MethodsAnnounced):
            return self._methods_announced(domain, message)
        if isinstance(message, TrustAnnounced):
            return self._rendezvous.trust_announced(domain, message, now)
        if isinstance(message, LinkState):
            self._check_epoch(message.epoch)
            return self._tree.state_announced(domain, message, now)
        if isinstance(message, TreeAdopted):
            return self._tree.tree_adopted(domain, message, now)
        if not 0 <= message.role < len(ROLES):
            raise RemoteProtocolError(f"unknown role {message.role}", None)
        role = ROLES[message.role]
        return self._methods[_METHOD_OF_ROLE[role]].receive(domain, role, message.message, now)

    def _methods_announced(self, domain: str, message: MethodsAnnounced) -> Outputs:
        if len(message.rendezvous) + len(message.tree) > TYPES_MAX:
            raise RemoteProtocolError(f"it announces methods of more than {TYPES_MAX} types", None)
        announced: dict[str, Method] = dict.fromkeys(message.tree, "tree")
        for type in message.rendezvous:
            announced[type] = "rendezvous"
        self._announced[domain] = announced
        sends = self._settings.neighbours[domain].sends
        doubtful = {each for each in sends if not self._is_known(domain, each)} - self._unknown.get(domain, set())
        for type in sorted(doubtful):
            # The rendezvous may be away. It means that an earlier life here knows, and the domain withdraws the rest.
            self._wanted.hold(domain, type)
            self._unknown.setdefault(domain, set()).add(type)
        self._wanted.note_news(domain)
        return []

    def _believed(self, domain: str, outputs: Outputs) -> Iterable[RoutingOutput]:
        """Return outputs of a message of ``domain``; :class:`RemoteProtocolError` for a life that cannot have been."""
        for each in outputs:
            if isinstance(each, RoutingSuperseded):
                self._check_epoch(each.epoch)
                each = RoutingSuperseded(each.epoch, domain)
            yield each

    def _check_epoch(self, epoch: int) -> None:
        if epoch > self._epoch_max:
            raise RemoteProtocolError(f"a gateway of {epoch} ms cannot have been yet", None)

    # Interest of the own domain -----------------------------------------------------------------------------------

    def _on_interest_changed(self, change: InterestChange, now: float) -> None:
        added: dict[str, dict[Hashable, Wanted]] = {}
        removed: dict[str, list[Hashable]] = {}
        for each in change.removed:
            for type in self._types(each.subject):
                removed.setdefault(type, []).append(each)
        for each in change.added:
            for type in self._types(each.subject):
                added.setdefault(type, {})[each] = type, (each.conjunction,)
        for type in dict.fromkeys((*removed, *added)):
            filters = self._own.setdefault(type, WidenedFilters(type))
            new, gone = filters.update(added.get(type, {}), removed.get(type, ()))
            for method in (self._method_of[type], *self._former.get(type, ())):
                self._update(method, type, new, gone, now)

    def _types(self, subject: str | None) -> Iterable[str]:
        if subject is None:
            return self._received
        return (subject,) if subject in self._received else ()

    def _update(
        self, method: Method, type: str, added: Mapping[Hashable, Wanted], removed: Iterable[Hashable], now: float
    ) -> None:
        named: dict[Hashable, Wanted] = {(type, id): wanted for id, wanted in added.items()}
        self._outputs += self._methods[method].update(named, [(type, id) for id in removed], now)

    # Methods ------------------------------------------------------------------------------------------------------

    def _on_use_method(self, type: str, method: Method, now: float) -> None:
        if type not in self._method_of:
            return
        method = self._possible(type, method)
        if method == self._method_of[type]:
            return
        before, self._method_of[type] = self._method_of[type], method
        self._outputs += self._methods[method].use(type, now)
        former = self._former.setdefault(type, {})
        if method not in former:
            told = self._own[type].effective() if type in self._own else {}
            self._update(method, type, told, (), now)
        former.pop(method, None)
        mark = self._methods[method].mark(type)
        self._former[type] = dict.fromkeys((*former, before), mark)
        self._announce_change([type])

    def _possible(self, type: str, method: Method) -> Method:
        """Return ``method``, or multicast for a type without a rendezvous that may know of it."""
        is_possible = method != "rendezvous" or self._rendezvous.rendezvous_of(type) is not None
        return method if is_possible else "multicast"

    def _end_former(self, now: float) -> None:
        """Withdraw former routes of types whose present ones count."""
        ended = {}
        for type, former in self._former.items():
            present = self._methods[self._method_of[type]]
            if all(present.is_effective(type, mark) for mark in former.values()):
                ended[type] = former
        if ended:
            for type in ended:
                del self._former[type]
            self._announce_change(ended)
            for type, former in ended.items():
                told = self._own[type].effective() if type in self._own else {}
                for method in former:
                    self._update(method, type, {}, told, now)

    # Outputs ------------------------------------------------------------------------------------------------------

    def _take_outputs(self) -> list[RoutingOutput]:
        known = self._take_known()
        for domain, change in self._wanted.take_changes().items():
            self._outputs.append(WantedByDomain(domain, change))
        self._outputs += known
        times = [each.repeat_at() for each in self._methods.values()]
        at = min((each for each in times if each is not None), default=None)
        if at is not None and (self._timer_at is None or at < self._timer_at):
            self._timer_at = at
            self._outputs.append(SetTimer(_TIMER, at))
        outputs, self._outputs = self._outputs, []
        return outputs

    def _take_known(self) -> list[WantedKnown]:
        """Return what is known now of what domains want, and was not at the last call."""
        found = []
        for domain in self._wanted.take_news():
            types = self._unknown.get(domain, set())
            if known := {each for each in types if self._is_known(domain, each)}:
                types -= known
                for each in sorted(known):
                    self._wanted.release(domain, each)
                found.append(WantedKnown(domain, frozenset(known)))
            if not types:
                self._unknown.pop(domain, None)
        return found

    def _is_known(self, domain: str, type: str) -> bool:
        """Return whether all that a domain wants of a type is known, by the way that the domain has announced."""
        way = self._announced.get(domain, {}).get(type, "multicast")
        # Where the rendezvous is not trusted with the type, nobody else will tell.
        return self._methods[self._possible(type, way)].is_known(domain, type)
