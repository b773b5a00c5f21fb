"""The four configurations in network namespaces, short: every event arrives, and goes the way that it should."""

from __future__ import annotations

import asyncio
import os
import subprocess
from pathlib import Path

import pytest

from wanderbus.errors import WanderbusError
from wanderbus.evaluation.overhead.experiment import Configuration, OverheadExperiment
from wanderbus.evaluation.overhead.network import ADDRESSES, BROKER, DEVICE, PRIVATE, RELAY, Relayed, missing, network
from wanderbus.evaluation.overhead.running import check_relayed, run

pytestmark = pytest.mark.integration

needs_network = pytest.mark.skipif(missing(OverheadExperiment()) is not None, reason=str(missing(OverheadExperiment())))


def left_behind() -> list[str]:
    there = Path("/run/netns")
    return [path.name for path in there.glob(f"wbeval{os.getpid()}-*")] if there.is_dir() else []


@needs_network
def test_r01_every_configuration_delivers_every_event_its_own_way() -> None:
    told: list[str] = []
    experiment = OverheadExperiment(consumers=(2,), events=100, rate_per_s=50.0)
    samples, places = asyncio.run(run(experiment, 1, 1, told.append))
    assert left_behind() == []
    assert [each.configuration for each in samples] == list(Configuration)
    assert [(each.missing, each.unanswered) for each in samples] == [(0, 0)] * 4
    for each in samples:
        # The way there and back takes the link of the device, and the last also that to the relay, twice.
        least_ms = 2 + 8 * (each.configuration is Configuration.RELAY_APART)
        assert each.p50_ms > least_ms
        # A loaded machine may serve one consumer later than the other.
        assert min(each.sums_s) > least_ms * 0.1
        assert sum(each.sums_s) == pytest.approx(2 * each.mean_ms * 0.1)
    assert places.round_trip_p50_ms["device-broker"] > 2.0
    assert places.sync_p50_ms > 0
    assert told[0] == "run 1 of 1, 2 of 2 consumers: starting"
    assert sum(": 0 of 100 events" in each for each in told) == 4


@needs_network
def test_links_have_the_configured_delay(tmp_path: Path) -> None:
    async def round_trips(experiment: OverheadExperiment) -> tuple[float, float]:
        async with network(experiment, tmp_path) as hosts:
            for host, device, rtt_s in (
                (DEVICE, "air0", experiment.wifi_rtt_s),
                (RELAY, "eth0", experiment.relay_rtt_s),
            ):
                argv = hosts.on(host, ["ip", "-details", "link", "show", device])
                kind = "tun type tun" if rtt_s else "veth"
                assert kind in subprocess.run(argv, capture_output=True, text=True, check=True).stdout
            # The least: other work on the machine only adds to a round trip.
            near_s, far_s = (hosts.round_trips_s(DEVICE, other, 25) for other in (BROKER, RELAY))
            return min(near_s), min(far_s)

    def measure(wifi_rtt_s: float, relay_rtt_s: float) -> tuple[float, float]:
        return asyncio.run(round_trips(OverheadExperiment(wifi_rtt_s=wifi_rtt_s, relay_rtt_s=relay_rtt_s)))

    near_s, far_s = measure(0.02, 0.04)
    assert near_s == pytest.approx(0.02, abs=0.005)
    assert far_s == pytest.approx(0.06, abs=0.008)
    assert max(measure(0.0, 0.0)) < 0.002


@needs_network
def test_nobody_reaches_the_device_behind_nat_unasked(tmp_path: Path) -> None:
    async def try_it() -> None:
        async with network(OverheadExperiment(), tmp_path) as hosts:
            argv = hosts.on(BROKER, ["ip", "route", "get", PRIVATE])
            process = await asyncio.create_subprocess_exec(*argv, stdout=asyncio.subprocess.PIPE)
            route, _ = await process.communicate()
            assert b"via 10.79.3.254" in route
            core = [name for name in left_behind() if name.endswith("-core")]
            process = await asyncio.create_subprocess_exec(
                *("ip", "-netns", core[0], "route", "get", PRIVATE), stderr=asyncio.subprocess.PIPE
            )
            _, complaint = await process.communicate()
            assert b"unreachable" in complaint

    asyncio.run(try_it())
    assert left_behind() == []


@needs_network
def test_a_program_that_fails_ends_the_run_with_its_last_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ADDRESSES, BROKER, "192.0.2.1")
    with pytest.raises(
        WanderbusError, match=r"server ended with exit status [0-9]+: UDP port 192\.0\.2\.1:5062 cannot be used"
    ):
        asyncio.run(run(OverheadExperiment(configurations=(Configuration.MOBILE,)), 1, 1, lambda text: None))
    assert left_behind() == []


def test_a_way_around_the_relay_is_no_measurement() -> None:
    experiment = OverheadExperiment(configurations=(Configuration.MOBILE, Configuration.RELAY_BESIDE))
    check_relayed(experiment, Relayed(beside=100, apart=0, around=0))
    for seen, complaint in (
        (Relayed(beside=100, apart=0, around=1), "1 datagrams from behind NAT bypassed the relays"),
        (Relayed(beside=0, apart=0, around=0), "NAT, relay beside broker: 0 datagrams passed its relay"),
        (Relayed(beside=100, apart=1, around=0), "NAT, relay apart: 1 datagrams passed its relay"),
    ):
        with pytest.raises(WanderbusError, match=complaint):
            check_relayed(experiment, seen)
