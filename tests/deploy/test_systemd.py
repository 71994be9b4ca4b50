"""The systemd units: parsed here, and verified by systemd where it is installed."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from collections import defaultdict
from pathlib import Path

import pytest

from deploy.command_lines import DEPLOY, MARGIN, parsed
from dibs.runtime.environment import VARIABLES

FOLDER = DEPLOY / "systemd"
UNITS = ["dibs-server.service", "dibs-worker@.service"]
MOST_EXPOSED = 20
"""What `systemd-analyze security` may say at most, times ten; from 50 on it says MEDIUM."""

units = pytest.mark.parametrize("name", UNITS)


def settings(name: str) -> dict[str, dict[str, list[str]]]:
    """By section and key, the values in their order."""
    found: defaultdict[str, defaultdict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    section = ""
    for line in (FOLDER / name).read_text().splitlines():
        if line.startswith("["):
            section = line.strip("[]")
        elif line and not line.startswith(("#", ";")):
            key, equals, value = line.partition("=")
            assert equals, f"{name}: {line}"
            found[section][key].append(value)
    return {section: dict(keys) for section, keys in found.items()}


def command(name: str) -> list[str]:
    [line] = settings(name)["Service"]["ExecStart"]
    program, *words = shlex.split(line.replace("%i", "shop"))
    assert program.endswith("/bin/dibs")
    return words


@units
def test_a_unit_runs_a_command_that_exists_and_has_time_to_stop(name: str) -> None:
    service = settings(name)["Service"]
    context = parsed(command(name))
    assert float(service["TimeoutStopSec"][0]) >= context.params["shutdown_timeout"] + MARGIN
    assert (service["KillMode"], service["KillSignal"]) == (["mixed"], ["SIGTERM"])
    assert (service["Restart"], service["RestartPreventExitStatus"]) == (["on-failure"], ["2"])


@units
def test_a_unit_is_restricted(name: str) -> None:
    service = settings(name)["Service"]
    assert service["User"] != ["root"]
    assert service["ProtectSystem"] == ["strict"]
    for key in ("NoNewPrivileges", "PrivateTmp", "PrivateDevices", "ProtectHome", "ProtectKernelModules"):
        assert service[key] == ["yes"], key
    assert service["CapabilityBoundingSet"] == [""]


def test_every_unit_is_tested() -> None:
    assert sorted(file.name for file in FOLDER.glob("*.service")) == UNITS


@pytest.mark.parametrize("name", ["server.env.example", "worker.env.example"])
def test_variables_exist(name: str) -> None:
    lines = [line for line in (FOLDER / name).read_text().splitlines() if not line.startswith("#")]
    assert {line.partition("=")[0] for line in lines} <= set(VARIABLES)
    assert any("REPLACE-ME" in line for line in lines)


def installed(name: str, directory: Path) -> Path:
    """A unit whose program exists, since systemd looks for it; a template as one of its instances."""
    program = directory / "dibs"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    text = (FOLDER / name).read_text()
    for path in ("/opt/dibs/bin/dibs", "/srv/%i/.venv/bin/dibs"):
        text = text.replace(f"ExecStart={path} ", f"ExecStart={program} ")
    file = directory / name.replace("@.", "@shop.")
    file.write_text(text)
    return file


def analyze(*words: str) -> subprocess.CompletedProcess[str]:
    command = ["systemd-analyze", "--man=no", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd is not installed")
@units
def test_systemd_has_nothing_to_say_against_it(name: str, tmp_path: Path) -> None:
    file = installed(name, tmp_path)
    verified = analyze("verify", str(file))
    assert (verified.returncode, verified.stderr) == (0, "")
    secured = analyze("security", "--offline=true", f"--threshold={MOST_EXPOSED}", str(file))
    assert secured.returncode == 0, secured.stdout + secured.stderr
