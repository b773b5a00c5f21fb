"""The driver: batches, timers, sockets, on plain asyncio and on uvloop (DESIGN rule 2)."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import pytest
import uvloop

from wanderbus.machine import (
    Address,
    CancelTimer,
    ClockRead,
    DatagramReceived,
    Input,
    Output,
    SendDatagram,
    SetTimer,
    TimerFired,
)
from wanderbus.runtime.net.driver import Driver, Receive

TICKS = 20

Play = Callable[[Callable[[], Awaitable[None]]], None]


class Said(Output, frozen=True):
    """A report."""

    word: str


class Noted(Input, frozen=True):
    """An input that is of no other kind."""

    word: str


class Recorder:
    """A machine that keeps its inputs and returns the outputs that the test sets."""

    def __init__(self) -> None:
        self.batches: list[list[Input]] = []
        self.answers: list[Output] = []

    def step(self, inputs: Iterable[Input], now: float) -> list[Output]:
        self.batches.append(list(inputs))
        answers, self.answers = self.answers, []
        return answers

    @property
    def inputs(self) -> list[Input]:
        return [given for batch in self.batches for given in batch]

    def data(self) -> list[bytes]:
        return [given.data for given in self.inputs if isinstance(given, DatagramReceived)]


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def play(request: pytest.FixtureRequest) -> Play:
    """Run a story on one of the loops; raise exceptions of the loop's callbacks here."""

    def run(story: Callable[[], Awaitable[None]]) -> None:
        faults: list[dict[str, Any]] = []

        async def guarded() -> None:
            asyncio.get_running_loop().set_exception_handler(lambda _, context: faults.append(context))
            async with asyncio.timeout(10):
                await story()

        with asyncio.Runner(loop_factory=request.param) as runner:
            runner.run(guarded())
        assert faults == []

    return run


async def until(condition: Callable[[], object]) -> None:
    while not condition():
        await asyncio.sleep(0.002)


def open_driver(*, wall_clock: bool = False) -> tuple[Driver, Recorder, list[Output], Address]:
    machine, reports = Recorder(), list[Output]()
    driver = Driver(machine, reports.append, wall_clock=wall_clock)
    address = driver.bind({"data": ("127.0.0.1", 0)})["data"]
    return driver, machine, reports, address


def test_inputs_of_one_turn_are_one_batch(play: Play) -> None:
    async def story() -> None:
        driver, machine, _, _ = open_driver()
        driver.feed(Noted("a"))
        driver.feed(Noted("b"), Noted("c"))
        await until(lambda: machine.batches)
        driver.feed(Noted("d"))
        await until(lambda: len(machine.batches) == 2)
        driver.close()
        assert machine.batches == [[Noted("a"), Noted("b"), Noted("c")], [Noted("d")]]

    play(story)


def test_bursts_of_datagrams_are_one_batch_each_but_for_the_first_which_was_not_expected(play: Play) -> None:
    async def story() -> None:
        driver, machine, _, address = open_driver()
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            sender.bind(("127.0.0.1", 0))
            source = sender.getsockname()
            for burst in (40, 30, 1, 1, 2):
                before = len(machine.data())
                for number in range(burst):
                    sender.sendto(b"%d" % number, address)
                await until(lambda wanted=before + burst: len(machine.data()) == wanted)  # type: ignore[misc]
        driver.close()
        assert [len(batch) for batch in machine.batches] == [1, 39, 30, 1, 1, 1, 1]
        assert machine.inputs == [
            DatagramReceived("data", source, b"%d" % number) for burst in (40, 30, 1, 1, 2) for number in range(burst)
        ]

    play(story)


def test_a_burst_of_large_datagrams_is_cut_so_that_others_have_their_turn(play: Play) -> None:
    async def story() -> None:
        driver, machine, _, address = open_driver()
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            for _ in range(20):
                sender.sendto(bytes(60_000), address)
        await until(lambda: len(machine.data()) == 20)
        assert max(map(len, machine.batches)) == 5
        driver.close()

    play(story)


def test_a_datagram_that_comes_alone_is_taken_before_another_is_looked_for(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []
    receive = Driver._receive

    def looking(driver: Driver, name: str, source: Receive, most: int) -> int:
        found = receive(driver, name, source, most)
        order.append(f"found {found}")
        return found

    async def story() -> None:
        monkeypatch.setattr(Driver, "_receive", looking)
        driver, machine, _, address = open_driver()
        monkeypatch.setattr(machine, "step", lambda inputs, now: order.append("step") or [])  # type: ignore[func-returns-value]
        driver.perform([SendDatagram("data", address, b"a")])
        await until(lambda: len(order) == 3)
        driver.close()
        assert order == ["found 1", "step", "found 0"]

    play(story)


def test_a_machine_may_end_the_driver_with_an_output(play: Play) -> None:
    """Its socket is closed by then, and no more is read from it."""

    async def story() -> None:
        machine = Recorder()
        driver = Driver(machine, lambda report: driver.close())
        address = driver.bind({"data": ("127.0.0.1", 0)})["data"]
        machine.answers = [Said("enough")]
        driver.perform([SendDatagram("data", address, b"a"), SendDatagram("data", address, b"b")])
        await until(lambda: machine.batches)
        await asyncio.sleep(0.005)
        assert machine.data() == [b"a"]

    play(story)


def test_immediate_inputs_follow_queued_ones_at_once(play: Play) -> None:
    async def story() -> None:
        driver, machine, _, _ = open_driver()
        driver.feed(Noted("fed"))
        driver.take(Noted("taken"))
        assert machine.batches == [[Noted("fed"), Noted("taken")]]
        await asyncio.sleep(0.005)
        assert len(machine.batches) == 1, "the turn that was asked for has nothing left to do"
        driver.feed(Noted("later"))
        await until(lambda: len(machine.batches) == 2)
        driver.feed(Noted("too late"))
        driver.close()
        driver.take(Noted("later still"))
        await asyncio.sleep(0.005)
        assert machine.inputs == [Noted("fed"), Noted("taken"), Noted("later")]

    play(story)


def test_datagrams_are_taken_in_the_turn_in_which_they_are_read(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    """They follow the inputs that the application fed before, and no input is left for the next turn."""
    order: list[str] = []
    read = Driver._readable

    def busy(driver: Driver, name: str, source: Receive) -> None:
        asyncio.get_running_loop().call_soon(order.append, "next turn")
        driver.feed(Noted("asked"))
        read(driver, name, source)

    async def story() -> None:
        monkeypatch.setattr(Driver, "_readable", busy)
        driver, machine, _, address = open_driver()
        step = machine.step

        def noted(inputs: Iterable[Input], now: float) -> list[Output]:
            order.append("step")
            return step(inputs, now)

        monkeypatch.setattr(machine, "step", noted)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            sender.bind(("127.0.0.1", 0))
            sender.sendto(b"a", address)
            await until(lambda: "next turn" in order)
            source = sender.getsockname()
        await asyncio.sleep(0.005)
        assert order == ["step", "next turn"]
        driver.feed(Noted("later"))
        await until(lambda: len(machine.batches) > 1)
        driver.close()
        assert machine.batches == [[Noted("asked"), DatagramReceived("data", source, b"a")], [Noted("later")]]

    play(story)


def test_the_wall_clock_comes_first_where_it_is_wanted(play: Play) -> None:
    async def story() -> None:
        driver, machine, _, _ = open_driver(wall_clock=True)
        driver.feed(Noted("a"))
        await until(lambda: machine.batches)
        driver.close()
        clock, noted = machine.batches[0]
        assert isinstance(clock, ClockRead)
        assert clock.wall_us > 1_600_000_000_000_000
        assert noted == Noted("a")

    play(story)


def test_timers_fire_in_order_of_their_time(play: Play) -> None:
    async def story() -> None:
        driver, machine, _, _ = open_driver()
        now = asyncio.get_running_loop().time()
        driver.perform([SetTimer("late", now + 0.03), SetTimer("early", now + 0.01), SetTimer("past", now - 1.0)])
        await until(lambda: len(machine.inputs) == 3)
        driver.close()
        assert machine.inputs == [TimerFired("past"), TimerFired("early"), TimerFired("late")]

    play(story)


def test_a_timer_set_again_is_replaced_and_a_cancelled_one_is_silent(play: Play) -> None:
    async def story() -> None:
        driver, machine, _, _ = open_driver()
        now = asyncio.get_running_loop().time()
        driver.perform([SetTimer("moved later", now + 0.005), SetTimer("moved later", now + 0.04)])
        driver.perform([SetTimer("moved earlier", now + 9.0), SetTimer("moved earlier", now + 0.02)])
        driver.perform([SetTimer("gone", now + 0.01), CancelTimer("gone"), CancelTimer("never there")])
        driver.perform([SetTimer("back", now + 0.01), CancelTimer("back"), SetTimer("back", now + 0.01)])
        await until(lambda: len(machine.inputs) == 3)
        await asyncio.sleep(0.02)
        driver.close()
        assert machine.inputs == [TimerFired("back"), TimerFired("moved earlier"), TimerFired("moved later")]

    play(story)


def test_timers_that_were_cancelled_or_put_off_do_not_pile_up(play: Play) -> None:
    async def story() -> None:
        driver, machine, _, _ = open_driver()
        now = asyncio.get_running_loop().time()
        driver.perform([SetTimer("due", now + 0.01)])
        for number in range(10_000):
            driver.perform([SetTimer("put off", now + 100 + number), SetTimer(number, now + 99.0), CancelTimer(number)])
        assert len(driver._heap) < 100
        await until(lambda: machine.inputs == [TimerFired("due")])
        driver.close()

    play(story)


def test_a_late_loop_fires_what_is_due_and_not_what_was_put_off(play: Play) -> None:
    async def story() -> None:
        driver, machine, _, _ = open_driver()
        now = asyncio.get_running_loop().time()
        driver.perform([SetTimer(key, now + 0.001 * place) for place, key in enumerate("abcd", 1)])
        driver.perform([SetTimer("b", now + 9.0), CancelTimer("c")])
        time.sleep(0.02)
        await until(lambda: len(machine.inputs) == 2)
        driver.close()
        assert machine.batches == [[TimerFired("a"), TimerFired("d")]]

    play(story)


def test_a_timer_takes_one_alarm_and_is_never_early_for_its_machine(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    rings: list[float] = []
    ring = Driver._ring

    def counted(driver: Driver) -> None:
        rings.append(driver._loop.time())
        ring(driver)

    monkeypatch.setattr(Driver, "_ring", counted)

    async def story() -> None:
        driver, machine, _, _ = open_driver()
        loop = asyncio.get_running_loop()
        fired: list[tuple[float, float]] = []

        def step(inputs: Iterable[Input], now: float) -> list[Output]:
            given = list(inputs)
            fired.extend((now, each.key) for each in given if isinstance(each, TimerFired))  # type: ignore[misc]
            at = now + 0.00507
            return [SetTimer(at, at)] if len(fired) < TICKS else []

        monkeypatch.setattr(machine, "step", step)
        driver.perform([SetTimer(loop.time(), loop.time())])
        await until(lambda: len(fired) == TICKS)
        driver.close()
        assert all(now >= at for now, at in fired)
        assert [now for now, _ in fired] == sorted(now for now, _ in fired)
        assert len(rings) <= TICKS + 2

    play(story)


def test_a_timer_may_be_set_from_its_own_firing(play: Play) -> None:
    async def story() -> None:
        driver, machine, _, _ = open_driver()
        loop = asyncio.get_running_loop()
        machine.answers = [SetTimer("tick", loop.time() + 0.005)]
        driver.perform([SetTimer("tick", loop.time())])
        await until(lambda: len(machine.inputs) == 2)
        driver.close()
        assert machine.inputs == [TimerFired("tick")] * 2

    play(story)


def test_reports_come_in_order(play: Play) -> None:
    async def story() -> None:
        driver, machine, reports, _ = open_driver()
        machine.answers = [Said("one"), SetTimer("t", 0.0), Said("two")]
        driver.feed(Noted("go"))
        await until(lambda: reports)
        driver.close()
        assert reports == [Said("one"), Said("two")]

    play(story)


def test_a_rebound_socket_receives_only_at_its_new_address(play: Play) -> None:
    async def story() -> None:
        driver, machine, _, before = open_driver()
        after = driver.bind({"data": ("127.0.0.7", 0)})["data"]
        assert after[0] == "127.0.0.7"
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as peer:
            peer.bind(("127.0.0.1", 0))
            peer.settimeout(2.0)
            peer.sendto(b"old", before)
            peer.sendto(b"new", after)
            await until(machine.data)
            driver.perform([SendDatagram("data", peer.getsockname(), b"answer")])
            answer, source = await asyncio.to_thread(peer.recvfrom, 100)
        driver.close()
        assert machine.data() == [b"new"]
        assert (answer, source) == (b"answer", after)

    play(story)


def test_a_bind_that_fails_leaves_every_socket_as_it_was(play: Play) -> None:
    async def story() -> None:
        driver, machine, _, address = open_driver()
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
            taken.bind(("127.0.0.1", 0))
            with pytest.raises(OSError, match="in use"):
                driver.bind({"data": ("127.0.0.1", 0), "sip": taken.getsockname()})
            taken.sendto(b"still here", address)
            await until(machine.data)
        driver.close()
        assert machine.data() == [b"still here"]

    play(story)


def test_a_datagram_that_cannot_be_sent_is_counted_and_the_rest_goes_on(play: Play) -> None:
    async def story() -> None:
        driver, machine, reports, address = open_driver()
        far = SendDatagram("data", ("127.0.0.1", 9), b"x" * 70_000)
        nowhere = SendDatagram("no such socket", address, b"lost")
        driver.perform([far, nowhere, SendDatagram("data", address, b"arrives"), Said("done")])
        await until(machine.data)
        driver.close()
        assert (driver.unsent, machine.data(), reports) == (1, [b"arrives"], [Said("done")])

    play(story)


@pytest.mark.parametrize("host", ["some.name.invalid", "localhost", "127.1", "0x7f000001", "", "<broadcast>"])
def test_nothing_is_looked_up_to_send_a_datagram(play: Play, host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lookup is in C, within ``sendto``, so it is ``sendto`` that must not be called."""
    sent: list[Any] = []

    def sending(to: socket.socket, data: bytes, destination: Any) -> int:
        sent.append(destination)
        return len(data)

    async def story() -> None:
        driver, _, _, address = open_driver()
        monkeypatch.setattr(socket.socket, "sendto", sending)
        driver.perform([SendDatagram("data", (host, 9), b"lost"), SendDatagram("data", address, b"sent")])
        driver.close()
        assert (sent, driver.unsent) == ([address], 1)

    play(story)


@pytest.mark.parametrize(("zone", "unsent"), [("1", 0), ("no.such.interface", 1)])
def test_an_address_of_a_link_may_name_its_interface(play: Play, zone: str, unsent: int) -> None:
    """The system reports the source of a datagram this way; an unknown interface is refused without a lookup."""

    async def story() -> None:
        driver, machine, _, _ = open_driver()
        _, port = driver.bind({"link": ("::1", 0)})["link"]
        driver.perform([SendDatagram("link", (f"::1%{zone}", port), b"here")])
        if not unsent:
            await until(machine.data)
        driver.close()
        assert driver.unsent == unsent

    play(story)


def test_an_answer_that_nobody_listens_does_not_stop_the_socket(play: Play) -> None:
    """An ICMP error arrives on the socket; it does not concern the other peers of this socket."""

    async def story() -> None:
        driver, machine, _, address = open_driver()
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as gone:
            gone.bind(("127.0.0.1", 0))
            closed = gone.getsockname()
        driver.perform([SendDatagram("data", closed, b"anybody?")] * 3)
        await asyncio.sleep(0.01)
        driver.perform([SendDatagram("data", address, b"myself")])
        await until(machine.data)
        driver.close()
        assert machine.data() == [b"myself"]

    play(story)


def test_a_closed_driver_asks_its_machine_no_more(play: Play) -> None:
    async def story() -> None:
        driver, machine, _, address = open_driver()
        driver.feed(Noted("too late"))
        driver.perform([SetTimer("t", asyncio.get_running_loop().time() + 0.001)])
        driver.close()
        driver.close()
        driver.feed(Noted("later still"))
        driver.perform([SendDatagram("data", address, b"x"), SetTimer("t", 0.0)])
        await asyncio.sleep(0.02)
        assert machine.batches == []

    play(story)


def test_a_fault_of_the_machine_ends_the_driver_and_is_reported(play: Play) -> None:
    class Faulty:
        steps = 0

        def step(self, inputs: Iterable[Input], now: float) -> list[Output]:
            self.steps += 1
            raise AssertionError("an invariant is broken")

    async def story() -> None:
        faults: list[Exception] = []
        machine = Faulty()
        driver = Driver(machine, lambda report: None, on_fault=faults.append)
        driver.feed(Noted("one"))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        driver.feed(Noted("two"))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert [str(fault) for fault in faults] == ["an invariant is broken"]
        assert machine.steps == 1

    play(story)
