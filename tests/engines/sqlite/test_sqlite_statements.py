"""The statements of the SQLite engine: documented, used, and planned as their headers say."""

from __future__ import annotations

import asyncio
import re
import sqlite3
from importlib.resources import files
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs
from sqlite_help import new, opened

from dibs.core.moves import admit
from dibs.core.settings import Defaults, Limit, Policy, QueueSettings
from dibs.core.task import NewTask
from dibs.core.times import DAY, HOUR, SECOND
from dibs.engines.catalog import Catalog
from dibs.engines.decisions.transaction import Queue
from dibs.engines.sqlite.enqueueing import enqueue
from dibs.engines.sqlite.layout import prepare
from dibs.engines.sqlite.rows import Row, record_of
from dibs.engines.sqlite.statements import statement, statement_texts
from dibs.engines.sqlite.transaction import ROWS, Transaction
from dibs.engines.values import EnqueueOutcome
from dibs.testing.tasks import new_task

USERS = [files("dibs.engines"), files("dibs.engines.verbs"), files("dibs.engines.sqlite")]
NAMES = list(statement_texts())
NOW = 1_760_000_000 * SECOND

COMPOSED = {
    "save_dead", "save_finished", "dead_of_day", "finished_of_day", "next_dead_day", "next_finished_day",
}  # fmt: skip
"""Statements whose names are put together from the place that tasks are in."""

WHOLE_TABLES = {
    # Small tables, or a look that its header explains.
    "queues": {"dibs_queues"},
    "tracks": {"dibs_tracks"},
    "counts": {"dibs_counts"},
    "days": {"dibs_days"},
    "ids_beyond": {"d"},
    "newest": {"d", "dibs_days", "near"},
    "blocks_after": {"d"},
    "find": {"d", "dibs_days"},
    "find_each": {"d"},
    "purge_row": {"d"},
    "purge_keys_of": {"dibs_keys"},
    "claim_state_past": {"dibs_store", "dibs_steps"},  # the beginning of tables
    "prerequisites": {"d"},
    "expired": {"b"},
    "delete_batches": {"dibs_batches"},
    "enqueue_state": {"dibs_store", "dibs_days"},
    "claim_state": {"dibs_store", "dibs_steps"},  # whether it has any row
    "generation": {"dibs_store"},
    "identity": {"dibs_store"},
    "settle_state": {"dibs_store", "dibs_edges"},  # whether the index has any entry
    "next_generation": {"dibs_store"},
    "new_presence": {"dibs_store"},
    "workers": {"dibs_workers"},
    "bytes_held": {"dibs_workers"},
    "expired_workers": {"dibs_workers"},
    "prune_workers": {"dibs_workers"},
    "chores": {"dibs_chores"},
    "schedules": {"dibs_schedules"},
    "next_fire": {"dibs_schedules"},  # the beginning of an index
    "prompt_steps": {"dibs_steps"},  # from the beginning of an index, and limited, as those below
    "open_steps": {"dibs_steps"},
    "first_steps": {"dibs_steps"},
    "term": {"dibs_term"},
    "resign": {"dibs_term"},
    "end_term": {"dibs_term"},
    "audit": {"dibs_audit"},  # backwards from its end, and limited
    "prune_audit": {"dibs_audit"},
    "watches": {"dibs_watches"},
    "forget_watches": {"dibs_watches"},
    "events_horizon": {"sqlite_sequence"},
    "events_trimmed": {"dibs_store"},
    "mark_trimmed": {"dibs_store"},
    "events_to_trim": {"dibs_events"},  # from its beginning, and limited
}
"""Statement → what it may scan. Everything else must seek."""


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> sqlite3.Connection:
    """A store with enough in it to matter to the planner."""
    path = tmp_path_factory.mktemp("plans") / "x.db"

    async def fill() -> None:
        async with opened(path) as engine:
            await engine.enqueue([new(delay=i % 2 * SECOND) for i in range(2000)])

    asyncio.run(fill())
    return sqlite3.connect(path)


def plan_of(connection: sqlite3.Connection, name: str) -> list[str]:
    text = statement(name)
    numbered = [int(number) for number in re.findall(r"\?(\d+)", text)]
    count = max(numbered) if numbered else text.count("?")
    plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {text}", [None] * count)]
    connection.rollback()
    return plan


@pytest.mark.parametrize("name", sorted({*NAMES} - COMPOSED))
def test_has_a_header_and_a_user(name: str) -> None:
    assert statement_texts()[name].startswith("-- ")
    sources = [path.read_text() for folder in USERS for path in Path(str(folder)).glob("*.py")]
    assert any(f'"{name}"' in source for source in sources), f"nobody uses {name}"


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("analyzed", [False, True], ids=["fresh", "analyzed"])
def test_never_scans_what_can_grow(name: str, analyzed: bool, filled: sqlite3.Connection) -> None:
    if analyzed:
        filled.execute("ANALYZE")
    plan = plan_of(filled, name)
    scans = [step for step in plan if step.startswith("SCAN")]
    allowed = WHOLE_TABLES.get(name, set()) | {
        "json_each", "wanted", "run", "due", "looked", "heads", "found", "CONSTANT",
    }  # fmt: skip
    derived = r"\(subquery|\(join|\d+ CONSTANT|.*VIRTUAL TABLE"
    found = {step.split()[1] for step in scans if not re.match(rf"SCAN ({derived})", step) and "LEFT" not in step}
    assert found <= allowed, plan


def test_claims_read_the_index_in_order(filled: sqlite3.Connection) -> None:
    plan = plan_of(filled, "read_track")
    found = "USING INDEX dibs_pending (track=? AND gated=? AND share=? AND (rank,id)>(?,?))"
    assert any(found in step for step in plan), plan
    assert not any("TEMP B-TREE" in step for step in plan), plan


@pytest.mark.parametrize(
    ("name", "how"),
    [
        ("read_group", "COVERING INDEX dibs_partitions (partition=? AND state=? AND track=? AND share=? AND ("),
        ("read_groups", "COVERING INDEX dibs_partitions (partition=? AND state=? AND track=? AND share=? AND ("),
        ("gated_heads", "dibs_partitions (partition=? AND state=? AND track=? AND share>?)"),
        ("gated_heads", "dibs_partitions (partition=? AND state=? AND track>?)"),
        ("turn_order", "dibs_turn_order (track=?)"),
        ("read_track", "dibs_pending (track=? AND gated=? AND share=? AND (rank,id)>(?,?))"),
        ("read_tracks", "dibs_pending (track=? AND gated=? AND share=? AND (rank,id)>(?,?))"),
        ("reset_passed", "dibs_turn_order (track=? AND virtual_time>? AND virtual_time<?)"),
        ("save_turns", "PRIMARY KEY (track=? AND share=?)"),
        ("delete_turns", "PRIMARY KEY (track=? AND share=?)"),
        ("forget_turns", "PRIMARY KEY (track=? AND share=?)"),
        ("close_edges", "PRIMARY KEY (dependent=? AND slot=?)"),
        ("save_edge_weights", "PRIMARY KEY (dependent=? AND slot=?)"),
        ("open_edges", "PRIMARY KEY (dependent=? AND slot=?)"),
        ("forget_edges", "PRIMARY KEY (dependent=? AND slot=?)"),
        ("open_edges_to", "COVERING INDEX dibs_followed (prerequisite=?)"),
        ("needing", "COVERING INDEX dibs_needed (dependent=?)"),
        ("followed", "COVERING INDEX dibs_followed (prerequisite=?)"),
        ("partition_loads", "PRIMARY KEY (queue=? AND scope=? AND whose=?)"),
        ("partition_loads", "COVERING INDEX dibs_slots (partition=? AND state=?)"),
        ("forget_refills", "PRIMARY KEY (queue=? AND scope=? AND whose=?)"),
        ("members", "dibs_members (workflow=? AND id>?)"),
        ("batch_sizes", "COVERING INDEX dibs_batched (batch=?)"),
        ("delete_batches", "COVERING INDEX dibs_batched (batch=?)"),
        ("blocks", "PRIMARY KEY (trait=? AND block>? AND block<?)"),
        ("blocks_between", "PRIMARY KEY (trait>? AND trait<?)"),
        ("blocks_after", "PRIMARY KEY ((trait,block)>(?,?))"),
        ("delete_blocks", "PRIMARY KEY (trait=? AND block=?)"),
        ("claim_state", "USING INDEX dibs_prompt_steps"),
        ("prompt_steps", "USING INDEX dibs_prompt_steps"),
        ("open_steps", "USING INDEX dibs_open_steps"),
    ],
)
def test_deep_things_are_reached_by_all_their_columns(name: str, how: str, filled: sqlite3.Connection) -> None:
    """A partition, a track or a task's edges may be thousands: half a key would read them all."""
    plan = plan_of(filled, name)
    assert any(how in step for step in plan), plan
    assert not any("TEMP B-TREE FOR ORDER BY" in step for step in plan), plan


@pytest.mark.parametrize(
    ("name", "how"),
    [
        ("newest", "INDEX dibs_cancelled (id>? AND id<?)"),
        ("unfinished_in", "INDEX dibs_later (track=? AND state=? AND id>? AND id<?)"),
        ("unfinished_in", "INDEX dibs_blocked (track=? AND id>? AND id<?)"),
        ("unfinished_in", "INDEX dibs_pending (track=?)"),
        ("newest", "dibs_tasks USING PRIMARY KEY (id>? AND id<?)"),
        ("newest", "f USING PRIMARY KEY (day=? AND id>? AND id<?)"),
    ],
)
def test_searches_read_ranges(name: str, how: str, filled: sqlite3.Connection) -> None:
    plan = plan_of(filled, name)
    assert any(how in step for step in plan), plan


options = st.builds(
    Defaults, retries=st.none() | st.integers(0, 9), lease=st.none() | st.integers(SECOND, HOUR), timeout=st.none()
)
settings = st.builds(
    QueueSettings,
    policy=st.sampled_from(Policy),
    max_aging_bonus=st.none() | st.integers(0, 100),
    defaults=options,
    fair=st.booleans(),
    per_partition=st.none() | st.just(Limit(1)),
)
numbers = st.floats(allow_nan=False, allow_infinity=False)
tasks = st.builds(
    new_task,
    id=st.uuids().map(str),
    queue=st.just("default"),
    name=st.sampled_from(["work", "play"]),
    args=st.sampled_from([b"{}", b'{"a": "\\u0000\\" \\\\"}', '{"x":"é😀"}'.encode()]),
    priority=st.integers(0, 100),
    delay=st.sampled_from([0, 1, HOUR]),
    at=st.none() | st.integers(NOW - DAY, NOW + DAY),
    deadline=st.none() | st.integers(NOW - DAY, NOW + DAY),
    options=options,
    app_options=options,
    key=st.none() | st.text(max_size=3),
    requires=st.sampled_from([(), ("gpu",), ("gpu", "host:a")]),
    metadata=st.dictionaries(
        st.text(max_size=3), st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=3), max_size=2
    ),
    headers=st.dictionaries(st.text(max_size=3), st.text(max_size=3), max_size=2),
    partition=st.sampled_from([None, None, "p", "ö q"]),
    tenant=st.sampled_from(["", "", "acme", "z"]),
    expires_at=st.none() | st.integers(NOW + 1, NOW + DAY),
    workflow=st.sampled_from([None, None, "w"]),
    takes=st.booleans(),
)


@given(settings, st.lists(tasks, min_size=1, max_size=25))
def test_the_short_way_in_is_the_way_of_core(chosen: QueueSettings, batch: list[NewTask]) -> None:
    """`enqueue` writes exactly what `moves.admit` says, however many columns and tasks a statement takes."""
    connection = sqlite3.connect(":memory:", isolation_level=None)
    prepare(connection, Path(":memory:"), 0)
    transaction = Transaction(connection, Catalog(), NOW)
    transaction.refresh()
    transaction.put_queue(Queue("default", settings=chosen))
    batch = [
        structs.replace(task, id=f"{task.id}/{n}")
        for task in {task.id: task for task in batch}.values()
        for n in range(ROWS + 1 if task is batch[0] else 2)
    ]
    answers = enqueue(transaction, batch, atomic=False)
    batch = [task for task, answer in zip(batch, answers, strict=True) if answer.outcome is EnqueueOutcome.ENQUEUED]
    stored = transaction.find_rows([task.id for task in batch])
    for task in batch:
        row = stored[task.id]
        assert isinstance(row, Row)
        track = transaction.catalog.tracks[row.track]
        record = record_of(row, track)
        assert record == admit(task, chosen, NOW)
    connection.close()
