"""Worlds of domains with few links, whose other links go along the tree of their types (SPEC M-04)."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from random import Random

from wanderbus.federation.gateway_choice import link_name
from wanderbus.federation.routed.messages import ROUTED_PREFIX, Passed, decode_hop
from wanderbus.simulation.federation.layout import FederationLayout
from wanderbus.simulation.federation.scenario import ACTIVE_S, FederationScenario

SHAPES = ("chain", "ring", "star", "ring with a chord")


class TreeLayout(FederationLayout):
    """Three to six domains in a chain, a ring or a star; the lengths of their links differ."""

    def __init__(self, seed: int, draw: Random) -> None:
        self.shape = SHAPES[seed % len(SHAPES)]
        super().__init__(seed, draw, "tree")
        order = list(self.domains)
        draw.shuffle(order)
        pairs = [(order[0], each) for each in order[1:]] if self.shape == "star" else list(pairwise(order))
        if self.shape.startswith("ring"):
            pairs.append((order[-1], order[0]))
        if self.shape == "ring with a chord" and len(order) > 3:
            pairs.append((order[0], order[2]))
        self.lengths = {frozenset(each): float(draw.choice([0, 1, 1, 2, 5])) for each in pairs}

    def _count(self, draw: Random) -> int:
        return draw.choice([3, 3, 4, 5, 6])

    def is_linked(self, one: str, other: str) -> bool:
        return frozenset((one, other)) in self.lengths

    def distance(self, one: str, other: str) -> float:
        return self.lengths.get(frozenset((one, other)), 1.0)

    def tree(self) -> set[frozenset[str]]:
        """Return the links of the shortest tree (Prim's algorithm); names decide between equal lengths."""
        inside, found = {min(self.domains)}, set[frozenset[str]]()
        while len(inside) < len(self.domains):
            _, _, pair = min(
                (length, sorted(pair), pair) for pair, length in self.lengths.items() if len(pair & inside) == 1
            )
            inside |= pair
            found.add(pair)
        return found


class TreeScenario(FederationScenario):
    """Links between domains are cut and healed, and whole domains crash."""

    method = "tree"
    layout: TreeLayout

    def __init__(self, seed: int, *, keep_trace: bool = False) -> None:
        super().__init__(seed, keep_trace=keep_trace)
        self.passed = 0
        """Messages between domains without a link, one for each link that they used."""
        self.foreign_links.on_sent = self._check_sent

    def _make_layout(self, seed: int, draw: Random) -> TreeLayout:
        return TreeLayout(seed, draw)

    def counts(self) -> dict[str, float]:
        return {**super().counts(), "passed": self.passed}

    def _plan(self) -> None:
        super()._plan()
        draw = self.world.random
        for _ in range(draw.choice([0, 2, 6])):
            self.world.at(draw.uniform(3.0, ACTIVE_S), draw.choice([self._cut, self._cut, self._crash_domain]))

    def _cut(self) -> None:
        """Cut one link between two domains for a while."""
        draw = self.world.random
        one, other = sorted(draw.choice(sorted(map(sorted, self.layout.lengths))))
        self.partitions += 1
        self.foreign_links.separate(
            [
                (link_name(one, each), link_name(other, far))
                for each in self.layout.domains[one].gateways
                for far in self.layout.domains[other].gateways
            ]
        )
        self.world.after(draw.choice([0.5, 5.0, 20.0]), lambda: self.foreign_links.separate(()))

    def _crash_domain(self) -> None:
        """Crash all servers of a domain through which others have links, if there is one."""
        draw, middle = self.world.random, list[str]()
        for node in self.hosts.values():
            if node.alive:
                middle += [one for row in node.member.rows().values() for one in row["through"]]
        for name in self.layout.domains[draw.choice(middle)].servers if middle else ():
            self._crash_now(self.hosts[name])

    def _repair(self) -> None:
        super()._repair()
        self.foreign_links.separate(())

    def _check_sent(self, payload: bytes) -> None:
        """Check that a message passes each domain once, and uses links alone that there are."""
        bare = payload.removeprefix(ROUTED_PREFIX)
        if bare == payload or not isinstance(message := decode_hop(bare), Passed):
            return
        self.passed += 1
        path = message.path
        if len(set(path)) < len(path) or not all(map(self.layout.is_linked, path, path[1:])):
            self.problems.append(f"a message goes round, or where no link is: {path}")
        if message.place >= len(path):
            self.problems.append(f"a message is behind the end of its path {path}")

    def _check_rest(self) -> None:
        # Probes never rest: wait for a moment in which none is on its way between two gateways of a domain.
        for _ in range(200):
            if not any(each.unconsumed for each in self.hosts.values()):
                break
            self.world.run(self.world.now + 0.01)
        self.problems += self._check_paths()
        super()._check_rest()

    def _check_paths(self) -> Iterator[str]:
        """Check that every domain has a link to each other one: an own one, or one along the shortest tree."""
        tree = self.layout.tree()
        for source, target in self.layout.pairs():
            rows = [self.hosts[each].member.rows()[target.name] for each in source.gateways]
            linked = [each for each in rows if each["is_linked"]]
            if len(linked) != 1:
                yield f"{len(linked)} gateways of {source.name} have a link to {target.name}"
                continue
            through = linked[0]["through"]
            path = (source.name, *through, target.name)
            if self.layout.is_linked(source.name, target.name):
                if through:
                    yield f"{path} is used beside a link"
            elif not {frozenset(each) for each in pairwise(path)} <= tree:
                yield f"{path} is not in the tree {sorted(map(sorted, tree))}"
