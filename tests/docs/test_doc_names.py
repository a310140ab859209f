"""What the pages name exists: commands, options, settings, files; and what they quote is Python and TOML."""

import ast
import re
import tomllib
from collections.abc import Iterator
from itertools import pairwise

import pytest
from doc_pages import PAGES, ROOT, blocks, code_words, commands
from doc_programs import PROGRAMS, NoSuchThing, all_options, calls, check, command_named, options

from pgczmq import config
from pgczmq.config import keys

EVERY_OPTION = all_options() | {"--"}
KEYS = {key.removesuffix("[]") for key in keys()}
TABLES = {key.rpartition(".")[0] for key in KEYS} | {key.split(".")[0] for key in KEYS}
SECTIONS = "|".join(sorted({key.split(".")[0] for key in KEYS if "." in key}))


def comment_lines() -> Iterator[tuple[str, str]]:
    """(file, line) of the commands in the comments of configurations and the docstrings of examples."""
    for path in sorted([*ROOT.glob("configs/**/*.toml"), *ROOT.glob("examples/**/*.toml")]):
        for line in path.read_text().splitlines():
            if line.startswith("#") and (found := re.search(r"\b(pgc|pgc-master|pgc-worker) .*", line)):
                yield path.relative_to(ROOT).as_posix(), found[0]
    for path in sorted(ROOT.glob("examples/*.py")):
        for line in (ast.get_docstring(ast.parse(path.read_text()), clean=False) or "").splitlines():
            if line.startswith("    "):
                yield path.relative_to(ROOT).as_posix(), line.strip()


@pytest.mark.parametrize("page", PAGES)
def test_command_lines_mean_something_to_the_programs(page: str) -> None:
    for block in blocks((ROOT / page).read_text()):
        if block.language in {"sh", "console"}:
            for words in (call for command in commands(block) for call in calls(command)):
                _parse(words, f"{page}:{block.line}")


@pytest.mark.parametrize(("file", "line"), list(comment_lines()))
def test_command_lines_in_comments_mean_something_too(file: str, line: str) -> None:
    for words in calls(line):
        if "..." not in " ".join(words):
            _parse(words, file)


def _parse(words: list[str], where: str) -> None:
    try:
        check(words)
    except NoSuchThing as error:
        raise AssertionError(f"{where}: {' '.join(words)}: {error}") from None
    for option, value in pairwise(words):
        key = value.partition("=")[0]
        assert option != "--set" or _is_a_setting(key), f"{where}: there is no setting {key}."


def _is_a_setting(name: str) -> bool:
    return name in KEYS | TABLES or any(name.startswith(f"{key}.") for key in KEYS if key.endswith("args"))


@pytest.mark.parametrize("page", PAGES)
def test_commands_and_options_named_in_the_text_exist(page: str) -> None:
    for code in code_words((ROOT / page).read_text()):
        words = code.split()
        named = [word.partition("=")[0] for word in words if re.fullmatch(r"--[a-z][a-z-]*(=.*)?", word)]
        known = EVERY_OPTION
        if words[0] in PROGRAMS:
            try:
                known = options(command_named(words)[0])
            except NoSuchThing as error:
                raise AssertionError(f"{page}: `{code}`: {error}") from None
        elif not words[0].startswith("--"):
            continue
        assert set(named) <= known, f"{page}: `{code}` names an option that is not there; there are {sorted(known)}."


@pytest.mark.parametrize("page", PAGES)
def test_settings_named_in_the_text_exist(page: str) -> None:
    for code in code_words((ROOT / page).read_text()):
        for found in re.findall(rf"^((?:{SECTIONS})\.[a-z_.]*[a-z_])(?![a-z_./:(])", code):
            there = _is_a_setting(found) or code.endswith((".py", ".toml", ".md"))
            assert there, f"{page}: there is no setting `{found}`."


@pytest.mark.parametrize("page", PAGES)
def test_what_pages_quote_is_python_and_toml(page: str) -> None:
    for block in blocks((ROOT / page).read_text()):
        if block.language == "python":
            compile(block.text, f"{page}:{block.line}", "exec")
        if block.language == "toml":
            config.parse(tomllib.loads(block.text))
