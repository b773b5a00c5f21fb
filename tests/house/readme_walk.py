"""Follow a page literally: ``python -m tests.house.readme_walk DIRECTORY PAGE``, in a network of its own.

Saves every named block as its file and runs every shell block in bash, in the order of the page, with the commands,
ports and addresses as they stand there. Servers, relays and ``wanderbus sub`` get a terminal of their own; a new
server takes the place of the one before. The directory has to hold what a checkout does.

Exit status 0 if every command ended with 0 and every program printed what its comments say; otherwise 1, with the
block and its output on standard error.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

from tests.house.readme import Block, page_blocks

STAYS: Final = re.compile(r"^wanderbus (up|relay|proxy|sub)\b", re.MULTILINE)
"""Commands that run until Ctrl-C."""

COMMAND_S_MAX: Final = 240.0
"""Longest time of a command; only a failure, or Spark on a busy machine, takes so long."""

READY_S_MAX: Final = 90.0
ARRIVAL_S_MAX: Final = 30.0
CTRL_C_S_MAX: Final = 15.0


class Failed(Exception):
    """A block of the page does not work."""


class Terminal:
    """A shell in which one command of a block keeps running."""

    def __init__(self, kind: str, script: str, directory: Path, number: int) -> None:
        self.kind = kind
        self._script = script
        self._output = directory / f"terminal-{number}.txt"
        with self._output.open("wb") as output:
            self._process = subprocess.Popen(
                ["bash", "-ec", script], cwd=directory, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
            )

    @property
    def output(self) -> str:
        return self._output.read_text(errors="replace")

    def wait_for(self, pattern: str, limit_s: float) -> None:
        """Wait until a line of the output begins with ``pattern``."""
        deadline = time.monotonic() + limit_s
        while not re.search(rf"^{pattern}", self.output, re.MULTILINE):
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise Failed(f"{self._script}\nnever printed {pattern!r}:\n{self.output}")
            time.sleep(0.05)

    def interrupt(self) -> None:
        """Press Ctrl-C and wait for the end."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGINT)
        try:
            self._process.wait(CTRL_C_S_MAX)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            raise Failed(f"{self._script}\ndid not end at Ctrl-C:\n{self.output}") from None


class Reader:
    """A reader who follows a page, block by block."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._files: dict[str, Block] = {}
        self._terminals: list[Terminal] = []
        self._prefix = ""

    def follow(self, block: Block) -> None:
        """Run one block."""
        if block.name:
            self._files[block.name] = block
            (self._directory / block.name).write_text(block.text, encoding="utf-8")
        elif block.language == "sh" and (stays := STAYS.search(block.text)):
            self._open(stays[1], block)
        elif block.language == "sh":
            self._run(block)

    def close(self) -> None:
        """Stop all running shells."""
        while self._terminals:
            self._terminals.pop().interrupt()

    def _open(self, kind: str, block: Block) -> None:
        if kind == "up":
            for old in [each for each in self._terminals if each.kind == "up"]:
                self._terminals.remove(old)
                old.interrupt()
        number = len(list(self._directory.glob("terminal-*.txt")))
        terminal = Terminal(kind, self._script(block), self._directory, number)
        self._terminals.append(terminal)
        if kind != "sub":
            terminal.wait_for("ready ", READY_S_MAX)

    def _run(self, block: Block) -> None:
        script = self._script(block)
        printed = self._command(script)
        for name in re.findall(r"python (\S+\.py)$", block.text, re.MULTILINE):
            self._check_printed(self._files[name], printed)
        for subscriber in [each for each in self._terminals if each.kind == "sub"]:
            self._wait_for_arrival(subscriber, script)
            self._terminals.remove(subscriber)
            subscriber.interrupt()

    def _wait_for_arrival(self, subscriber: Terminal, publish: str) -> None:
        """Publish until the subscriber shows an event; the first may arrive before its subscription is durable."""
        deadline = time.monotonic() + ARRIVAL_S_MAX
        while "IAH" not in subscriber.output:
            if time.monotonic() > deadline:
                raise Failed(f"{publish}\nnever reached its subscriber, which printed:\n{subscriber.output}")
            self._command(publish)
            time.sleep(0.2)

    def _script(self, block: Block) -> str:
        activate = "source .venv/bin/activate\n"
        if activate in block.text:
            self._prefix = activate  # later blocks go on in a terminal in which this was done
            return block.text
        return self._prefix + block.text

    def _command(self, script: str) -> str:
        try:
            done = subprocess.run(
                ["bash", "-ec", script],
                cwd=self._directory,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                text=True,
                timeout=COMMAND_S_MAX,
                check=False,
            )
        except subprocess.TimeoutExpired as late:
            raise Failed(f"{script}\ndid not end within {COMMAND_S_MAX:.0f} s: {late.output!r}") from None
        if done.returncode != 0:
            raise Failed(f"{script}\nended with {done.returncode}:\n{done.stdout}")
        return done.stdout

    def _check_printed(self, program: Block, output: str) -> None:
        rest = output
        for expected in program.printed:
            _, found, rest = rest.partition(expected)
            if not found:
                raise Failed(f"{program.name} did not print {expected!r}, or not in its place:\n{output}")


def main(directory: Path, page: Path) -> int:
    """Follow every block; return the exit status."""
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    for address in sorted(set(re.findall(r"\b192\.0\.2\.\d+", page.read_text(encoding="utf-8")))):
        subprocess.run(["ip", "address", "add", f"{address}/32", "dev", "lo"], check=True)
    try:
        with contextlib.closing(Reader(directory)) as reader:
            for block in page_blocks(page):
                reader.follow(block)
    except Failed as failure:
        print(f"{page.name}: {failure}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))
