"""Install the peers in Python of the Redis comparison, each in a virtual environment of its own.

They ask for versions of redis-py that exclude each other; so each gets the newest that it allows.
"""

from __future__ import annotations

import subprocess
import sys
import venv

from redis_contestants import CONTESTANTS, Contestant


def install(contestant: Contestant) -> bool:
    if not (contestant.place / "bin" / "python").exists():
        venv.create(contestant.place, with_pip=True)
    pip = [str(contestant.place / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "--quiet", "install"]
    return subprocess.run([*pip, "--upgrade", *contestant.requirements], check=False).returncode == 0


def main() -> None:
    for each in CONTESTANTS:
        if each.requirements and not install(each):
            print(f"pip did not install {each.package}: {each.name} is left out.", file=sys.stderr)


if __name__ == "__main__":
    main()
