"""Every command of every page is run, from top to bottom, or is listed in not_run.toml with the reason."""

import re
import tomllib
from pathlib import Path

import pytest
from doc_pages import PAGES, ROOT, Block, blocks, commands
from doc_shell import ADDRESS, marks_that_mean_nothing, network, run

LISTED = tomllib.loads((Path(__file__).parent / "not_run.toml").read_text())
SHELLS = {"sh", "console"}
LANGUAGES = SHELLS | {"text", "toml", "python", "yaml", "ini", "json"}


def blocks_of(page: str) -> list[Block]:
    return blocks((ROOT / page).read_text())


def runs(page: str) -> bool:
    return any(block.language == "sh" for block in blocks_of(page))


@pytest.mark.parametrize("page", [page for page in PAGES if runs(page)])
def test_the_commands_of_a_page_work(page: str, tmp_path: Path) -> None:
    found = blocks_of(page)
    if any(ADDRESS in block.text for block in found if block.language == "sh") and not network():
        pytest.skip("needs a network namespace (unshare and ip), for an address that the page names")
    code, printed = run(found, tmp_path)
    assert code == 0, f"{page} ends with exit code {code}:\n{printed}"


@pytest.mark.parametrize("page", PAGES)
def test_what_a_block_is_stands_behind_its_fence(page: str) -> None:
    for block in blocks_of(page):
        where = f"{page}:{block.line}"
        assert block.language in LANGUAGES, f"{where}: say what the block is: one of {', '.join(sorted(LANGUAGES))}."
        assert block.language == "sh" or not block.marks, f"{where}: a mark above a block that is not run."
        assert not marks_that_mean_nothing(block), f"{where}: {marks_that_mean_nothing(block)} says nothing."


def test_no_command_goes_without_being_run_but_those_that_are_listed() -> None:
    unrun = {
        (page, command)
        for page in PAGES
        for block in blocks_of(page)
        if block.language == "console"
        for command in commands(block)
    }
    listed = {(page, command) for page, reasons in LISTED.items() for command in reasons}
    assert unrun - listed == set(), "not run, and not listed in not_run.toml with a reason"
    assert listed - unrun == set(), "listed in not_run.toml, but on no page"
    for reason in (reason for reasons in LISTED.values() for reason in reasons.values()):
        named = re.findall(r"tests/\S+\.py|examples/\S+\.md", reason)
        assert reason.strip() and all((ROOT / name).exists() for name in named), f"the reason is no reason: {reason}"
