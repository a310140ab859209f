"""Reads a page of Markdown: its fenced blocks, the commands in them, and what stands in code marks in the text.

How a block says what is to be done with it:

    ```sh              every line is run; an HTML comment right above it, <!-- test: ... -->, says how (doc_shell.py)
    ```console         commands that no test can run; each stands in not_run.toml with the reason
    ```python FILE     the block is written to FILE before the page goes on; any language
    ```text            output and file names
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
NOT_PAGES = {"CHANGELOG.md"}  # tells what was, with names that may be gone
PAGES = sorted(
    path.relative_to(ROOT).as_posix()
    for path in (*ROOT.glob("*.md"), *ROOT.glob("examples/**/*.md"), *ROOT.glob("configs/**/*.md"))
    if path.name not in NOT_PAGES
)

_FENCE = re.compile(r"^(?P<indent> *)(?P<ticks>```+)(?P<info>[^`]*)$")
_MARK = re.compile(r"^ *<!-- test: (?P<marks>.*?) -->$")
_INLINE = re.compile(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)", re.DOTALL)


@dataclass(frozen=True)
class Block:
    """A fenced block.

    Args:
        line: of the opening fence, from 1.
        language: the first word behind it, "" for none.
        file: the second, "" for none.
        text: what is inside, without the fence's indent.
        marks: the parts of the comment above it.
    """

    line: int
    language: str
    file: str
    text: str
    marks: tuple[str, ...]


def blocks(text: str) -> list[Block]:
    """All fenced blocks of a page, in order."""
    found, opened, inside = [], None, []
    lines = text.splitlines()
    for number, line in enumerate(lines, start=1):
        fence = _FENCE.match(line)
        if opened is None and fence:
            opened, inside = (number, fence), []
        elif opened is not None and line.strip() == opened[1]["ticks"]:
            found.append(_block(opened[0], opened[1], inside, lines))
            opened = None
        elif opened is not None:
            inside.append(line.removeprefix(opened[1]["indent"]))
    assert opened is None, f"the fence in line {opened[0] if opened else 0} is not closed"
    return found


def _block(number: int, fence: re.Match[str], inside: list[str], lines: list[str]) -> Block:
    language, _, file = fence["info"].strip().partition(" ")
    mark = _MARK.match(lines[number - 2]) if number > 1 else None
    marks = tuple(part.strip() for part in mark["marks"].split(";")) if mark else ()
    return Block(number, language, file.strip(), "\n".join(inside) + "\n", marks)


def commands(block: Block) -> list[str]:
    """The commands of a shell block: its lines, those that end with a backslash joined, without comments."""
    joined = block.text.replace("\\\n", " ")
    bare = (re.sub(r"(^|\s)#(?!\S*['\"]).*$", "", line).strip() for line in joined.splitlines())
    return [re.sub(r"\s+", " ", line) for line in bare if line]


def without_blocks(text: str) -> str:
    """The page with its fenced blocks emptied, line numbers kept."""
    lines = text.splitlines()
    for block in blocks(text):
        for number in range(block.line, block.line + block.text.count("\n") + 2):  # with both fences
            lines[number - 1] = ""
    return "\n".join(lines)


def code_words(text: str) -> Iterator[str]:
    """What stands in backticks in the running text."""
    yield from (" ".join(match[2].split()) for match in _INLINE.finditer(without_blocks(text)))
