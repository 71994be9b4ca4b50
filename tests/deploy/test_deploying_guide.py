"""docs/guides/deploying.md agrees with the files: its commands, its Secrets, and its snippets for proxies."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

from deploy.command_lines import DEPLOY, ROOT, documents, parsed
from dibs.server.settings import ServerSettings

GUIDE = (ROOT / "docs" / "guides" / "deploying.md").read_text()
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
MIB = 1024 * 1024


def block(language: str) -> str:
    [found] = [text for name, text in FENCE.findall(GUIDE) if name == language]
    assert isinstance(found, str)
    return found


def shell_lines() -> Iterator[list[str]]:
    for language, text in FENCE.findall(GUIDE):
        if language == "sh":
            yield from (shlex.split(line, comments=True) for line in text.replace("\\\n", " ").splitlines())


def indirect() -> Iterator[list[str]]:
    """Commands of dibs that another program runs; tests/docs parses the others."""
    for words in shell_lines():
        if words[:3] == ["docker", "compose", "run"]:
            yield words[words.index("server") + 1 : words.index(">")]
        elif words[0] == "sudo":
            yield words[words.index("/opt/dibs/bin/dibs") + 1 :]


def test_commands_that_others_run_exist() -> None:
    found = list(indirect())
    assert len(found) == 2
    for words in found:
        parsed(words)


def test_it_makes_the_secrets_that_the_manifests_need() -> None:
    made = [words for words in shell_lines() if words[:1] == ["kubectl"] and "secret" in words]
    needed = [each["metadata"]["name"] for each in documents(DEPLOY / "kubernetes" / "secrets.example.yaml")]
    assert [words[words.index("generic") + 1] for words in made] == needed


def nginx_settings(text: str) -> dict[str, str]:
    """Directives of all blocks by their name; headers by their name, too."""
    assert text.count("{") == text.count("}")
    found = {}
    for line in text.splitlines():
        if line.strip().endswith(";"):
            words = line.strip().rstrip(";").split()
            name, value = (" ".join(words[:2]), words[2:]) if words[0] == "proxy_set_header" else (words[0], words[1:])
            found[name] = " ".join(value)
    return found


def test_nginx_passes_on_what_the_server_needs() -> None:
    settings = nginx_settings(block("nginx"))
    assert settings["client_max_body_size"] == f"{ServerSettings().most_body // MIB}m"
    assert settings["proxy_set_header Upgrade"] == "$http_upgrade"
    assert f"map $http_upgrade {settings['proxy_set_header Connection']} " in block("nginx")
    assert settings["proxy_set_header X-Forwarded-For"] == "$remote_addr"  # not what the client sent
    assert settings["proxy_set_header X-Forwarded-Proto"] == "$scheme"
    assert (settings["proxy_http_version"], settings["proxy_buffering"]) == ("1.1", "off")
    assert int(settings["proxy_read_timeout"].removesuffix("s")) > 60


def test_caddy_does_not_buffer_and_takes_the_same_bodies() -> None:
    text = block("caddyfile")
    assert text.count("{") == text.count("}")
    assert f"max_size {ServerSettings().most_body // MIB}MiB" in text
    assert "flush_interval -1" in text
    assert f"reverse_proxy 127.0.0.1:{ServerSettings().port} " in text
