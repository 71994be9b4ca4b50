"""The Grafana dashboard: its queries are valid, know the catalogue of metrics, and find data in a busy store.

And the files that bring the figures there.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple
from urllib.request import urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families

from deploy.command_lines import DEPLOY, ROOT, documents
from dibs import Dibs, Permanent
from dibs.core.times import HOUR
from dibs.exporters.prometheus import exposition
from dibs.integrations.prometheus import serve_metrics
from dibs.observe import metrics
from dibs.observe.metrics import METRICS, Kind, Metric, Sample, Scope
from servers.live import LiveServer
from servers.postgres import new_url

GRAFANA = DEPLOY / "grafana"
DASHBOARD: dict[str, Any] = json.loads((GRAFANA / "dibs.json").read_text())
ROWS = [panel for panel in DASHBOARD["panels"] if panel["type"] == "row"]
PANELS: list[dict[str, Any]] = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]

DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
OF_PROMETHEUS = {"job", "instance"}

NOT_HERE = {metrics.EVICTED: "the store of the test is PostgreSQL, which evicts nothing"}
"""Metrics without a sample in the busy store, and why."""

METRIC = re.compile(r"\b(dibs_\w+)(?:\{([^}]*)\})?")
MATCHER = re.compile(r'(\w+)\s*(?:=~|!~|!=|=)\s*"')
GROUPING = re.compile(r"\bby \(([^)]*)\) \(")

needs_promtool = pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")


class Query(NamedTuple):
    """One target of a panel."""

    panel: str
    expr: str
    legend: str

    def of(self, job: str) -> str:
        """With values for the variables of the dashboard, the servers being of this job."""
        values = {"$job": job, "$processes": f"{job}|workers", "$queue": ".+", "$__rate_interval": "5m"}
        expr = self.expr
        for name, value in values.items():
            expr = expr.replace(name, value)
        assert "$" not in expr, expr
        return expr


QUERIES = [
    Query(panel["title"], target["expr"], target["legendFormat"]) for panel in PANELS for target in panel["targets"]
]
queries = pytest.mark.parametrize("query", QUERIES, ids=lambda query: query.panel)


def known_samples() -> dict[str, Metric]:
    """The metric to which a name in a query belongs."""
    known: dict[str, Metric] = {}
    for metric in METRICS:
        ends = ("_bucket", "_count", "_sum") if metric.kind is Kind.HISTOGRAM else ("",)
        known.update({f"{metric.full_name}{end}": metric for end in ends})
    return known


KNOWN = known_samples()


def metrics_in(expr: str) -> list[Metric]:
    return [KNOWN[found[1]] for found in METRIC.finditer(expr)]


def labels_of(name: str) -> set[str]:
    return {*KNOWN[name].labels, *OF_PROMETHEUS, *(["le"] if name.endswith("_bucket") else [])}


def names_in(grouping: str) -> set[str]:
    return {name.strip() for name in grouping.split(",")}


def body(expr: str, start: int) -> str:
    """What is in the parentheses that open just before `start`."""
    depth = 1
    for place in range(start, len(expr)):
        depth += {"(": 1, ")": -1}.get(expr[place], 0)
        if depth == 0:
            return expr[start:place]
    raise AssertionError(f"unbalanced: {expr}")


# The file.


def test_it_can_be_imported_and_provisioned() -> None:
    """Its data source is a variable: `__inputs` would be asked for by an import only."""
    assert (DASHBOARD["uid"], DASHBOARD["title"], DASHBOARD["schemaVersion"]) == ("dibs", "Dibs", 39)
    assert "id" not in DASHBOARD
    assert "__inputs" not in DASHBOARD
    variables = {each["name"]: each for each in DASHBOARD["templating"]["list"]}
    assert [*variables] == ["datasource", "job", "queue", "processes"]
    assert (variables["datasource"]["type"], variables["datasource"]["query"]) == ("datasource", "prometheus")
    for name in ("job", "queue", "processes"):
        assert variables[name]["datasource"] == DATASOURCE
        assert variables[name]["query"]["query"] == variables[name]["definition"]
        assert set(METRIC.findall(variables[name]["definition"])[0][:1]) <= set(KNOWN)
    assert [row["title"] for row in ROWS] == [
        "Overview",
        "Waiting",
        "Running",
        "Failures",
        "Workers",
        "Store",
        "Server",
    ]


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel["title"])
def test_a_panel_has_a_title_a_unit_and_queries(panel: dict[str, Any]) -> None:
    assert panel["title"]
    assert panel["description"].endswith(".")
    assert panel["datasource"] == DATASOURCE
    assert panel["fieldConfig"]["defaults"]["unit"]
    assert panel["targets"]
    assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"])
    for target in panel["targets"]:
        assert target["datasource"] == DATASOURCE
        assert target["expr"]
        assert panel["type"] == "stat" or target["legendFormat"] != "__auto"


def test_panels_have_ids_titles_and_places_of_their_own() -> None:
    everything = DASHBOARD["panels"]
    assert [number for number, times in Counter(each["id"] for each in everything).items() if times > 1] == []
    assert [title for title, times in Counter(each["title"] for each in PANELS).items() if times > 1] == []
    for each in everything:
        place = each["gridPos"]
        assert place["x"] >= 0
        assert place["x"] + place["w"] <= 24
    for one, other in combinations(everything, 2):
        assert not overlap(one["gridPos"], other["gridPos"]), (one["title"], other["title"])


def overlap(one: dict[str, int], other: dict[str, int]) -> bool:
    return (
        one["x"] < other["x"] + other["w"]
        and other["x"] < one["x"] + one["w"]
        and one["y"] < other["y"] + other["h"]
        and other["y"] < one["y"] + one["h"]
    )


# The queries.


@queries
def test_a_query_names_metrics_and_labels_that_exist(query: Query) -> None:
    assert METRIC.search(query.expr)
    for name, matchers in METRIC.findall(query.expr):
        assert name in KNOWN
        assert set(MATCHER.findall(matchers)) <= labels_of(name), name
        assert "job" in MATCHER.findall(matchers), "another store's figures would be among them"
    assert not re.search(r"\b(without|on|ignoring|group_left|group_right)\b|\) by \(", query.expr), "not checked here"
    for found in GROUPING.finditer(query.expr):
        for name, _ in METRIC.findall(body(query.expr, found.end())):
            assert names_in(found[1]) <= labels_of(name), name
    shown = set(re.findall(r"\{\{(\w+)\}\}", query.legend))
    assert shown <= {name for found in GROUPING.finditer(query.expr) for name in names_in(found[1])}


def test_every_metric_is_shown() -> None:
    shown = {metric.name for query in QUERIES for metric in metrics_in(query.expr)}
    assert [metric.name for metric in METRICS if metric.name not in shown] == []


@needs_promtool
def test_every_query_is_valid(tmp_path: Path) -> None:
    exprs = [query.of("servers") for query in QUERIES]
    exprs += [annotation["expr"] for annotation in DASHBOARD["annotations"]["list"]]
    rules = [{"record": f"dibs:query_{number}", "expr": expr} for number, expr in enumerate(exprs)]
    file = tmp_path / "rules.yml"
    file.write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))
    checked = subprocess.run(["promtool", "check", "rules", file], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert f"{len(rules)} rules found" in checked.stdout


# Their data.


def tasks_of(app: Dibs) -> dict[str, Any]:
    @app.task(name="good", queue="mail")
    def good() -> None: ...

    @app.task(name="bad", queue="mail", retries=1, retry_base=0.01)
    def bad() -> None:
        raise ValueError("no")

    @app.task(name="hopeless", queue="mail", priority="high")
    def hopeless() -> None:
        raise Permanent("never")

    @app.task(name="later", queue="reports", priority="low")
    def later() -> None: ...

    return {"good": good, "bad": bad, "hopeless": hopeless, "later": later}


class Scrapes(NamedTuple):
    """What a server and a worker have shown."""

    server: str
    worker: str


@pytest.fixture(scope="module")
def scrapes() -> Scrapes:
    """Of a store with tasks of every kind, while they are there."""
    url = new_url()
    with LiveServer(Dibs(url)) as server, Dibs(url) as app:
        scrape(server.port)  # from now on it adds up durations
        tasks = tasks_of(app)
        app.queues.set("reports", policy="tiers", max_depth=100)
        long_ago = time.time_ns() // 1000 - 2 * HOUR
        app.hub.runner.run(app.hub.engine.enqueue([tasks["later"].call().new for _ in range(3)], now=long_ago))
        app.queues.pause("reports")
        handles = [tasks[name].enqueue() for name in ("good", "bad", "hopeless") for _ in range(3)]
        with app.worker(queues=["mail"], concurrency=2) as worker, serve_metrics(worker, 0) as port:
            app.wait(handles, timeout=60)
            shown = wait_for(server.port, "dibs_task_wait_seconds_bucket", "dibs_tasks_promoted_total", "chore_age")
            return Scrapes(shown, scrape(port))


def scrape(port: int) -> str:
    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        text: str = answer.read().decode()
        return text


def wait_for(port: int, *names: str) -> str:
    """What a server shows once it shows these: workers report durations after a moment, and promote what waits."""
    until, pause = time.monotonic() + 30, threading.Event()
    while not all(name in (shown := scrape(port)) for name in names):
        assert time.monotonic() < until, shown
        pause.wait(0.1)
    return shown


def series(text: str, job: str, instance: str, more: int) -> Iterator[dict[str, str]]:
    """Samples as input of promtool, each with so much more: counters grow by it each minute, everything else stays."""
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = {**sample.labels, "job": job, "instance": instance}
            named = ", ".join(f"{label}={json.dumps(value)}" for label, value in labels.items())
            value = sample.value + more
            growth = 0 if family.type == "gauge" else value
            yield {"series": f"{sample.name}{{{named}}}", "values": f"{value:f}+{growth:f}x30"}


def add_what_is_not_here(scrapes: Scrapes) -> str:
    return scrapes.server + exposition(Sample(metric, (), 3) for metric in NOT_HERE)[0].decode()


def answers(tmp_path: Path, scrapes: Scrapes, exprs: list[str], more: int = 0) -> None:
    """Each of these is 1, when the same server is scraped once as one job, and twice as another."""
    server = add_what_is_not_here(scrapes)
    inputs = [
        *series(server, "servers", "one", more),
        *series(server, "twins", "one", more),
        *series(server, "twins", "two", more),
        *series(scrapes.worker, "workers", "three", more),
    ]
    expected = [{"expr": expr, "eval_time": "20m", "exp_samples": [{"labels": "{}", "value": 1}]} for expr in exprs]
    tests = [{"interval": "1m", "input_series": inputs, "promql_expr_test": expected}]
    file = tmp_path / "tests.yml"
    file.write_text(json.dumps({"rule_files": [], "evaluation_interval": "1m", "tests": tests}))
    tested = subprocess.run(["promtool", "test", "rules", file], capture_output=True, text=True, check=False)
    assert tested.returncode == 0, tested.stdout + tested.stderr


@needs_promtool
def test_every_query_finds_data(tmp_path: Path, scrapes: Scrapes) -> None:
    """Numbers, that is: 0/0 is none, and compares as false."""
    answers(tmp_path, scrapes, [f"count(({query.of('servers')}) >= 0) > bool 0" for query in QUERIES])


@needs_promtool
def test_figures_of_the_store_are_not_added_up_over_its_servers(tmp_path: Path, scrapes: Scrapes) -> None:
    """All servers show the same store: with two of them, a query gives what it gives with one.

    Nothing is 0 here, since twice 0 is the same. Sums of the same numbers in another order differ a little.
    """
    of_store = [query for query in QUERIES if {each.scope for each in metrics_in(query.expr)} == {Scope.STORE}]
    assert len(of_store) > len(QUERIES) / 2
    compared = ((query.of("servers"), query.of("twins")) for query in of_store)
    exprs = [f"count(abs(({two}) / ({one}) - 1) < 0.001) == bool count({one})" for one, two in compared]
    answers(tmp_path, scrapes, exprs, more=1)


def test_what_is_not_here_has_no_sample(scrapes: Scrapes) -> None:
    shown = {family.name for text in scrapes for family in text_string_to_metric_families(text)}
    missing = {metric for metric in METRICS if metric.full_name.removesuffix("_total") not in shown}
    assert missing == set(NOT_HERE)


# The files beside it.


def mounts() -> dict[str, str]:
    """From the command in the guide: what is mounted, by where."""
    guide = (ROOT / "docs" / "guides" / "metrics.md").read_text()
    [line] = [line for line in guide.replace("\\\n", " ").splitlines() if line.startswith("docker run")]
    words = shlex.split(line)
    given = [words[place + 1].split(":") for place, word in enumerate(words) if word == "-v"]
    assert all(rights == "ro" for _, _, rights in given)
    return {there: here.removeprefix("$PWD/") for here, there, _ in given}


def test_grafana_finds_what_the_guide_mounts() -> None:
    mounted = mounts()
    files = sorted(str(file.relative_to(ROOT)) for file in GRAFANA.iterdir())
    assert sorted(mounted.values()) == files
    by_folder = {str(Path(there).parent): here for there, here in mounted.items()}
    assert by_folder["/etc/grafana/provisioning/datasources"] == "deploy/grafana/datasource.yml"
    assert by_folder["/etc/grafana/provisioning/dashboards"] == "deploy/grafana/dashboards.yml"
    [provider] = documents(GRAFANA / "dashboards.yml")[0]["providers"]
    assert by_folder[provider["options"]["path"]] == "deploy/grafana/dibs.json"


def test_the_data_source_is_a_prometheus_that_scrapes_as_often() -> None:
    [source] = documents(GRAFANA / "datasource.yml")[0]["datasources"]
    [prometheus] = documents(DEPLOY / "prometheus" / "prometheus.yml")
    assert (source["type"], source["isDefault"]) == ("prometheus", True)
    assert source["jsonData"]["timeInterval"] == prometheus["global"]["scrape_interval"]


def test_the_collector_reads_what_prometheus_reads() -> None:
    [collector] = documents(DEPLOY / "otel" / "collector.yaml")
    [prometheus] = documents(DEPLOY / "prometheus" / "prometheus.yml")
    jobs = collector["receivers"]["prometheus"]["config"]["scrape_configs"]
    assert [(job["job_name"], job["static_configs"]) for job in jobs] == [
        (job["job_name"], job["static_configs"]) for job in prometheus["scrape_configs"]
    ]
    for kind in ("receivers", "processors", "exporters"):
        used = {name for pipeline in collector["service"]["pipelines"].values() for name in pipeline[kind]}
        assert used == set(collector[kind]), kind
