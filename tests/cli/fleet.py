"""The servers of a domain as processes, which ``wanderbus domain up`` supervises."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path

from tests.cli.shell import WAIT_S, Shell, read_line
from wanderbus.runtime.files.domain_file import create_domain, read_domain
from wanderbus.runtime.process_arguments import arguments_of, parent_of

SERVERS = ("s1", "s2", "s3")


class Fleet(Shell):
    """A domain of three servers at free ports, with the users alice (administrator) and bob.

    :param settings: first lines of the domain's file; with none, the first start makes it
    """

    def __init__(self, directory: Path, settings: str = "") -> None:
        super().__init__(directory)
        if settings:
            file = create_domain(directory / "fleet", "localhost", len(SERVERS), 0)
            file.write_text(settings + file.read_text("utf-8"), "utf-8")
        self.supervisor = self.start(*self.command())
        lines = [read_line(self.supervisor) for _ in range(len(SERVERS) + 1)]
        assert lines[-1] == "all servers of localhost are ready: s1, s2, s3", (lines, self.supervisor.poll())
        found = [re.fullmatch(r"ready (s\d) sip:(.*)", line) for line in lines[:-1]]
        self.places = dict(sorted((each[1], each[2]) for each in found if each is not None))
        assert tuple(self.places) == SERVERS

    def close(self) -> None:
        """End all processes; what they have reported stands beside a failure."""
        self.kill()
        for each in self._started:
            if each.stderr is not None and not each.stderr.closed:
                print(*each.args[2:5], each.stderr.read(), sep="\n")  # type: ignore[index]
        super().close()

    def command(self, *more: str) -> list[str]:
        options = ("--size", "3", "--port", "0", "--users", "users", "--admin", "alice", "--data-dir", "fleet")
        return ["domain", "up", *options, *more]

    def at(self, server: str, name: str = "alice", password: str = "secret") -> list[str]:
        """Return the options for a user at a server."""
        words = ["--user", f"sip:{name}@localhost", "--password", password, "--server", self.places[server]]
        return [*words, "--state-dir", f"{name}-{server}"]

    def visiting(self, server: str, name: str = "alice", password: str = "secret") -> list[str]:
        """Return the options for a user who only looks at a server."""
        return self.at(server, name, password)[:-2]

    def operator(self) -> list[str]:
        """Return the options of the commands that ask all servers."""
        file = str(self.directory / "fleet" / "domain.toml")
        return ["--user", "sip:alice@localhost", "--password", "secret", "--event-domain", file]

    def leader(self, subject: str) -> str:
        """Return the name of the server that leads the channel of a subject."""
        return read_domain(self.directory / "fleet" / "domain.toml").channel(subject).leader

    def others(self, server: str) -> list[str]:
        """Return the names of the other servers."""
        return [each for each in SERVERS if each != server]

    def pid(self, server: str) -> int:
        """Return the process id of a server."""
        for pid in (int(place.name) for place in Path("/proc").glob("[0-9]*")):
            if parent_of(pid) == self.supervisor.pid and server in arguments_of(pid):
                return pid
        raise AssertionError(f"{server} has no process")

    def running(self) -> list[int]:
        """Return the ids of all processes that the supervisor has started and that run."""
        found = []
        for server in SERVERS:
            try:
                found.append(self.pid(server))
            except AssertionError:
                continue
        return found


def gone(pids: list[int]) -> bool:
    """Return whether all these processes end within the time of a test."""
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        if not any(os.path.exists(f"/proc/{pid}") for pid in pids):
            return True
        time.sleep(0.05)
    return False
