"""``./do restore``: what counts as a silent loss, and worlds in which it finds some, or none."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest

from faults import restore
from faults.restoring import server_world
from faults.restoring.cast import Consumer
from faults.restoring.domain_world import decentralised, ordered
from faults.restoring.kind import Tried
from faults.restoring.server_world import ServerWorld
from faults.restoring.stream import Item, silent_losses

POINTS = 3


def read(*items: int | tuple[str, int]) -> list[Item]:
    """Items of one publisher: an event by its number, or a gap with the highest number that was acknowledged then.

    A gap that is called late has the highest number from before a restoration.
    """
    return [_item(each) if isinstance(each, tuple) else Item("p", each) for each in items]


def _item(gap: tuple[str, int]) -> Item:
    known = {"p": gap[1]}
    return Item("", 0, known, known if gap[0] == "late" else {})


@pytest.mark.parametrize(
    ("items", "lost"),
    [
        (read(1, 2, 3, 4, 5), []),
        (read(1, 2, 5), [3, 4]),
        (read(1, 2, ("gap", 5), 5), []),
        (read(1, 2), [3, 4, 5]),
        (read(1, 2, ("gap", 5)), []),
        (read(1, ("gap", 5), 2, 5), [3, 4]),
        (read(1, 2, 5, ("gap", 5)), [3, 4]),
        (read(1, 2, ("gap", 3), 5), [4]),
        (read(1, 2, ("gap", 5), 1, 2, 5), []),
        (read(1, 2, 1, 2, ("gap", 5), 5), []),
        (
            read(
                ("gap", 5),
            ),
            [],
        ),
    ],
)
def test_a_loss_is_silent_unless_a_gap_stands_in_its_place(items: Sequence[Item], lost: list[int]) -> None:
    assert silent_losses("p", range(1, 6), items) == lost


def test_events_of_other_publishers_neither_count_nor_move_a_gap() -> None:
    items = [Item("p", 1), Item("q", 9), Item("", 0, {"p": 3, "q": 9}), Item("q", 10), Item("p", 4)]
    assert silent_losses("p", range(1, 5), items) == []
    assert silent_losses("q", range(8, 11), items) == [8]


def test_results_of_worlds_add_up() -> None:
    total, one = Tried(), Tried(points=2, silent_losses=3, errors=1, words=["lost"])
    one.figures["restored"] = 2
    for where in ("first", "second"):
        total.add(one, where)
    assert (total.points, total.silent_losses, total.errors) == (4, 6, 2)
    assert (total.figures["restored"], total.words) == (4, ["first: lost", "second: lost"])


def test_all_points_are_shared_out_among_the_kinds() -> None:
    jobs = restore._jobs(restore._options(["--points", "500"]))
    assert sum(job.points for job in jobs) >= 500
    assert {job.kind for job in jobs} == set(restore.KINDS)
    assert len({(job.kind, job.seed) for job in jobs}) == len(jobs)
    (alone,) = restore._jobs(restore._options(["--kind", "server", "--world", "7", "--points", "4"]))
    assert alone == ("server", 7, 4)


def test_a_world_that_fails_is_an_error_and_ends_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    class Failing(ServerWorld):
        async def run(self, points: int) -> Tried:
            self.tried.points = 2
            raise RuntimeError("no worker\nat all")

    monkeypatch.setitem(restore.KINDS, "server", restore.KINDS["server"]._replace(make=Failing))
    found = restore.try_world(restore.Job("server", 1, 3))
    assert (found.points, found.errors, found.words) == (2, 1, ["point 2: RuntimeError: no worker"])


def play(world: ServerWorld) -> Tried:
    return asyncio.run(world.run(POINTS))


@pytest.mark.integration
@pytest.mark.parametrize("make", [ServerWorld, ordered, decentralised])
def test_servers_that_are_only_restarted_lose_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: type[ServerWorld]
) -> None:
    monkeypatch.setattr(
        server_world, "put_back", lambda copy, place: shutil.copytree(place.with_name("present"), place)
    )
    found = play(make(tmp_path, Random(3)))
    assert (found.points, found.silent_losses, found.errors, found.words) == (POINTS, 0, 0, [])


@pytest.mark.integration
def test_losses_without_a_gap_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    note = Consumer._note

    def events_alone(self: Consumer, n: int, by: str, text: str = "") -> None:
        if n:
            note(self, n, by, text)

    monkeypatch.setattr(Consumer, "_note", events_alone)
    assert play(ServerWorld(tmp_path, Random(3))).silent_losses > 0
