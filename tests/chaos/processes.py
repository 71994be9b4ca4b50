"""The processes of a run: workers and producers, each in a place that is filled again when its process is gone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from chaos.journal import Journal

__all__ = ["Place", "Processes"]

RESPAWN_AFTER = 1.0
PATIENCE = 60.0


@dataclass
class Place:
    """A worker or producer. `who` names the process that fills it now."""

    name: str
    command: list[str]
    environment: dict[str, str]
    number: int = 0
    process: subprocess.Popen[bytes] | None = None
    expected: bool = False
    """Its process is to end: somebody saw to that."""
    gone_at: float = 0.0
    stops: int = 0
    """How many faults want it stopped."""

    @property
    def who(self) -> str:
        return f"{self.name}-{self.number}"

    @property
    def runs(self) -> bool:
        return self.process is not None and self.process.poll() is None


@dataclass
class Processes:
    """All places. `look` is called often."""

    folder: Path
    journal: Journal
    places: dict[str, Place] = field(default_factory=dict)
    leaving: bool = False

    def add(self, name: str, command: list[str], environment: dict[str, str]) -> None:
        self.places[name] = Place(name, command, environment)
        self.start(self.places[name])

    def start(self, place: Place) -> None:
        place.number += 1
        place.expected, place.gone_at, place.stops = False, 0.0, 0
        environment = {**os.environ, **place.environment, "CHAOS_WHO": place.who, "CHAOS_PARENT": str(os.getpid())}
        command = [word.replace("{who}", place.who).replace("{number}", str(place.number)) for word in place.command]
        with (self.folder / f"{place.who}.log").open("ab") as log:
            place.process = subprocess.Popen(
                [sys.executable, "-m", *command],
                env=environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.journal.write("started", process=place.who, pid=place.process.pid)

    def look(self) -> None:
        """Note who is gone, and fill the place again after a moment."""
        for place in self.places.values():
            if place.runs or place.process is None:
                continue
            if not place.gone_at:
                place.gone_at = time.monotonic()
                expected = place.expected or self.leaving
                self.journal.write("gone", process=place.who, code=place.process.returncode, expected=expected)
            elif not self.leaving and time.monotonic() - place.gone_at > RESPAWN_AFTER:
                self.start(place)

    # What is done to them. Each answers whether there was a process to do it to.

    def kill(self, place: Place) -> bool:
        return self._end(place, signal.SIGKILL)

    def ask_to_leave(self, place: Place) -> bool:
        return self._end(place, signal.SIGTERM)

    def _end(self, place: Place, number: signal.Signals) -> bool:
        if not place.runs or place.process is None:
            return False
        place.expected = True
        place.process.send_signal(number)
        if place.stops:
            place.process.send_signal(signal.SIGCONT)
        return True

    def stop(self, place: Place) -> bool:
        """Stop a process and its children where they stand."""
        if not place.runs:
            return False
        place.stops += 1
        self._signal(place, signal.SIGSTOP)
        return True

    def go_on(self, place: Place) -> None:
        place.stops = max(0, place.stops - 1)
        if place.stops == 0 and place.runs:
            self._signal(place, signal.SIGCONT)

    def _signal(self, place: Place, number: signal.Signals) -> None:
        assert place.process is not None
        try:
            family = [psutil.Process(place.process.pid), *psutil.Process(place.process.pid).children(recursive=True)]
        except psutil.NoSuchProcess:
            return
        for each in family:
            try:
                each.send_signal(number)
            except psutil.NoSuchProcess:
                continue

    # The end.

    def send_home(self, kind: str) -> None:
        """Have all of a kind leave in good order, and wait for them."""
        self.leaving = True
        chosen = [place for place in self.places.values() if place.name.startswith(kind)]
        for place in chosen:
            self.ask_to_leave(place)
        for place in chosen:
            if place.process is not None:
                try:
                    place.process.wait(PATIENCE)
                except subprocess.TimeoutExpired:
                    self.journal.write("stuck", process=place.who)
                    self.kill(place)
                    place.process.wait()
                self.journal.write("left", process=place.who, code=place.process.returncode)

    def end(self) -> None:
        """Whatever happened, nobody stays behind."""
        for place in self.places.values():
            if place.process is not None:
                self._signal(place, signal.SIGKILL)
                place.process.wait()
