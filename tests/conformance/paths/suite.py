"""Prepare the worlds of a case once, put every question to every path, and compare the answers with the right one."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path as Directory
from typing import Any, Final

from pyspark.sql import SparkSession

from tests.api.world import run
from tests.conformance.conditions import EngineBeside
from tests.conformance.paths.questions import Case, Question, kinds_of
from tests.conformance.paths.reference import Answer, Refusal, right_answer
from tests.conformance.paths.registry import PATHS, Path, Worlds
from tests.conformance.paths.serving import ask_lake, served, served_by_domain
from tests.conformance.paths.worlds import World
from tests.spark.engine.running import EngineOnSpark
from wanderbus.cli.pipeline.subject_parents import parents_given
from wanderbus.pipeline.operation.run import PipelineRun

LAKES: Final = ("server", "ordered", "decentralised")
"""Worlds with a lake."""

SPARK_SHARE: Final = 7
"""One of so many questions is put to a path on Spark in the small form."""


def prepared(case: Case, directory: Directory, spark: SparkSession | None = None) -> Worlds:
    """Put a case to servers and domains in ``directory``; with Spark also to its engine, and fill the lakes."""
    worlds = Worlds(
        server=run(served(made(directory / "server"), case)),
        beside=run(served(made(directory / "beside"), case, EngineBeside())),
        spark=None,
        ordered=run(served_by_domain(directory / "ordered", case, "ordered")),
        decentralised=run(served_by_domain(directory / "decentralised", case, "decentralised")),
        lakes={},
        directory=made(directory / "files"),
    )
    if spark is None:
        return worlds
    with ThreadPoolExecutor(len(LAKES)) as threads:  # jobs on so few events mostly wait for each other's stages
        filling = {
            each: threads.submit(filled, spark, worlds.named(each), directory / f"lake-{each}") for each in LAKES
        }
        beside_spark = run(served(made(directory / "spark"), case, EngineOnSpark(spark)))
        lakes = {each: future.result() for each, future in filling.items()}
    for each in LAKES:
        shutil.copytree(directory / each, directory / f"{each}-copy")
        run(ask_lake(worlds.named(each), directory / f"{each}-copy", lakes[each]))
    return worlds._replace(spark=beside_spark, lakes=lakes)


def made(directory: Directory) -> Directory:
    """Make a directory."""
    directory.mkdir(0o700, parents=True)
    return directory


def filled(spark: SparkSession, world: World, lake: Directory) -> Directory:
    """Fill a lake from the logs of a server or a domain."""
    logs = [data / "log" for data in world.logs.values()]
    PipelineRun(spark, logs, lake, parents=parents_given(None, logs)).run()
    return lake


def differences(worlds: Worlds, wanted: Callable[[Path, Question], bool] = lambda *_: True) -> Iterator[str]:
    """Put the questions to the paths that ``wanted`` chooses; yield each answer that differs from the right one."""
    for path in PATHS:
        for asked in worlds.server.case.questions:
            if wanted(path, asked):
                yield from difference(path, worlds, asked)


def difference(path: Path, worlds: Worlds, asked: Question) -> Sequence[str]:
    """Put one question to one path, if it can be; return the difference of its answer, or nothing."""
    case = worlds.named(path.world).case
    kinds = kinds_of(worlds.ordered.case, asked)
    if not path.is_for(kinds):
        return []
    shown = f"{path.name}: {asked.name} ({asked.expression or 'every event'}; subject {asked.subject})"
    try:
        answer, refusal = path.ask(worlds, asked), path.refusal(kinds)
    except Exception as error:
        return [f"{shown}: fails with {type(error).__name__}: {error}"]
    if refusal is not None:
        if isinstance(answer, Refusal) and refusal in answer.text and "\n" not in answer.text:
            return []
        return [f"{shown}: expected one line with {refusal!r}, got {answer}"]
    has_to_wait = path.waits and case.is_of_the_future and asked.pattern is not None and path.gives != "matches"
    right = [] if has_to_wait else right_answer(case, asked, path.gives, is_away=path.is_away)
    if in_order(answer) != right:
        return [f"{shown}\n  answers {answer}\n  not     {right}"]
    return [] if keeps_order(case, path, answer) else [f"{shown}: events of a subject in another order: {answer}"]


def in_order(answer: Answer) -> Answer:
    """Return an answer in the order of the case: events of different channels may change places."""
    if isinstance(answer, int | Refusal):
        return answer
    several: list[Any] = sorted(answer)
    return several


def keeps_order(case: Case, path: Path, answer: Answer) -> bool:
    """Return whether the events of each subject come in the order in which they were published."""
    if path.gives != "events" or isinstance(answer, int | Refusal):
        return True
    found = [each for each in answer if isinstance(each, tuple)]
    ordered = sorted(found, key=lambda each: case.events[each[0]].subject)  # stable: the order within a subject stays
    return ordered == sorted(found, key=lambda each: (case.events[each[0]].subject, each[0]))


def small_form(case: Case) -> Callable[[Path, Question], bool]:
    """Return the choice of ``./do test``: all questions to fast paths, and each question to some paths on Spark."""

    def is_chosen(path: Path, asked: Question) -> bool:
        kinds = kinds_of(case, asked)
        if not path.needs_spark or path.refusal(kinds) is not None:
            return True
        place = PATHS.index(path) + case.questions.index(asked)
        return path.gives == "detections" or place % SPARK_SHARE == 0

    return is_chosen
