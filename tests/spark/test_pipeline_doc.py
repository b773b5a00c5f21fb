"""docs/pipeline.md works when it is followed literally, from the server to the vacuum."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.house.readme import ROOT, page_blocks, walk

PAGE = ROOT / "docs" / "pipeline.md"
WALK_S_MAX = 900


def test_every_block_is_a_file_that_is_used_or_lines_for_a_shell() -> None:
    shell = "".join(block.text for block in page_blocks(PAGE) if block.language == "sh")
    for block in page_blocks(PAGE):
        assert block.language == "sh" or block.name in shell, f"no shell block uses:\n{block.text}"


@pytest.mark.spark
@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("ip"), reason="needs root and iproute2: a network of its own")
def test_the_page_followed_literally(tmp_path: Path) -> None:
    done = walk(PAGE, tmp_path, WALK_S_MAX)
    assert done.returncode == 0, done.stderr
