"""Workflows as a whole: enqueueing, looking, waiting, cancelling, replaying, drawing."""

from __future__ import annotations

import asyncio
import re
import threading
from typing import Any
from uuid import uuid4

import pytest
from msgspec import structs

from dibs import Dibs, Filter, Permanent, State, Task, chain, group, take
from dibs.client.workflows import WorkflowState
from dibs.engines.values import Page, Query
from dibs.errors import Closed, InvalidOption, QueueDraining, UnknownTask, UnknownWorkflow, WrongThread
from dibs.testing import ManualClock, Sandbox

from .conftest import TIMEOUT

Work = Task[..., str]
BROKEN = {"now": True}
LAST_ID = "ffffffff-ffff-7fff-bfff-ffffffffffff"


@pytest.fixture
def work(app: Dibs) -> Work:
    return define(app)


def define(app: Dibs) -> Work:
    BROKEN["now"] = True

    @app.task(name="work", retries=0)
    def work(text: str = "", fail: bool = False) -> str:
        if fail and BROKEN["now"]:
            raise Permanent(text)
        return text

    return work


def run(app: Dibs) -> None:
    """Run everything there is."""
    with app.worker(until_idle=True) as worker:
        worker.wait(TIMEOUT)


def test_a_workflow_is_enqueued_and_followed(app: Dibs, work: Work) -> None:
    first, second, third = (work.call(text) for text in "abc")
    workflow = app.enqueue_workflow(chain(first, group(second, third)), name="import")
    assert (workflow.name, len(workflow.handles)) == ("import", 3)
    assert [handle.id for handle in workflow.handles] == [first.id, second.id, third.id]
    assert repr(workflow) == f"<Workflow {workflow.id} of 3 tasks>"
    info = workflow.status()
    assert (info.id, info.name, info.state, info.total, info.ended) == (workflow.id, "import", "running", 3, 0)
    assert (info.counts[State.BLOCKED], info.counts[State.PENDING], info.progress) == (2, 1, 0.0)
    assert not info.is_done
    with app.worker():
        info = workflow.wait(TIMEOUT)
    assert (info.state, info.ended, info.progress, info.is_done) == (WorkflowState.COMPLETED, 3, 1.0, True)
    assert [workflow[call].result() for call in (first, second, third)] == ["a", "b", "c"]


def test_in_async_code(app: Dibs, work: Work) -> None:
    async def use() -> list[str]:
        flow = chain(work.call("a"), work.call("b"))
        workflow = await app.aenqueue_workflow(flow, "x")
        done = await workflow.await_end(TIMEOUT)
        assert (await workflow.astatus()) == done
        assert len((await workflow.agraph()).nodes) == 2
        assert not await workflow.acancel()
        assert not await workflow.areplay()
        assert (await app.workflows.await_end(workflow.id)) == (await app.workflows.alist())[0]
        return [await handle for handle in workflow.handles]

    with app.worker():
        assert asyncio.run(use()) == ["a", "b"]


def test_all_or_nothing(app: Dibs, work: Work) -> None:
    app.queues.set("narrow")
    app.queues.drain("narrow")
    calls = [work.call("a"), work.using(queue="narrow").call("b")]
    with pytest.raises(QueueDraining):
        app.enqueue_workflow(chain(*calls))
    with pytest.raises(UnknownTask, match="which is not there"):
        app.enqueue_workflow(chain(work.call("a"), work.using(after=str(uuid4())).call("b")))
    assert (app.tasks.count().count, app.workflows.list()) == (0, [])


def test_enqueueing_again_changes_nothing(app: Dibs, work: Work) -> None:
    flow = chain(work.call("a"), work.call("b"))
    one = app.enqueue_workflow(flow, name="x")
    run(app)
    two = app.enqueue_workflow(flow, name="x")
    assert (one.id, one.status()) == (two.id, two.status())
    assert [handle.duplicate for handle in (*one.handles, *two.handles)] == [False, False, True, True]
    assert len(app.workflows.list()) == 1


def test_a_handle_for_each_call_of_its_own(app: Dibs, work: Work) -> None:
    workflow = app.enqueue_workflow(work.call("a"))
    with pytest.raises(InvalidOption, match="is not part of this workflow"):
        workflow[work.call("b")]
    with pytest.raises(InvalidOption, match="a workflow's name must be a text"):
        app.enqueue_workflow(work.call("a"), name="x" * 300)


def test_list_newest_first(app: Dibs, work: Work) -> None:
    ids = [app.enqueue_workflow(chain(work.call(), work.call()), name=str(each)).id for each in range(3)]
    found = app.workflows.list()
    assert [(info.id, info.name) for info in found] == [(ids[2], "2"), (ids[1], "1"), (ids[0], "0")]
    page = app.workflows.list(limit=2)
    assert [info.id for info in app.workflows.list(limit=2, before=page[-1].id)] == [ids[0]]
    with pytest.raises(InvalidOption, match="limit"):
        app.workflows.list(limit=0)


def test_tasks_can_be_found_by_workflow(app: Dibs, work: Work) -> None:
    workflow = app.enqueue_workflow(chain(work.call("a"), work.call("b")))
    work.enqueue("c")
    assert {info.id for info in app.tasks.search(Filter(workflow=workflow.id)).tasks} == {
        handle.id for handle in workflow.handles
    }
    assert {handle.refresh().workflow for handle in workflow.handles} == {workflow.id}


def test_unknown_ones_are_refused(app: Dibs) -> None:
    missing = str(uuid4())
    verbs: list[Any] = [
        app.workflows.get,
        app.workflows.cancel,
        app.workflows.replay,
        app.workflows.graph,
        app.workflows.wait,
    ]
    for verb in verbs:
        with pytest.raises(UnknownWorkflow, match=missing):
            verb(missing)


def test_cancel_ends_all_that_waits(app: Dibs, work: Work) -> None:
    workflow = app.enqueue_workflow(chain(work.call("a"), group(work.call("b"), work.call("c"))))
    other = work.enqueue()
    assert workflow.cancel("no longer wanted")
    assert not workflow.cancel()
    info = workflow.status()
    assert (info.state, info.counts[State.CANCELLED]) == (WorkflowState.CANCELLED, 3)
    assert other.refresh().state is State.PENDING
    assert workflow.handles[0].refresh().note == "no longer wanted"


def test_replay_goes_on_where_it_failed(app: Dibs, work: Work) -> None:
    first, second, third = work.call("a"), work.call("b", fail=True), work.call("c")
    workflow = app.enqueue_workflow(chain(first, second, third))
    run(app)
    info = workflow.status()
    assert (info.state, info.counts[State.DEAD], info.counts[State.CANCELLED]) == (WorkflowState.FAILED, 1, 1)
    BROKEN["now"] = False
    assert workflow.replay()
    assert workflow.status().state is WorkflowState.RUNNING
    leases = workflow[first].refresh().lease
    run(app)
    assert workflow.status().state is WorkflowState.COMPLETED
    assert workflow[first].refresh().lease == leases, "what had completed does not run again"
    assert not app.workflows.replay(workflow.id)


def test_cleaning_up_that_was_not_needed_is_no_failure(app: Dibs, work: Work) -> None:
    first = work.call("a")
    cleanup = work.using(after=[first.if_failed()]).call("clean up")
    report = work.using(after=[cleanup]).call("report")
    workflow = app.enqueue_workflow(group(first, cleanup, report))
    run(app)
    info = workflow.status()
    assert (info.state, info.counts[State.CANCELLED]) == (WorkflowState.COMPLETED, 2)
    outside = work.enqueue("x", fail=True)
    run(app)
    doomed = work.using(after=outside).call("c")
    stopped = app.enqueue_workflow(group(chain(work.call("a"), work.call("b")), chain(doomed, work.call("d"))))
    run(app)
    assert stopped.status().state is WorkflowState.CANCELLED


def test_how_it_ended_is_told_from_all_pages(app: Dibs, work: Work, monkeypatch: pytest.MonkeyPatch) -> None:
    """A page of a search may be empty and still have a cursor: others' tasks were looked at."""
    first = work.call("a")
    cleanup = work.using(after=[first.if_failed()]).call("clean up")
    good = app.enqueue_workflow(group(first, cleanup, work.using(after=[cleanup]).call("report")))
    run(app)
    stopped = app.enqueue_workflow(chain(work.using(delay=3600).call("b"), work.call("c"), work.call("d")))
    assert stopped.cancel()
    run(app)
    search = app.hub.engine.search

    async def one_by_one(query: Query) -> Page:
        return await search(structs.replace(query, limit=1)) if query.cursor else Page([], LAST_ID)

    monkeypatch.setattr(app.hub.engine, "search", one_by_one)
    assert (good.status().state, stopped.status().state) == (WorkflowState.COMPLETED, WorkflowState.CANCELLED)
    assert [len(workflow.graph().nodes) for workflow in (good, stopped)] == [3, 3]


def test_waiting_has_an_end(app: Dibs, work: Work) -> None:
    workflow = app.enqueue_workflow(chain(work.call("a"), work.call("b")))
    with pytest.raises(TimeoutError, match=rf"workflow {workflow.id} had not ended after 0\.01 s: 0 of 2 tasks had"):
        workflow.wait(0.01)


def test_waiting_inside_a_task_is_refused(app: Dibs, work: Work) -> None:
    @app.task
    def waits() -> str:
        workflow = app.enqueue_workflow(work.call("a"))
        try:
            workflow.wait()
        except WrongThread as error:
            return str(error)
        return ""

    handle = waits.enqueue()
    with app.worker():
        assert "would hold a slot" in handle.result(TIMEOUT)


def test_closing_wakes_who_waits(app: Dibs, work: Work) -> None:
    workflow = app.enqueue_workflow(work.call("a"))
    caught: list[BaseException] = []
    waiting = threading.Event()

    def wait() -> None:
        waiting.set()
        try:
            workflow.wait(TIMEOUT)
        except BaseException as error:
            caught.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    waiting.wait(TIMEOUT)
    app.close()
    thread.join(TIMEOUT)
    assert [type(error) for error in caught] == [Closed]


def test_nothing_runs_by_itself_in_a_sandbox() -> None:
    app = Dibs("memory://")
    work = define(app)
    with Sandbox(app) as sandbox:
        workflow = app.enqueue_workflow(chain(work.call("a"), work.call("b")))
        with pytest.raises(Exception, match="nothing runs by itself in a Sandbox"):
            workflow.wait(TIMEOUT)
        sandbox.run_due()
        assert workflow.wait(TIMEOUT).is_done
    app.close()


# Drawing.


def test_the_graph_of_a_workflow(app: Dibs, work: Work) -> None:
    outside = work.enqueue("o")
    first = work.using(after=outside).call("a")
    cleanup = work.using(after=[first.if_failed()]).call("c")
    workflow = app.enqueue_workflow(group(chain(first, work.call("b")), cleanup), name="import")
    graph = workflow.graph()
    assert (graph.id, graph.name) == (workflow.id, "import")
    assert [(node.id, node.outside) for node in graph.nodes][:2] == [(outside.id, True), (first.id, False)]
    assert {(edge.task, edge.after, edge.rule, edge.is_open) for edge in graph.edges} == {
        (first.id, outside.id, "cancel", True),
        (workflow.handles[1].id, first.id, "cancel", True),
        (cleanup.id, first.id, "if failed", True),
    }
    lines = graph.text().splitlines()
    assert [re.sub(r" +", " ", line).strip() for line in lines] == [
        f"1 work pending {outside.id} not in this workflow",
        f"2 work blocked {first.id} after 1",
        f"3 work blocked {cleanup.id} after 2 (if failed)",
        f"4 work blocked {workflow.handles[1].id} after 2",
    ]
    assert lines[1].startswith("2    work"), "indented by step"
    chart = graph.mermaid()
    assert chart.startswith("flowchart TD\n")
    assert '    t0[["work<br/>pending"]]' in chart
    assert '    t1 -->|"if failed"| t2' in chart
    assert "    class t1,t2,t3 blocked" in chart


def test_many_that_are_alike_are_folded(app: Dibs, work: Work) -> None:
    first = work.call("extract")
    items = group(chain(work.call(str(each)), work.using(priority=60).call(str(each))) for each in range(2000))
    workflow = app.enqueue_workflow(chain(first, items, work.call("report")))
    graph = workflow.graph()
    assert (len(graph.nodes), len(graph.edges)) == (4002, 6000)
    assert [re.sub(r" +", " ", line).strip() for line in graph.text().splitlines()] == [
        f"1 work pending {first.id}",
        "2 work × 2,000 2,000 blocked after 1",
        "3 work × 2,000 2,000 blocked after 2",
        f"4 work blocked {workflow.handles[-1].id} after 3",
    ]
    assert graph.mermaid().count("\n") == 11
    workflow.handles[1].cancel()
    assert "1,999 blocked" in workflow.graph().text()
    assert "1 cancelled" in workflow.graph().text()


def test_twelve_are_drawn_one_by_one(app: Dibs, work: Work) -> None:
    few = app.enqueue_workflow(chain(group(work.call() for _ in range(12)), work.call()))
    lines = few.graph().text().splitlines()
    assert len(lines) == 13
    assert lines[-1].endswith("after 1, 2, 3, 4, 5, 6 and 6 more")
    many = app.enqueue_workflow(group(work.call() for _ in range(13)))
    assert len(many.graph().text().splitlines()) == 1


def test_what_retention_has_pruned_is_drawn_as_gone(still: Dibs, dibs_clock: ManualClock) -> None:
    work = define(still)
    first = work.enqueue("a")
    workflow = still.enqueue_workflow(work.using(after=first).call(take(first)))
    (claim,) = still.claim()
    still.settle(claim, "completed", result="x")
    still.tasks.purge(first.id)
    graph = workflow.graph()
    gone = graph.nodes[0]
    assert (gone.id, gone.state, gone.outside) == (first.id, None, True)
    assert "pruned" in graph.text()
    assert first.id in graph.mermaid()


def test_names_can_not_break_the_chart(app: Dibs) -> None:
    graph = app.enqueue_workflow(define(app).call()).graph()
    odd = structs.replace(graph, nodes=[structs.replace(graph.nodes[0], name='a "b"')])
    assert 't0["a #quot;b#quot;<br/>pending"]' in odd.mermaid()
