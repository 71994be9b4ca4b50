"""Requests drawn from the OpenAPI document: no answer is a 5xx, and every answer is one that the document allows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from dibs import Dibs
from dibs.engines.http.protocol import Scope
from dibs.server import Server, ServerSettings
from dibs.server.routes import tasks
from dibs.server.tokens import TokenFile, new_token
from servers import postgres

CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.soak)])
def api(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[schemathesis.BaseSchema]:
    """A server in an application of its own loop, with something in its store."""
    monkeypatch.setattr(tasks, "waited", at_once)
    app = Dibs(f"sqlite:///{tmp_path}/tasks.db" if request.param == "sqlite" else postgres.new_url())
    secret, token = new_token("fuzz", tuple(Scope))
    TokenFile(tmp_path / "tokens.json").add(token)
    app.queues.set("default", max_depth=10_000)
    server = Server(app, ServerSettings(tokens=tmp_path / "tokens.json", hosts=("*",), keeps=False))
    schema = schemathesis.openapi.from_asgi("/openapi.json", server)
    schema.config.update(headers={"Authorization": f"Bearer {secret}"})
    yield schema
    app.close()


async def at_once(exchange: object, work: object, timeout: float) -> None:
    """Nothing is waited for: what is waited for never comes."""
    work.close()  # type: ignore[attr-defined]


PROFILE = settings(
    max_examples=5,
    derandomize=True,
    deadline=None,
    database=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)


def draw_requests(api: schemathesis.BaseSchema, profile: settings) -> None:
    for found in api.get_all_operations():
        operation = found.ok()
        for mode in GenerationMode:

            @profile
            @given(operation.as_strategy(generation_mode=mode))
            def requests(case: schemathesis.Case) -> None:
                case.call_and_validate(checks=CHECKS)

            with suppress(Unsatisfiable):  # there is nothing to get wrong
                requests()


def test_no_request_breaks_the_server(api: schemathesis.BaseSchema) -> None:
    draw_requests(api, PROFILE)


@pytest.mark.soak
def test_many_requests_break_nothing(api: schemathesis.BaseSchema) -> None:
    draw_requests(api, settings(PROFILE, max_examples=60))
