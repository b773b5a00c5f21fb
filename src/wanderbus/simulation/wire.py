"""Link between broker and agent, without the transport below: it delays, keeps order, and breaks."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from wanderbus.simulation.world import World


class WireDirection:
    """One direction of a link: messages arrive in order after ``delay_s``, until it is cut."""

    def __init__(self, world: World, delay_s: float, deliver: Callable[[Sequence[bytes]], None]) -> None:
        self._world = world
        self._delay_s = delay_s
        self._deliver = deliver
        self._under_way: list[bytes] = []
        self._is_cut = False

    def send(self, payload: bytes) -> None:
        """Send a message; messages sent before it arrives arrive together with it."""
        if self._is_cut:
            return
        self._under_way.append(payload)
        if len(self._under_way) == 1:
            self._world.after(self._delay_s, self._arrive)

    def cut(self) -> None:
        """Break: a prefix of the messages in flight still arrives, the rest is lost."""
        if self._is_cut:
            return
        self._is_cut = True
        del self._under_way[self._world.random.randint(0, len(self._under_way)) :]
        self._arrive()

    def _arrive(self) -> None:
        arrived, self._under_way = self._under_way, []
        if arrived:
            self._deliver(arrived)


class Wire:
    """Both directions of one link; ``up`` and ``down`` deliver at the broker and at the device."""

    def __init__(
        self,
        world: World,
        link: int,
        delay_s: float,
        up: Callable[[Sequence[bytes]], None],
        down: Callable[[Sequence[bytes]], None],
    ) -> None:
        self.link = link
        self.up = WireDirection(world, delay_s, up)
        self.down = WireDirection(world, delay_s, down)
        self.on_drop: Callable[[], None] = lambda: None
        """Called when the broker ends the link, or crashes."""

    def cut(self) -> None:
        """Break both directions."""
        self.up.cut()
        self.down.cut()
