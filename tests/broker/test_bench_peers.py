"""The benchmark of the broker against other products: which failure costs which result."""

from __future__ import annotations

import pytest

from bench import broker
from bench.broker_nats import JetStream
from bench.broker_ours import Ours
from bench.broker_peer import Peer
from bench.sections import Result


def failing(peer: Peer, size: broker.Size) -> list[Result]:
    raise RuntimeError(f"Traceback\n{peer.name}: 1038 of 1060 events came")


def test_another_broker_that_fails_is_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    assert broker._unless_it_fails(JetStream(synced=False), failing, broker.QUICK) == []
    assert "jetstream failed, and this run of it is left out: jetstream: 1038 of 1060" in capsys.readouterr().err


def test_a_failure_of_ours_ends_the_benchmark() -> None:
    with pytest.raises(RuntimeError, match="wanderbus: 1038 of 1060"):
        broker._unless_it_fails(Ours(), failing, broker.QUICK)
