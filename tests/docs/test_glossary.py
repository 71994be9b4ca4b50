"""The words that the glossary retired don't come back: not as names in code, not in prose."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
GLOSSARY = ROOT / "docs" / "glossary.md"

PROSE = ("docs", "README.md", "CONTRIBUTING.md", "CHANGELOG.md", "src", "tests", "bench", "scripts", "examples")
"""Where pages, comments and docstrings are read."""
CODE = ("src", "tests")
"""Where names are read: in "tests", only those of modules."""

FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
NOT_PROSE = re.compile(r"`test_\w+`|\]\([^)]*\)|https?://\S+")
PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
SQL_NOT_NAMES = re.compile(r"--(?! name:)[^\n]*|/\*.*?\*/|'(?:[^']|'')*'", re.DOTALL)


@dataclass(frozen=True)
class Retired:
    """One row of the table: words that are parts of names, whole names, and files."""

    parts: frozenset[str]
    names: frozenset[str]
    files: frozenset[str]
    instead: str
    places: frozenset[str]
    exceptions: tuple[str, ...]

    def is_named_by(self, name: str) -> bool:
        return name in self.names or bool(self.parts & {part.lower() for part in PART.findall(name)})

    def is_file(self, file: Path) -> bool:
        return file.name in self.files or self.is_named_by(file.stem)

    def said_in(self, text: str) -> list[str]:
        for exception in self.exceptions:
            text = re.sub(re.escape(exception), "", text, flags=re.IGNORECASE)
        words = "|".join(map(re.escape, sorted(self.parts | self.names)))
        return re.findall(rf"(?<![\w-])(?:{words})(?![\w-])", text, re.IGNORECASE) if words else []


def split(cell: str) -> list[str]:
    return [each.strip() for each in cell.split(",") if each.strip()]


def retired(row: str) -> Retired:
    words, instead, places, exceptions = (cell.strip() for cell in row.strip("|").split("|"))
    names = {word.strip("`") for word in split(words) if word.startswith("`")}
    files = {name for name in names if name.endswith((".py", ".sql"))}
    parts = frozenset(word for word in split(words) if not word.startswith("`"))
    allowed = tuple(each.strip("`") if " " in each else each for each in split(exceptions))
    return Retired(parts, frozenset(names - files), frozenset(files), instead, frozenset(split(places)), allowed)


def table() -> list[Retired]:
    _, section = GLOSSARY.read_text().split("\n## Retired words\n")
    rows = [line for line in section.splitlines() if line.startswith("|")]
    return [retired(row) for row in rows[2:]]


ROWS = table()


def files_in(trees: tuple[str, ...], *suffixes: str) -> list[Path]:
    found = (
        each for tree in trees for each in ([ROOT / tree] if (ROOT / tree).is_file() else (ROOT / tree).rglob("*"))
    )
    return sorted(each for each in found if each.suffix in suffixes)


def names_in_python(text: str) -> Iterator[str]:
    """What a module defines. Names that it only uses belong to others."""
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield from (name, f"{name}()")
            case ast.ClassDef(name=name):
                yield name
            case ast.arg(arg=name) | ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield name


def names_in_sql(text: str) -> Iterator[str]:
    yield from re.findall(r"[A-Za-z_]\w*", SQL_NOT_NAMES.sub(" ", text))


def names_in(file: Path) -> set[str]:
    if file.is_relative_to(ROOT / "tests"):
        return set()
    read = names_in_python if file.suffix == ".py" else names_in_sql
    return set(read(file.read_text()))


def prose_of_page(text: str) -> str:
    if "\n## Retired words\n" in text:
        text = text.split("\n## Retired words\n", maxsplit=1)[0]
    return NOT_PROSE.sub("", FENCED.sub("", text))


def prose_of_python(text: str) -> str:
    comments = (
        token.string for token in tokenize.generate_tokens(io.StringIO(text).readline) if token.type == tokenize.COMMENT
    )
    texts = (
        node.value.value
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    )
    return NOT_PROSE.sub("", "\n".join([*comments, *texts]))


def prose_of(file: Path) -> str:
    text = file.read_text()
    match file.suffix:
        case ".py":
            return prose_of_python(text)
        case ".sql":
            return "\n".join(re.findall(r"--[^\n]*", text))
        case _:
            return prose_of_page(text)


def retired_names(file: Path) -> Iterator[str]:
    names = sorted(names_in(file))
    for row in (row for row in ROWS if "code" in row.places):
        found = [*([file.name] if row.is_file(file) else []), *(name for name in names if row.is_named_by(name))]
        yield from (f"{file.relative_to(ROOT)}: `{name}`: say {row.instead}" for name in found)


def retired_prose(file: Path) -> Iterator[str]:
    prose = prose_of(file)
    for row in (row for row in ROWS if "prose" in row.places):
        yield from (
            f'{file.relative_to(ROOT)}: "{word}": say {row.instead}' for word in sorted(set(row.said_in(prose)))
        )


def test_no_retired_word_names_anything() -> None:
    found = [each for file in files_in(CODE, ".py", ".sql") for each in retired_names(file)]
    assert not found, "docs/glossary.md retired these names:\n" + "\n".join(found)


def test_no_retired_word_is_said() -> None:
    found = [each for file in files_in(PROSE, ".md", ".py", ".sql") for each in retired_prose(file)]
    assert not found, "docs/glossary.md retired these words:\n" + "\n".join(found)


def test_every_word_is_explained_once() -> None:
    lines = GLOSSARY.read_text().split("\n## Retired words\n")[0].splitlines()
    words = [word for line in lines if line.startswith("| ") for word in split(line.split("|")[1]) if word != "word"]
    assert sorted(words) == sorted(set(words))
    assert not [word for word in words if any(word in row.parts for row in ROWS)]


def test_the_table_is_read() -> None:
    assert {"code", "prose"} == {place for row in ROWS for place in row.places}
    [stream] = [row for row in ROWS if "stream" in row.parts]
    assert stream.is_named_by("StreamKey")
    assert not stream.is_named_by("upstream_url")
    assert stream.said_in("A stream, unlike an asyncio stream, has a rank.") == ["stream"]
    [heart] = [row for row in ROWS if "heart" in row.parts]
    assert heart.is_named_by("own_heart")
    assert not heart.is_named_by("Heartbeat")


def test_names_are_found_where_they_are_defined() -> None:
    module = "class Errand: ...\ndef weigh(bell: int) -> None:\n    self.heart = tally = click.echo(bell)\n"
    assert set(names_in_python(module)) == {"Errand", "weigh", "weigh()", "bell", "heart", "tally"}
    assert "errand" not in set(names_in_sql("SELECT 'errand' FROM tasks -- an errand"))
    assert "load_errands" in set(names_in_sql("-- name: load_errands\nSELECT 1"))


@pytest.mark.parametrize("page", ["docs/glossary.md", "docs/map.md"])
def test_the_places_that_a_page_names_exist(page: str) -> None:
    text = (ROOT / page).read_text().split("\n## Retired words\n", maxsplit=1)[0]
    named = {name for name in re.findall(r"`([\w/*]+/[\w/]*(?:\.py)?|\w+\.py)`", text) if not name.startswith("tests/")}
    missing = [name for name in sorted(named) if not list((ROOT / "src" / "dibs").glob(name.rstrip("/")))]
    assert missing == []
