"""Registry of the scenarios that the command runs, by layer."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from wanderbus.simulation.domain_changes.grown_scenario import GrownScenario
from wanderbus.simulation.domain_changes.moved_scenario import MovedScenario
from wanderbus.simulation.domains.causal_scenario import CausalScenario
from wanderbus.simulation.domains.decentralised_scenario import DecentralisedScenario
from wanderbus.simulation.domains.group_scenario import GroupScenario
from wanderbus.simulation.domains.interest_scenario import InterestScenario
from wanderbus.simulation.domains.ordered_scenario import OrderedScenario
from wanderbus.simulation.domains.restore_scenario import RestoreScenario
from wanderbus.simulation.federation.causal_scenario import CausalFederationScenario
from wanderbus.simulation.federation.moving_scenario import MovingScenario
from wanderbus.simulation.federation.scenario import FederationScenario
from wanderbus.simulation.handover.pattern_scenario import PatternHandoverScenario
from wanderbus.simulation.handover.scenario import HandoverScenario
from wanderbus.simulation.matrix.scenario import MatrixScenario
from wanderbus.simulation.nat.scenario import NATScenario
from wanderbus.simulation.relay.hostile_scenario import HostileRelayScenario
from wanderbus.simulation.relay.scenario import RelayScenario
from wanderbus.simulation.rudp.scenario import RudpScenario
from wanderbus.simulation.scenario import Scenario
from wanderbus.simulation.server_links.scenario import LinksScenario
from wanderbus.simulation.sip.domains_scenario import DomainsScenario
from wanderbus.simulation.sip.scenario import SIPScenario
from wanderbus.simulation.system.history_scenario import HistoryScenario
from wanderbus.simulation.system.scenario import SystemScenario
from wanderbus.simulation.weeks.scenario import WeeksScenario


class Layer(StrEnum):
    """Part of the system that is simulated."""

    BROKER = "broker"
    HISTORY = "history"
    SIP = "sip"
    DOMAINS = "domains"
    RUDP = "rudp"
    RELAY = "relay"
    HOSTILE_RELAY = "hostile-relay"
    NAT = "nat"
    WEEKS = "weeks"
    CAUSAL = "causal"
    INTEREST = "interest"
    LINKS = "links"
    ORDERED = "ordered"
    DECENTRALISED = "decentralised"
    RESTORE = "restore"
    MOVED = "moved"
    HANDOVER = "handover"
    PATTERN_HANDOVER = "pattern-handover"
    MATRIX = "matrix"
    GROUPS = "groups"
    GROWN = "grown"
    FEDERATION = "federation"
    FEDERATION_HANDOVER = "federation-handover"
    FEDERATION_CAUSAL = "federation-causal"


SCENARIOS: Final[dict[Layer, type[Scenario]]] = {
    Layer.BROKER: SystemScenario,
    Layer.HISTORY: HistoryScenario,
    Layer.SIP: SIPScenario,
    Layer.DOMAINS: DomainsScenario,
    Layer.RUDP: RudpScenario,
    Layer.RELAY: RelayScenario,
    Layer.HOSTILE_RELAY: HostileRelayScenario,
    Layer.NAT: NATScenario,
    Layer.WEEKS: WeeksScenario,
    Layer.CAUSAL: CausalScenario,
    Layer.INTEREST: InterestScenario,
    Layer.LINKS: LinksScenario,
    Layer.ORDERED: OrderedScenario,
    Layer.DECENTRALISED: DecentralisedScenario,
    Layer.RESTORE: RestoreScenario,
    Layer.MOVED: MovedScenario,
    Layer.HANDOVER: HandoverScenario,
    Layer.PATTERN_HANDOVER: PatternHandoverScenario,
    Layer.MATRIX: MatrixScenario,
    Layer.GROUPS: GroupScenario,
    Layer.GROWN: GrownScenario,
    Layer.FEDERATION: FederationScenario,
    Layer.FEDERATION_HANDOVER: MovingScenario,
    Layer.FEDERATION_CAUSAL: CausalFederationScenario,
}


def replay_command(layer: Layer, seed: int) -> str:
    """Return the command that replays ``seed``."""
    option = "" if layer is Layer.BROKER else f" --layer {layer}"
    return f"wanderbus sim{option} --seed {seed} --trace FILE"
