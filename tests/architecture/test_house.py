"""The rules of the house that no other tool checks."""

from __future__ import annotations

import ast
import gc
import io
import re
import subprocess
import sys
import tokenize
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from architecture.measure import import_cycle, syntax_trees
from support.sharing import SLOW

ROOT = Path(__file__).parents[2]
# Spelled in pieces, so that this file does not find itself.
MACHINE_PATHS = re.compile("/" + r"(?:root|home/\w+|Users/\w+|work)/[\w.]")


def tracked(*patterns: str) -> list[Path]:
    """Files of the repository, also those not yet added."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", *patterns]
    try:
        listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("not a git repository, or git is not installed")
    return [path for name in listed.splitlines() if (path := ROOT / name).is_file()]


def ours(*patterns: str) -> list[Path]:
    """Tracked files that people write."""
    return [path for path in tracked(*patterns) if "_pb2" not in path.name]


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def test_files_that_are_listed_as_slow_are_there() -> None:
    assert [file for file in sorted(SLOW) if not (ROOT / file).is_file()] == []


def test_imports_run_downwards() -> None:
    """The contracts in pyproject.toml, by import-linter."""
    program = Path(sys.executable).parent / "lint-imports"
    done = subprocess.run([program, "--no-cache"], cwd=ROOT, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module", autouse=True)
def no_garbage_is_looked_for() -> Iterator[None]:
    """Each look would pass over the syntax trees, which takes longer than the tests themselves."""
    gc.disable()
    yield
    gc.enable()


@pytest.fixture(scope="module")
def trees() -> dict[str, ast.Module]:
    """The syntax trees of all modules, which take some seconds to make."""
    return syntax_trees()


def test_modules_do_not_import_each_other_in_circles(trees: dict[str, ast.Module]) -> None:
    """Imports for type checking count: two modules that need each other's types are one."""
    assert import_cycle(trees) == []


def test_no_file_names_a_place_on_some_machine() -> None:
    found = []
    for path in ours():
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        found += [
            f"{relative(path)}:{number}: {line.strip()}"
            for number, line in enumerate(text.splitlines(), 1)
            if MACHINE_PATHS.search(line)
        ]
    assert not found, "\n".join(found)


def test_what_is_referred_to_is_there() -> None:
    """Links between Markdown files, and pages of docs/ that code and configurations name."""
    missing = []
    for path in ours("*.md"):
        links = re.findall(r"\]\((?!\w+:)([^)#]+)", path.read_text())
        missing += [f"{relative(path)}: {link}" for link in links if not (path.parent / link).exists()]
    for path in ours("*.py", "*.toml"):
        pages = re.findall(r"\bdocs/[\w/.-]+\.md\b", path.read_text())
        missing += [f"{relative(path)}: {page}" for page in pages if not (ROOT / page).exists()]
    assert not missing, "\n".join(missing)


FUSED = re.compile(
    r"(Who|Whoever|What|Whatever|Where|Wherever|Whether|Why|How|When|Whenever|Whose|Whom|Which|Nobody|Somebody|Anybody|Everybody)\b"
)
"""Beginnings of docstrings that name neither a thing nor what is done."""
FUSED_AT_QUOTE = re.compile(rf"[\"']\s*{FUSED.pattern}")
RIDDLES = re.compile(r"\b(nobody|somebody|whoever|anybody|whomever)\b", re.IGNORECASE)
OWN_WORDS = re.compile(
    r"\b(everybody|those who|manieth|anew|in earnest|under way|be had|all the same|carried out|(is|are) told)\b",
    re.IGNORECASE,
)
"""Words of our own. The field says: all clients, again, in production, in flight, in progress, executed, notified."""


DESCRIBING = {"key": 0, "_key": 0, "Option": -1, "Column": -1, "_counter": 1, "_gauge": 1, "_histogram": 1}
"""The functions that take a description for users, and its place among their positional arguments."""


def descriptions(call: ast.Call) -> Iterator[str]:
    """Yield the texts of a call that users read: the help of an option or command, or the meaning of a key."""
    texts = [keyword.value for keyword in call.keywords if keyword.arg == "help"]
    at = DESCRIBING.get(ast.unparse(call.func).rpartition(".")[2])
    if at is not None and -1 <= at < len(call.args):
        texts.append(call.args[at])
    yield from (text.value for text in texts if isinstance(text, ast.Constant) and isinstance(text.value, str))


def test_texts_say_what_things_are_and_do() -> None:
    """As docstrings do: comments, every string of the packages, and above all descriptions for users."""
    found = []
    for path in ours("codecs/*.py", "gateway/*.py", "pipeline/*.py"):
        source = path.read_text()
        if not (is_riddle(source) or FUSED_AT_QUOTE.search(source)):
            continue  # parsing all files takes a minute of `make test`
        texts = [(token.start[0], token.string) for token in tokens(source) if token.type == tokenize.COMMENT]
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                texts.append((node.lineno, node.value))
            elif isinstance(node, ast.Call):
                found += [f"{relative(path)}:{node.lineno}: {text}" for text in descriptions(node) if FUSED.match(text)]
        found += [f"{relative(path)}:{line}: {text:.100}" for line, text in texts if is_riddle(text)]
    assert not found, "\n".join(found)


def test_names_of_tests_name_things() -> None:
    """A failing test is read by its name alone."""
    name = re.compile(r"def (test_\w+)")
    found = [
        f"{relative(path)}: {one}"
        for path in ours("tests/*.py")
        for one in name.findall(path.read_text())
        if RIDDLES.search(one.replace("_", " "))
    ]
    assert not found, "\n".join(found)


def test_pages_and_configurations_say_what_things_are_and_do() -> None:
    """The documents, and the comments of the example configurations."""
    pages = tracked("docs/*.md", "config/*.toml", "config/*.lua", "README.md", "CONTRIBUTING.md", "CHANGELOG.md")
    lines = [(path, number, line) for path in pages for number, line in enumerate(path.read_text().splitlines(), 1)]
    found = [f"{relative(path)}:{number}: {line:.100}" for path, number, line in lines if is_riddle(line)]
    assert not found, "\n".join(found)


def is_riddle(text: str) -> bool:
    """Return whether a text has words that one reads twice."""
    return bool(RIDDLES.search(text) or OWN_WORDS.search(text))


def tokens(source: str) -> Iterator[tokenize.TokenInfo]:
    """Yield the tokens of a module."""
    return tokenize.generate_tokens(io.StringIO(source).readline)


def test_the_glossary_is_sorted_and_linked() -> None:
    """In alphabetical order, each term once, each in at most three sentences, and no longer than a paragraph."""
    page = (ROOT / "docs" / "glossary.md").read_text()
    entries = re.findall(r"^\*\*(.+?)\.\*\* (.+?)\n(?:\n|\Z)", page, re.DOTALL | re.MULTILINE)
    terms = [term for term, _ in entries]
    assert terms == sorted(set(terms), key=str.casefold) and len(entries) == page.count("\n**")
    assert [term for term, text in entries if not 1 <= len(re.findall(r"\.(?=\s|\Z)", text)) <= 3] == []
    for linking in ("README.md", "docs/architecture.md"):
        assert "glossary.md)" in (ROOT / linking).read_text(), linking


def test_docstrings_say_what_things_are_and_do() -> None:
    """A docstring, also of an attribute, begins with a verb or a noun phrase, and names clients, servers and tasks."""
    found = []
    for path in ours("*.py"):
        source = path.read_text()
        if not (RIDDLES.search(source) or FUSED_AT_QUOTE.search(source)):
            continue
        for node in ast.walk(ast.parse(source)):
            match node:
                case ast.Expr(ast.Constant(str(text))) if FUSED.match(text.lstrip()) or RIDDLES.search(text):
                    found.append(f"{relative(path)}:{node.lineno}: {text.strip().splitlines()[0]}")
    assert not found, "\n".join(found)


Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def definitions(body: list[ast.stmt]) -> list[Definition]:
    """Return the public definitions of a module or a class."""
    return [node for node in body if isinstance(node, Definition) and not node.name.startswith("_")]


def undocumented(name: str, tree: ast.Module, said: dict[str, set[str]]) -> Iterator[str]:
    """Public modules, classes, functions and methods without a docstring; `said` as from `documented_methods`."""
    if ast.get_docstring(tree) is None:
        yield f"{name}:1: the module"
    for node in definitions(tree.body):
        if ast.get_docstring(node) is None:
            yield f"{name}:{node.lineno}: {node.name}"
        if isinstance(node, ast.ClassDef):
            for method in definitions(node.body):
                documented = method.name in said[node.name] or _continues(method)
                if not documented:
                    yield f"{name}:{method.lineno}: {node.name}.{method.name}"


def _continues(node: Definition) -> bool:
    """Overloads and setters are documented where they begin."""
    return bool({ast.unparse(one).rpartition(".")[2] for one in node.decorator_list} & {"overload", "setter"})


def documented_methods(trees: Iterable[ast.Module]) -> dict[str, set[str]]:
    """Return the methods of each class that have a docstring, there or in a base; overriding methods need none."""
    classes = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    said: dict[str, set[str]] = defaultdict(set)
    bases: dict[str, set[str]] = defaultdict(set)
    for node in classes:
        said[node.name] |= {method.name for method in definitions(node.body) if ast.get_docstring(method)}
        bases[node.name] |= {ast.unparse(base).partition("[")[0].rpartition(".")[2] for base in node.bases}
    for name in list(bases):
        waiting, seen = list(bases[name]), {name}
        while waiting:
            if (base := waiting.pop()) not in seen:
                seen.add(base)
                waiting += bases[base]
                said[name] |= said[base]
    return said


DIALECTS = "a message of both dialects of the segment protocol"
SHARED_NAMES = {
    "AppendSetup": DIALECTS,
    "DataAppended": DIALECTS,
    "KeepAlive": DIALECTS,
    "NoSuchSegment": DIALECTS,
    "ReadSegment": DIALECTS,
    "ReadTable": "an operation, and the message of the segment protocol that asks for it",
    "RemoveTableKeys": "as ReadTable",
    "SegmentIsSealed": DIALECTS,
    "SegmentRead": DIALECTS,
    "SetupAppend": DIALECTS,
    "WrongHost": DIALECTS,
}
"""Names that several public classes have, with the reason. Any other class has a name of its own."""


def test_a_public_class_has_a_name_of_its_own(trees: dict[str, ast.Module]) -> None:
    """One name, one thing: a search of the tree for a class finds one definition."""
    places: dict[str, list[str]] = defaultdict(list)
    for module, tree in trees.items():
        for node in definitions(tree.body):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(module)
    shared = {name: paths for name, paths in places.items() if len(paths) > 1}
    assert {name: paths for name, paths in shared.items() if name not in SHARED_NAMES} == {}, (
        "name what distinguishes it"
    )
    assert sorted(SHARED_NAMES.keys() - shared.keys()) == [], "these are shared no more: take them off the list"


def test_everything_public_is_documented(trees: dict[str, ast.Module]) -> None:
    said = documented_methods(trees.values())
    found = [line for module, tree in trees.items() for line in undocumented(module, tree, said)]
    assert not found, "\n".join(found)
