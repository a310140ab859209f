"""Writes examples/configuration.md, the page of all settings, from the models that read them.

python tests/docs/make_configuration.py
"""

from pathlib import Path

from pgczmq.described import Table, described

PAGE = Path(__file__).resolve().parents[2] / "examples" / "configuration.md"

HEAD = """\
# Every setting

One TOML file describes a run. `pgc init` writes one to begin with; [configs/](../configs) has others. Each setting has
four ways in, and the first one that is there counts:

1. `--set scheme.name=dgd` on the command line of whatever takes `--config`; it may be repeated, and takes TOML values:
   `--set 'task.args={hidden=32}'`
2. `PGC_SCHEME__NAME=dgd` in the environment: upper case, two underscores for a dot
3. the file given with `--config`
4. the default below

A key that does not exist is an error that names the nearest one. A key that the chosen scheme does not read is left
alone, and `pgc explain` lists it. What was resolved is written to `config.toml` in the run's directory. Workers need no
file: they get the run from the master.

*This page is made from [pgczmq/config.py](../pgczmq/config.py) by `python tests/docs/make_configuration.py`; a test
fails when it is out of date.*
"""

TAIL = """\
## In the environment, but not of a run

| variable | read by | what it is |
|---|---|---|
| `PGC_MASTER` | `pgc-worker`, `pgc top` | the master's address, `tcp://HOST:PORT`; `--master` goes before it |
| `PGC_CONNECT` | these and `pgc doctor` | the file with address and keys; `pgc-connect.json` unless set |
| `PGC_WORKER_ID` | `pgc-worker` | the worker's number; `--id` goes before it |
| `PGC_ALLOW` | `pgc-worker` | code of yours that a master may name: `my_model:spirals`; commas part several |
| `PGC_MASTER_TIMEOUT` | `pgc-worker` | seconds to look for a master that is away; 600 unless set |
| `PGC_LOG_LEVEL` | all programs | `DEBUG`, `INFO` (the default), `WARNING` or `ERROR` |
| `NO_COLOR` | all programs | no colours, whatever it is set to |
"""


def page() -> str:
    """The whole page as Markdown."""
    return "\n".join([HEAD, *map(_table, described()), TAIL])


def _table(table: Table) -> str:
    title = f"`[{table.name}]`" if table.name else "Top of the file"
    if table.name.endswith("[]"):
        title = f"`[[{table.name.removesuffix('[]')}]]`"
    rows = [
        f"| `{key.name.rpartition('.')[2]}` | {key.kind} | {f'`{key.default}`' if key.default else '-'} "
        f"| {key.meaning} |"
        for key in table.keys
    ]
    head = ["| key | value | default | meaning |", "|---|---|---|---|"]
    return "\n".join([f"## {title}", "", table.about, "", *head, *rows, ""])


if __name__ == "__main__":
    PAGE.write_text(page())
