"""The process of the audit: event log to lake to journeys, by the project's own Spark pipeline.

It starts Spark at once and the job when a line arrives on stdin. Reports: ``{"phase": text}`` as it goes, at last
``{"journeys": {...}}``, or ``{"error": line}``.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from demo import SUBJECT
from demo.audit import DECLARED, journeys
from demo.json_lines import report
from wanderbus.errors import WanderbusError
from wanderbus.pipeline.operation.run import PipelineRun
from wanderbus.pipeline.session import spark_session


def main(config: Mapping[str, Any]) -> None:
    """Write the lake from the log, read it and the evidence, and report the outcome of every notification."""
    lake = Path(config["lake"])
    report(phase="starting Spark")
    spark = spark_session("wanderbus demo")
    report(phase="Spark is ready")
    if sys.stdin.readline():
        report(phase="reading the event log into the lake")
        counts = PipelineRun(spark, Path(config["log"]), lake, declared=DECLARED).run()
        report(phase=f"judging the journeys over {counts['records'].rows} records")
        report(journeys=journeys(spark, lake, Path(config["evidence"]), SUBJECT).as_dict())
    spark.stop()


if __name__ == "__main__":
    try:
        main(json.loads(Path(sys.argv[1]).read_text()))
    except WanderbusError as error:
        report(error=str(error))
        sys.exit(1)
