"""Every gold table equals a count by the broker, by DuckDB or by pandas over the same silver tables (SPEC T-08)."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import pandas as pd
import pytest
from pyspark.sql import SparkSession

from tests.spark.analytics.random_records import USERS, RandomLog
from tests.spark.analytics.test_user_fold import folded
from wanderbus.filters import parse
from wanderbus.filters.covering import covers
from wanderbus.pipeline.analytics import EVERYTHING, GoldTables, Period, lake_tables
from wanderbus.pipeline.analytics.user_fold import Fate, Taking
from wanderbus.pipeline.lake import ingest
from wanderbus.pipeline.lake.delta import LakeTable
from wanderbus.pipeline.tables import named
from wanderbus.records import encode_record
from wanderbus.segments import HEADER, HIGH_WATER, pack_frame, pack_mark, segment_name

pytestmark = pytest.mark.spark

RECORDS = 500
BUCKET_US = 60_000_000


class Made(NamedTuple):
    """A random log, its lake, and the gold tables as pandas has them."""

    log: RandomLog
    lake: Path
    gold: dict[str, pd.DataFrame]

    def sql(self, query: str) -> list[tuple[Any, ...]]:
        """Return the result of DuckDB over the silver tables."""
        with duckdb.connect() as connection:
            for name in ("events", "notifications", "deliveries", "sessions", "subscriptions"):
                paths = LakeTable(self.lake, named(name)).load().file_uris()
                connection.read_parquet(paths).create_view(name)
            return connection.execute(query).fetchall()


def lake_of(spark: SparkSession, log: RandomLog, directory: Path) -> Path:
    """Write the records as a log, and make the lake."""
    written = directory / "log"
    written.mkdir(parents=True)
    frames = (pack_frame(offset, each.at_us, encode_record(each)) for offset, each in enumerate(log.records))
    (written / segment_name(0)).write_bytes(HEADER + b"".join(frames))
    (written / HIGH_WATER).write_bytes(pack_mark(len(log.records)))
    ingest(spark, written, directory / "lake", directory / "checkpoint")
    return directory / "lake"


def gold_of(spark: SparkSession, lake: Path, period: Period = EVERYTHING) -> dict[str, pd.DataFrame]:
    """Return all gold tables, collected."""
    with GoldTables(lake_tables(spark, lake, period), period, bucket_us=BUCKET_US) as gold:
        return {name: frame.toPandas() for name, frame in gold.frames.items()}


@pytest.fixture(scope="module")
def made(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Made:
    directory = tmp_path_factory.mktemp("gold")
    log = RandomLog(19).grow(RECORDS)
    lake = lake_of(spark, log, directory)
    return Made(log, lake, gold_of(spark, lake))


def rows(frame: pd.DataFrame, *columns: str) -> list[tuple[Any, ...]]:
    """Return the rows as tuples, sorted, with None where there is no value."""
    chosen = frame[list(columns)].astype(object)
    return sorted(
        (tuple(None if pd.isna(value) else value for value in row) for row in chosen.itertuples(index=False)), key=str
    )


def test_t08_matches_and_takings_are_those_of_the_fold_in_plain_python(made: Made) -> None:
    fates, taken = [], []
    for user in USERS:
        for each in folded(made.log.records, user)[0]:
            own = (user, each.match.session, each.match.number, each.match.subscription, each.match.offset)
            if isinstance(each, Fate):
                fates.append((*own, each.outcome, each.ended_us, each.reason, each.device))
            else:
                assert isinstance(each, Taking)
                taken.append((*own, each.device, each.taken_us, each.away_us, each.is_redelivered))
    identity = ("user", "session", "number", "subscription", "offset")
    assert rows(made.gold["matches"], *identity, "outcome", "ended_us", "reason", "device") == sorted(fates, key=str)
    assert rows(made.gold["acknowledgements"], *identity, "device", "taken_us", "away_us", "is_redelivered") == sorted(
        taken, key=str
    )


def test_t08_the_counts_of_sessions_are_the_counters_of_the_broker(made: Made) -> None:
    counted = ("generated", "delivered", "queued", "restricted")
    expected = [
        (row.user, row.name, *(getattr(row, name) for name in counted), sum(row.dropped.values()))
        for user in USERS
        for row in made.log.state.sessions_of(user)
        if row.generated or row.restricted
    ]
    found = made.gold["session_counts"]
    assert rows(found, "user", "session", *counted, "dropped") == sorted(expected, key=str)
    assert not found["missing"].any()
    assert not found["repeated"].any()


def test_t08_drops_are_those_of_the_broker_by_reason(made: Made) -> None:
    expected: Counter[tuple[str, str, str]] = Counter()
    for user in USERS:
        for row in made.log.state.sessions_of(user):
            expected.update({(user, row.name, reason): count for reason, count in row.dropped.items()})
    found: Counter[tuple[str, str, str]] = Counter()
    for each in made.gold["drops"].itertuples():
        found[each.user, each.session, each.reason] += each.dropped
    assert found == expected


def test_t08_counts_of_notifications_and_subjects_are_those_of_duckdb(made: Made) -> None:
    assert rows(
        made.gold["session_counts"][lambda f: f.notifications > 0], "user", "session", "notifications"
    ) == sorted(made.sql("select user, session, count(*) from notifications group by all"), key=str)
    events = made.sql(
        "with seconds as (select subject, at_us // 1000000 as s, count(*) as n, min(at_us) as a, max(at_us) as b "
        "from events group by all) select subject, sum(n)::bigint, max(n), min(a), max(b) from seconds group by all"
    )
    assert rows(made.gold["subject_counts"], "subject", "events", "events_in_peak_s", "first_us", "last_us") == sorted(
        events, key=str
    )
    generated = made.sql("select subject, sum(len(subscriptions))::bigint from notifications group by all")
    assert rows(made.gold["subject_counts"], "subject", "generated") == sorted(generated, key=str)


def test_t08_events_that_a_subscription_saw_are_those_of_duckdb(made: Made) -> None:
    seen = made.sql(
        "select v.id, count(e.offset) from subscriptions v left join events e on (v.subject in (e.subject, '*')) "
        "and e.offset >= v.from_offset and (v.to_offset is null or e.offset < v.to_offset) group by all"
    )
    counts = made.gold["subscription_counts"]
    assert rows(counts, "id", "events_seen") == sorted(seen, key=str)
    matched = made.sql("select s, count(*) from (select unnest(subscriptions) as s from notifications) group by all")
    assert rows(counts[counts.generated > 0], "id", "generated") == sorted(matched, key=str)


def test_t08_latencies_are_those_of_pandas(made: Made) -> None:
    taken = made.gold["acknowledgements"]
    published = dict(made.sql('select "offset", published_us from events'))
    own = 'select "user", session, number, at_us, coalesce(event_offset, "offset") from notifications'
    notified = {row[:3]: row[3:] for row in made.sql(own)}
    accepted = dict(made.sql('select "offset", at_us from events'))
    found_for = [notified[each.user, each.session, each.number] for each in taken.itertuples()]
    assert taken["matched_us"].tolist() == [at_us for at_us, _ in found_for]
    assert taken["accepted_us"].tolist() == [accepted.get(event, at_us) for at_us, event in found_for]
    begin = pd.Series([published.get(event) for _, event in found_for], taken.index, dtype=float)
    parts = {
        "accepting": taken.accepted_us - begin,
        "matching": taken.matched_us - taken.accepted_us,
        "away": taken.away_us,
        "acknowledging": taken.taken_us - taken.matched_us - taken.away_us,
        "total": taken.taken_us - begin.fillna(taken.accepted_us),
    }
    scopes: dict[str, list[str]] = {
        "server": [],
        "subject": ["subject"],
        "user": ["user"],
        "device": ["user", "device"],
    }
    expected = set()
    for scope, by in scopes.items():
        for part, values in parts.items():
            keys = [taken[name] for name in by] or [pd.Series("", taken.index)]
            for key, own in values.groupby(keys):
                own = own.dropna() / 1_000
                if len(own):
                    names = dict(zip(by, key if isinstance(key, tuple) else (key,), strict=False))
                    quantiles = (round(float(own.quantile(share)), 6) for share in (0.5, 0.95, 0.99, 1.0))
                    identity = (names.get(name) for name in ("subject", "user", "device"))
                    expected.add((scope, *identity, part, len(own), *quantiles))
    found = made.gold["latencies"].round(6)
    shown = ("scope", "subject", "user", "device", "part", "acknowledgements", "p50_ms", "p95_ms", "p99_ms", "max_ms")
    assert set(rows(found, *shown)) == expected


def test_t08_depths_of_queues_are_those_of_a_count_at_each_moment(made: Made) -> None:
    matches = made.gold["matches"]
    changes: dict[tuple[str, str], Counter[int]] = {}
    for each in matches.itertuples():
        own = changes.setdefault((each.user, each.session), Counter())
        own[each.at_us] += 1
        if not pd.isna(each.ended_us):
            own[int(each.ended_us)] -= 1
    expected = []
    for (user, session), own in changes.items():
        depth = 0
        buckets: dict[int, tuple[int, int]] = {}
        for at_us in sorted(own):
            bucket = at_us // BUCKET_US * BUCKET_US
            most = max(depth, depth + own[at_us], buckets.get(bucket, (0, 0))[1])
            depth += own[at_us]
            buckets[bucket] = (depth, most)
        expected += [(user, session, bucket, *values) for bucket, values in buckets.items()]
    assert rows(made.gold["queue_depths"], "user", "session", "from_us", "depth", "depth_max") == sorted(
        expected, key=str
    )


def test_t08_absences_and_moves_are_those_of_the_fold_and_heal_with_the_first_taking(made: Made) -> None:
    away, moved = [], []
    for user in USERS:
        times = folded(made.log.records, user)[1].times
        away += [(user, *each) for each in times.absences]
        moved += [(user, *each) for each in times.moves]
    assert rows(made.gold["absences"], "user", "device", "from_us", "to_us", "reason", "ended") == sorted(away, key=str)
    moves, taken = made.gold["moves"], made.gold["acknowledgements"]
    assert rows(moves, "user", "device", "moved_us", "former", "address") == sorted(moved, key=str)
    assert moves["healed_us"].notna().any()
    for each in moves.itertuples():
        own = moves[(moves.user == each.user) & (moves.device == each.device) & (moves.moved_us > each.moved_us)]
        end = own["moved_us"].min() if len(own) else float("inf")
        after = taken[(taken.user == each.user) & (taken.device == each.device)]
        after = after[(after.taken_us >= each.moved_us) & (after.taken_us < end)].sort_values(["taken_us", "offset"])
        if len(after):
            first = after.iloc[0]
            assert (each.healed_us, each.healing_us) == (
                first.taken_us,
                first.taken_us - max(each.moved_us, first.matched_us),
            )
        else:
            assert pd.isna(each.healed_us)


def test_t08_counts_of_devices_are_those_of_pandas(made: Made) -> None:
    devices = made.gold["device_counts"].set_index(["user", "device"])
    taken, away, moves = (made.gold[name] for name in ("acknowledgements", "absences", "moves"))
    by = ["user", "device"]
    expected = pd.DataFrame(
        {
            "taken": taken.groupby(by).size(),
            "redelivered": taken.groupby(by)["is_redelivered"].sum(),
            "absences": away.groupby(by).size(),
            "away_us": (away.to_us - away.from_us).groupby([away.user, away.device]).sum(),
            "moves": moves.groupby(by).size(),
            "healed": moves.groupby(by)["healed_us"].count(),
            "events": pd.Series({("sip:airline@localhost", "d"): made.sql("select count(*) from events")[0][0]}),
        }
    ).fillna(0)
    for name in expected:
        assert devices[name].sort_index().tolist() == expected[name].sort_index().tolist(), name
    healing = (moves.healing_us / 1_000).groupby([moves.user, moves.device]).median()
    own = devices["healing_p50_ms"].dropna()
    assert own.round(6).to_dict() == healing.dropna().round(6).to_dict()
    assert not devices["repeated_events"].any()


def test_t08_coverings_are_all_pairs_that_cover(made: Made) -> None:
    live = made.sql("select subject, expression, min(id), count(*) from subscriptions where is_live group by all")
    expected = set()
    for subject, expression, identity, count in live:
        for other_subject, other_expression, other, other_count in live:
            if subject == other_subject and identity != other:
                one, its = parse(expression).root, parse(other_expression).root
                if covers(one, its):
                    expected.add((subject, identity, count, other, other_count, covers(its, one)))
    names = ("subject", "covering", "covering_subscriptions", "covered", "covered_subscriptions", "is_equal")
    found = set(rows(made.gold["coverings"], *names))
    assert found == {each for each in expected if not each[-1] or each in found}
    assert found


def test_t08_a_period_has_the_matches_that_begin_in_it_with_their_outcomes_at_its_end(
    spark: SparkSession, made: Made
) -> None:
    times = sorted({each.at_us for each in made.log.records})
    period = Period(times[len(times) // 3], times[2 * len(times) // 3])
    gold = gold_of(spark, made.lake, period)
    before = [each for each in made.log.records if each.at_us < (period.to_us or 0)]
    expected = []
    for user in USERS:
        for each in folded(before, user)[0]:
            if isinstance(each, Fate) and each.match.at_us >= (period.from_us or 0):
                expected.append((user, each.match.session, each.match.number, each.match.subscription, each.outcome))
    assert rows(gold["matches"], "user", "session", "number", "subscription", "outcome") == sorted(expected, key=str)
    events = made.sql(f"select count(*) from events where at_us >= {period.from_us} and at_us < {period.to_us}")
    assert gold["subject_counts"]["events"].sum() == events[0][0]
    live = made.sql(
        f"select id from subscriptions where from_us < {period.to_us} and (to_us is null or to_us >= {period.to_us})"
    )
    counts = gold["subscription_counts"]
    assert rows(counts[counts.is_live], "id") == sorted(live, key=str)
