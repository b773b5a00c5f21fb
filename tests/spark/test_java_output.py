"""Output of Java on standard error, without the lines that are no news."""

from __future__ import annotations

import subprocess
import sys

import pytest

CHILD = (
    "import sys; sys.stderr.write('WARNING: Using incubator modules: jdk.incubator.vector\\n"
    "one\\nStarting Streaming TransformWithStateInPandas Python worker.\\n\\n\\ntwo\\n'); sys.exit(3)"
)
PROGRAM = """
import subprocess, sys, threading
from wanderbus.pipeline.java_output import filtered_java_output
with filtered_java_output():
    child = subprocess.Popen([sys.executable, "-c", {child!r}])
    {then}
child.wait()
for thread in threading.enumerate():
    if thread.name == "wanderbus-java-output":
        thread.join()
print("mine", file=sys.stderr)
"""


@pytest.mark.parametrize(
    ("then", "ended"),
    [("pass", ["one", "two", "mine"]), ("child.wait(); raise SystemExit('failed')", ["one", "two", "failed"])],
)
def test_lines_without_news_are_left_out(then: str, ended: list[str]) -> None:
    program = PROGRAM.format(child=CHILD, then=then)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=False)
    assert done.stderr.splitlines() == ended
