"""enqueue, where something has to be decided: each item in order, then what was accepted is stored.

A store has a short way for tasks that are plain (`decisions.enqueueing.all_plain`), and this for all others.
"""

from __future__ import annotations

from collections import Counter as Totals
from collections.abc import Sequence

import msgspec
from msgspec import Struct, structs

from dibs.core.limits import Bucket
from dibs.core.states import State
from dibs.core.task import NewTask
from dibs.core.times import Instant
from dibs.engines.decisions.encoding import to_json
from dibs.engines.decisions.enqueueing import HeldKey, Known, answer_all, replace_all, unreadable_key
from dibs.engines.port import Port, Read
from dibs.engines.unreadable import state_or
from dibs.engines.values import EnqueueAnswer, NewWorkflow
from dibs.engines.verbs.dependencies import inherit_again
from dibs.engines.verbs.records import Records

__all__ = ["KEYS", "decide", "enqueue", "store"]


class StoredKey(Struct, array_like=True, frozen=True):
    """A key as it is stored. The key itself is JSON, because users choose it and it may contain anything."""

    queue: str
    key: str
    task: str
    fingerprint: str
    held_until: Instant


KEYS = Read("keys", StoredKey, "key", (0, 1))
"""Takes (queue, key) rows, in order: those that tasks hold. Until this transaction ends, no other takes one of them."""
PREREQUISITES = Read("prerequisites", tuple[str, object], "task")
"""Takes ids, in order: those that exist, as (id, state). They stay so until this transaction ends."""
CLIENT_BUCKETS = Read("client_buckets", tuple[str, str, int, Instant], "limit of client", (0, 1))
"""Takes (queue, client) rows, in order: their buckets, as (queue, client, level, at), of those that have one or may get
one: then the level is negative. Until this transaction ends, no other spends from them."""

key_decoder = msgspec.json.Decoder(str)


async def enqueue(
    port: Port, tasks: Sequence[NewTask], atomic: bool, workflow: NewWorkflow | None = None
) -> list[EnqueueAnswer]:
    known, answers = await decide(port, tasks, atomic)
    if not known.refused:
        await store(port, known, workflow)
    return answers


async def decide(
    port: Port, tasks: Sequence[NewTask], atomic: bool, highest: str | None = None
) -> tuple[Known, list[EnqueueAnswer]]:
    """What is known of these tasks, with what was decided about them, and the answers.

    `highest`: no stored task has a higher id, which saves nearly all lookups.
    """
    for new in tasks if port.unreadable_queues else ():
        port.check_queue(new.queue)
    known = await known_about(port, tasks, highest)
    answers = answer_all(port, known, atomic)
    if known.refused:
        await hold_keys(port, known, {})
    return known, answers


async def known_about(port: Port, tasks: Sequence[NewTask], highest: str | None) -> Known:
    """Read what decides about these tasks."""
    known = Known(tasks, port.queues, port.now)
    if wanted := known.wanted_keys():
        await know_keys(port, known, wanted)
    if needed := sorted(each for each in known.prerequisites() if highest is None or each <= highest):
        known.states = {each: state_or(state, State.PENDING) for each, state in await port.read(PREREQUISITES, needed)}
    if ids := [new.id for new in tasks if highest is None or new.id <= highest]:
        known.know((await port.find(ids)).values())
    if bounded := known.bounded():
        await port.flush()  # what this transaction has counted before
        known.depths = {queue: await port.depth(queue) for queue in bounded}
    if limited := known.limited_clients():
        rows = await port.read(CLIENT_BUCKETS, [(queue, client) for queue, client, _ in limited])
        buckets = {(queue, client): Bucket(level, at) for queue, client, level, at in rows if level >= 0}
        for queue, client, limit in limited:
            known.know_bucket(queue, client, limit, buckets.get((queue, client)))
    return known


async def know_keys(port: Port, known: Known, wanted: set[tuple[str, str]]) -> None:
    """Read keys, and the tasks that hold them."""
    found = await port.fetch(KEYS, sorted((queue, to_json(key)) for queue, key in wanted))
    for each in found.rows:
        known.keys[each.queue, key_decoder.decode(each.key)] = HeldKey(each.task, each.fingerprint, each.held_until)
    for queue, key, task, *_ in found.unread:
        known.keys[queue, key_decoder.decode(key)] = unreadable_key(str(task))
    if known.keys:
        known.know(await port.load(list({held.task: None for held in known.keys.values()})))


async def store(port: Port, known: Known, workflow: NewWorkflow | None = None) -> None:
    """Write what was decided."""
    if workflow is not None:
        await port.write("add_workflow", workflow.id, workflow.name, port.now)
    if known.staged:
        await add_new(port, known)
    if known.replacements:
        records = Records(port)
        await records.load(task_id for _, task_id in known.replacements)
        replace_all(port, known, records)
        await records.flush()
    await hold_keys(port, known, known.held_keys())
    if spent := known.spent_buckets():
        await port.write("save_buckets", spent)
    # Without ended ones: two transactions that share a lock on one would deadlock when both want it exclusively.
    if needed := known.needed():
        await inherit_again(port, needed)


async def add_new(port: Port, known: Known) -> None:
    """Store new tasks with their edges; those whose edges end them at once are stored as ended."""
    staged, heirs = known.staged.values(), known.heirs()
    port.make_queues({new.queue for new in staged})
    records = Records(port)
    for new in staged:
        records.put(*known.admit(new, heirs))
    for queue, state in {(new.queue, known.states[new.id]) for new in staged}:
        port.tell(queue, state)
    if edges := known.edges(records):
        await port.write("save_edges", edges)
    await records.flush()
    if members := [new.spec.workflow for new in staged if new.spec.workflow is not None]:
        await port.write("count_members", list(Totals(members).items()))


async def hold_keys(port: Port, known: Known, held: dict[tuple[str, str], HeldKey]) -> None:
    """Give keys to the stored tasks; those that nobody got are free again."""
    if held:
        rows = [(queue, to_json(key), *structs.astuple(each)) for (queue, key), each in held.items()]
        await port.write("save_keys", rows)
    if free := known.wanted_keys() - known.keys.keys() - held.keys():
        await port.write("delete_keys", sorted((queue, to_json(key)) for queue, key in free))
