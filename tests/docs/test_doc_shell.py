"""The runner of documented commands: it must fail where a reader would, or it proves nothing."""

from pathlib import Path

import pytest
from doc_pages import blocks, commands
from doc_shell import marks_that_mean_nothing, run

FENCE = "```"


def page(*pieces: tuple[str, str, str]) -> str:
    """A page of (comment or nothing, what stands behind the fence, text)."""
    return "\n\n".join(f"{mark}\n{FENCE}{info}\n{text}\n{FENCE}" for mark, info, text in pieces)


@pytest.mark.parametrize(
    ("pieces", "code"),
    [
        ([("", "sh", "true")], 0),
        ([("", "sh", "no-such-command\ntrue")], 127),
        ([("", "sh", "false"), ("", "sh", "true")], 1),
        ([("<!-- test: background -->", "sh", "false"), ("", "sh", "true")], 1),
        ([("<!-- test: background -->", "sh", "true"), ("", "sh", "true")], 0),
        ([("<!-- test: exits 75 -->", "sh", "(exit 75)")], 0),
        ([("<!-- test: exits 75 -->", "sh", "(exit 74)")], 1),
        ([("", "console", "false"), ("", "text", "false")], 0),
        ([("<!-- test: PGC_STEPS=5 -->", "sh", '[ "$PGC_STEPS" = 5 ]'), ("", "sh", '[ -z "${PGC_STEPS:-}" ]')], 0),
        (
            [
                ("", "sh", "cd examples"),
                ("", "toml mine.toml", "steps = 3"),
                ("", "sh", "grep -q 3 ../examples/mine.toml"),
            ],
            0,
        ),
        ([("", "sh", "echo 1 > one; scp one vm-7:"), ("<!-- test: on vm-7 -->", "sh", "grep -q 1 one; cd /")], 0),
        ([("", "sh", "echo 1 > one; scp one vm-7:uno; ssh vm-7 cat uno; ssh vm-7 cat one")], 1),
    ],
)
def test_a_page_ends_as_its_commands_do(pieces: list[tuple[str, str, str]], code: int, tmp_path: Path) -> None:
    ended, printed = run(blocks(page(*pieces)), tmp_path)
    assert ended == code, printed


def test_commands_of_a_block() -> None:
    text = "pgc local \\\n    --set a=1   # why\n\n# a comment\npgc compare --set 'delay.file=[\"#1\"]'\n"
    (block,) = blocks(f"{FENCE}console\n{text}{FENCE}\n")
    assert commands(block) == ["pgc local --set a=1", "pgc compare --set 'delay.file=[\"#1\"]'"]


def test_blocks_in_lists_lose_their_indent() -> None:
    (block,) = blocks("1. Do\n\n   <!-- test: background; PGC_STEPS=5 -->\n   ```sh\n   true\n     && true\n   ```\n")
    assert block.text == "true\n  && true\n"
    assert block.marks == ("background", "PGC_STEPS=5")


def test_a_mark_that_nobody_reads_is_found() -> None:
    (block,) = blocks(f"<!-- test: backgruond; on vm-1; PGC_STEPS=5 PGC_SEED=2 -->\n{FENCE}sh\ntrue\n{FENCE}\n")
    assert marks_that_mean_nothing(block) == ["backgruond"]
