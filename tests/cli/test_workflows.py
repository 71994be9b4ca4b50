"""`dibs workflows`, and what `dibs tasks` says about waiting."""

from __future__ import annotations

import pytest
from cli_support import PATIENCE, Cli

from dibs import Dibs, chain, group
from dibs.client.workflows import Workflow


@pytest.fixture
def workflow(shop: Dibs) -> Workflow:
    """One that fails in its second step."""
    send, broken = shop.task_named("shop.send"), shop.task_named("shop.broken")
    last = send.using(priority=95, tenant="acme", per="ada", expires=3600).call(to="bob")
    many = group(send.call(to=f"ada {each}") for each in range(20))
    return shop.enqueue_workflow(chain(many, broken.call(number=1), last), name="letters")


def work(shop: Dibs) -> None:
    """Run everything there is."""
    with shop.worker(until_idle=True) as worker:
        worker.wait(PATIENCE)


def test_list(cli: Cli, shop: Dibs, workflow: Workflow) -> None:
    newer = shop.enqueue_workflow(shop.task_named("shop.refused").call())
    lines = [line.split() for line in cli("workflows", "list").out.splitlines()]
    assert lines[0] == ["ID", "NAME", "STATE", "TASKS", "ENDED", "DEAD", "CANCELLED", "AGE"]
    assert lines[1][:3] == [newer.id, "running", "1"]
    assert lines[2][:7] == [workflow.id, "letters", "running", "22", "0", "0", "0"]
    data = cli("workflows", "list", "--json").json
    assert [(each["id"], each["state"], each["progress"]) for each in data] == [
        (newer.id, "running", 0.0),
        (workflow.id, "running", 0.0),
    ]
    page = cli("workflows", "list", "--limit", "1")
    assert f"--before {newer.id}" in page.err
    assert workflow.id in cli("workflows", "list", "--limit", "1", "--before", newer.id).out


def test_nothing_to_list(cli: Cli, shop: Dibs) -> None:
    assert cli("workflows", "list").out == "No workflows.\n"
    assert cli("workflows", "list", "--json").json == []


def test_show(cli: Cli, shop: Dibs, workflow: Workflow) -> None:
    work(shop)
    text = cli("workflows", "show", workflow.id).out
    for words in (
        f"letters {workflow.id}: failed",
        "22 of 22 tasks ended (100%)",
        "20 completed, 1 cancelled, 1 dead",
        "shop.send × 20",
        "after 1",
    ):
        assert words in text
    chart = cli("workflows", "show", workflow.id, "--mermaid").out
    assert chart.startswith("flowchart TD\n")
    assert "t0 --> t1" in chart
    data = cli("workflows", "show", workflow.id, "--json").json
    assert (data["state"], len(data["nodes"]), len(data["edges"])) == ("failed", 22, 21)


def test_cancel_asks_first(cli: Cli, shop: Dibs, workflow: Workflow) -> None:
    refused = cli("workflows", "cancel", workflow.id, answer="n\n")
    assert refused.code == 1
    assert "Cancel 22 tasks?" in refused.err
    assert cli("workflows", "cancel", workflow.id, "--yes", "--reason", "no").out == f"{workflow.id} cancelled\n"
    assert cli("workflows", "cancel", workflow.id, "--json").json == {"id": workflow.id, "changed": False}
    assert workflow.status().state == "cancelled"


def test_replay(cli: Cli, shop: Dibs, workflow: Workflow) -> None:
    assert cli("workflows", "replay", workflow.id).out == f"{workflow.id} has nothing to replay\n"
    work(shop)
    assert cli("workflows", "replay", workflow.id).out == f"{workflow.id} replayed\n"
    assert workflow.status().state == "running"


def test_an_unknown_one_is_refused(cli: Cli, shop: Dibs) -> None:
    for verb in ("show", "cancel", "replay"):
        cli("workflows", verb, "0190163d-8694-739b-aea5-966c26f8ad91").refused(6, "no workflow has the id 0190163d")


def test_a_task_shows_what_it_waits_for(cli: Cli, shop: Dibs, workflow: Workflow) -> None:
    first, broken, last = workflow.handles[0], workflow.handles[-2], workflow.handles[-1]
    text = cli("tasks", "show", last.id).out
    for words in ("waits for", broken.id, "otherwise cancel", workflow.id, "acme", "ada", "expires", "blocked"):
        assert words in text
    assert "70, counts as 95 because of what waits for it" in cli("tasks", "show", first.id).out
    assert "and 1 more" not in cli("tasks", "show", broken.id).out
    data = cli("tasks", "show", last.id, "--json").json
    assert [(need["id"], need["rule"], need["is_open"]) for need in data["needs"]] == [(broken.id, "cancel", True)]
    assert (data["task"]["tenant"], data["task"]["partition"]) == ("acme", "ada")


def test_filters(cli: Cli, shop: Dibs, workflow: Workflow) -> None:
    shop.task_named("shop.refused").enqueue()
    assert cli("tasks", "count", "--workflow", workflow.id).out == "22\n"
    assert cli("tasks", "count", "--tenant", "acme").out == "1\n"
