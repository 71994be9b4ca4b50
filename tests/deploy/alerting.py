"""What tests of the alert rules share: the rules, the names in them, and stories that real scrapes tell to promtool."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from prometheus_client.parser import text_string_to_metric_families

from deploy.command_lines import DEPLOY, documents
from dibs import Dibs
from dibs.observe.metrics import METRICS, Kind, Metric
from dibs.testing.clock import ManualClock
from servers.asgi import Api, server_here
from servers.guarded import free_port

FOLDER = DEPLOY / "prometheus"
RULES = FOLDER / "dibs.rules.yml"
CONFIG = FOLDER / "prometheus.yml"
PATIENCE = 40.0
"""Seconds after which something that should happen has not."""

[FILE] = documents(RULES)
GROUPS = [group["name"] for group in FILE["groups"]]
ENTRIES = [rule for group in FILE["groups"] for rule in group["rules"]]
ALERTS = {rule["alert"]: rule for rule in ENTRIES if "alert" in rule}
RECORDS = {rule["record"]: rule for rule in ENTRIES if "record" in rule}

needs_promtool = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="promtool is not installed; it comes with Prometheus"
)
needs_prometheus = pytest.mark.skipif(shutil.which("prometheus") is None, reason="prometheus is not installed")


def promtool(*words: str, folder: Path) -> None:
    found = subprocess.run(["promtool", *words], cwd=folder, capture_output=True, text=True, check=False, timeout=60)
    assert found.returncode == 0, found.stdout + found.stderr


# What expressions name.

OF_PROMETHEUS = {"up": {"job", "instance"}}
"""Series that Prometheus makes for each target, and their labels."""
TARGET = {"job", "instance"}
WORDS = {"and", "or", "unless", "offset", "bool"}
CLAUSE = re.compile(r"\b(by|on|ignoring|without|group_left|group_right)\s*\(([^)]*)\)")
NAME = re.compile(r"(?<![\w:.])[a-zA-Z_:][\w:]*(?!\s*\()(?![\w:])")
SELECTOR = re.compile(r"([a-zA-Z_:][\w:]*)\{([^}]*)\}")
AGGREGATION = re.compile(r"\b\w+ by \(([^)]*)\) \(")
FILTER = re.compile(r"\b(and|unless) on \([^)]*\) \(")


def catalogue() -> dict[str, Metric]:
    """The series that each metric has."""
    found: dict[str, Metric] = {}
    for metric in METRICS:
        ends = ("_bucket", "_sum", "_count") if metric.kind is Kind.HISTOGRAM else ("",)
        found.update({metric.full_name + end: metric for end in ends})
    return found


SERIES = catalogue()


def names(expression: str) -> set[str]:
    """The series that an expression reads."""
    bare = re.sub(r'"[^"]*"|\{[^}]*\}|\[[^\]]*\]|\boffset \w+', "", expression)
    return set(NAME.findall(CLAUSE.sub("", bare))) - WORDS


def labels_of(name: str) -> set[str]:
    if name in RECORDS:
        return set().union(*(labels_of(each) for each in names(RECORDS[name]["expr"])))
    if name in OF_PROMETHEUS:
        return OF_PROMETHEUS[name]
    return {*SERIES[name].labels, *TARGET, *(("le",) if name.endswith("_bucket") else ())}


def labels_used(expression: str) -> Iterator[tuple[set[str], set[str]]]:
    """Labels that an expression uses, and the names of the series that must have all of them."""
    for name, matchers in SELECTOR.findall(expression):
        yield set(re.findall(r"(\w+)\s*[=!]", matchers)), {name}
    for found in AGGREGATION.finditer(expression):
        yield words(found[1]), names(without_filters(operand(expression[found.end() :])))


def words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text))


def operand(text: str) -> str:
    """Up to the end of the parenthesis that is open."""
    depth = 1
    for place, sign in enumerate(text):
        depth += (sign == "(") - (sign == ")")
        if depth == 0:
            return text[:place]
    raise AssertionError(f"a parenthesis is not closed: {text}")


def without_filters(text: str) -> str:
    """Without the sides of `and` and `unless` that only say what is left of the others."""
    while (found := FILTER.search(text)) is not None:
        text = text[: found.start()] + text[found.end() + len(operand(text[found.end() :])) + 1 :]
    return text


# Stories.

SCRAPED = set().union(*(names(rule["expr"]) for rule in ENTRIES)) & SERIES.keys()
"""The rest of a scrape would only make the tapes longer."""

Series = tuple[str, tuple[tuple[str, str], ...]]


class Tape:
    """What Prometheus has scraped, minute by minute."""

    def __init__(self) -> None:
        self.minutes = 0
        self._values: dict[Series, dict[int, float]] = {}

    def add(self, scraped: dict[Series, float], minutes: int = 1) -> None:
        for series, value in scraped.items():
            self._values.setdefault(series, {}).update(
                dict.fromkeys(range(self.minutes, self.minutes + minutes), value)
            )
        self.minutes += minutes

    @property
    def now(self) -> str:
        """The time of the last scrape."""
        return f"{self.minutes - 1}m"

    def input_series(self) -> list[dict[str, str]]:
        """In the notation of promtool. Prometheus marks a series as stale with the first scrape that lacks it."""
        found = []
        for (name, labels), values in self._values.items():
            matchers = ",".join(f"{label}={json.dumps(value)}" for label, value in labels)
            marks = [
                repr(values[minute]) if minute in values else "stale" if minute - 1 in values else "_"
                for minute in range(self.minutes)
            ]
            found.append({"series": f"{name}{{{matchers}}}", "values": " ".join(marks)})
        return found


class Firing(NamedTuple):
    """What an alert says when it fires, besides what every alert of its rule says."""

    labels: dict[str, str]
    summary: str
    description: str


class Target(NamedTuple):
    """What Prometheus scrapes, and how."""

    job: str
    read: Callable[[], str]


class Story:
    """What happens to a store, how servers and workers show that, and what the alerts make of it.

    Nothing waits: `minutes` scrapes the targets as they are now, and puts that on the tape for so long. With a clock,
    it moves the clock instead, and scrapes every minute.
    """

    def __init__(self, alert: str, stack: ExitStack, patch: pytest.MonkeyPatch) -> None:
        patch.setattr("dibs.exporters.store_figures.FRESH", -1.0)
        self.alert = alert
        self.patch = patch
        self.enter = stack.enter_context
        self.clock: ManualClock | None = None
        self.targets: dict[str, Target] = {}
        self.down: set[str] = set()
        """Targets that do not answer."""
        self.said: list[str] = []
        """What the story has said of its alert, in turn."""
        self._tape = Tape()
        self._expected: dict[tuple[str, str], list[dict[str, Any]]] = {}
        """By time and alert."""
        self._queries: list[dict[str, Any]] = []

    def serve(self, *apps: Dibs, job: str = "dibs") -> None:
        """Each app gets a server. All of them are of one store."""
        for number, app in enumerate(apps, 1):
            self.enter(app)
            self.scrape_too(f"{job}-{number}:8642", server_of(app), job)

    def scrape_too(self, instance: str, read: Callable[[], str], job: str) -> None:
        self.targets[instance] = Target(job, read)

    def minutes(self, number: int = 1) -> None:
        if self.clock is None:
            self._tape.add(self.scrape(), number)
            return
        for _ in range(number):
            self.clock.advance(60)
            self._tape.add(self.scrape())

    def scrape(self) -> dict[Series, float]:
        found: dict[Series, float] = {}
        for instance, (job, read) in self.targets.items():
            target = (("instance", instance), ("job", job))
            found["up", target] = float(instance not in self.down)
            if instance not in self.down:
                found |= {(name, (*labels, *target)): value for name, labels, value in samples(read())}
        return found

    def until(self, name: str, value: float) -> None:
        """Wait until every target that shows the metric shows this: workers report what they do within a second."""
        until(lambda: {each for (found, _), each in self.scrape().items() if found == name} == {value})

    # What Prometheus must say at the time of the last scrape.

    def quiet(self) -> None:
        """No alert at all has fired, up to now."""
        fired = 'count by (alertname) (count_over_time(ALERTS{alertstate="firing"}[1w]))'
        self._queries.append({"eval_time": self._tape.now, "expr": fired, "exp_samples": []})
        self.said.append("quiet")

    def silent(self, alert: str = "") -> None:
        self._expected.setdefault((self._tape.now, alert or self.alert), [])
        self.said.append("silent")

    def fires(self, labels: dict[str, str], summary: str, description: str) -> None:
        """Said twice: two alerts of this rule do, and no others."""
        rule = ALERTS[self.alert]
        says = {"summary": summary, "description": description, "runbook_url": rule["annotations"]["runbook_url"]}
        one = {"exp_labels": {**labels, **rule["labels"]}, "exp_annotations": says}
        self._expected.setdefault((self._tape.now, self.alert), []).append(one)
        self.said.append("fires")

    def check(self, folder: Path) -> None:
        """Let promtool tell whether it says so."""
        alerts = [
            {"eval_time": at, "alertname": alert, "exp_alerts": expected}
            for (at, alert), expected in self._expected.items()
        ]
        told = {
            "rule_files": [str(RULES)],
            "evaluation_interval": "1m",
            "group_eval_order": GROUPS,
            "tests": [
                {
                    "interval": "1m",
                    "input_series": self._tape.input_series(),
                    "alert_rule_test": alerts,
                    "promql_expr_test": self._queries,
                }
            ],
        }
        (folder / "story.yml").write_text(json.dumps(told))  # JSON is YAML, and written much faster
        promtool("test", "rules", "story.yml", folder=folder)


Found = tuple[str, tuple[tuple[str, str], ...], float]


def samples(text: str) -> Iterator[Found]:
    """What rules read of a scrape."""
    for line in text.splitlines():
        if line.replace("{", " ").partition(" ")[0] in SCRAPED:
            yield sample(line)


@cache
def sample(line: str) -> Found:
    [family] = text_string_to_metric_families(line + "\n")
    [found] = family.samples
    return found.name, tuple(sorted(found.labels.items())), found.value


def server_of(app: Dibs) -> Callable[[], str]:
    """A server of an app that is open, on the app's own loop: how its metrics are read."""
    servers: list[Any] = []
    app.hub.runner.serve()

    async def metrics() -> str:
        if not servers:
            await app.hub.engine.open()
            servers.append(server_here(app))
        answer = await Api(servers[0]).get("/metrics")
        assert answer.status == 200, answer
        return str(answer.body, "utf-8")

    return lambda: app.hub.runner.run(metrics())


def until(holds: Callable[[], Any]) -> None:
    """Until something that another thread or process does has happened."""
    pause, end = threading.Event(), time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < end, "it did not happen"
        pause.wait(0.02)


# Prometheus.


class Prometheus:
    """The program itself, on a configuration that is in its folder."""

    def __init__(self, folder: Path) -> None:
        self.url = f"http://127.0.0.1:{free_port()}"
        self.log = folder / "log"
        words = [f"--config.file={folder / CONFIG.name}", f"--storage.tsdb.path={folder / 'data'}"]
        words += [f"--web.listen-address={self.url.removeprefix('http://')}", "--log.level=warn"]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(["prometheus", *words], cwd=folder, stdout=log, stderr=log)

    def __enter__(self) -> Prometheus:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait(PATIENCE)

    def ask(self, path: str, **query: str) -> Any:
        """The data of an answer; nothing before it answers."""
        assert self.process.poll() is None, self.log.read_text()
        address = f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(query)}"
        try:
            with urllib.request.urlopen(address, timeout=5) as answer:
                return json.load(answer)["data"]
        except OSError:
            return {}

    def health(self) -> dict[str, str]:
        """Of the targets, by job."""
        targets = self.ask("targets").get("activeTargets", ())
        return {each["labels"]["job"]: f"{each['health']} {each['lastError']}".strip() for each in targets}

    def rules(self) -> dict[str, str]:
        """How rules that have been evaluated are, by name."""
        found = [rule for group in self.ask("rules").get("groups", ()) for rule in group["rules"]]
        return {each["name"]: f"{each['health']} {each.get('lastError', '')}".strip() for each in found}

    def value(self, query: str) -> list[str]:
        return [each["value"][1] for each in self.ask("query", query=query).get("result", ())]
