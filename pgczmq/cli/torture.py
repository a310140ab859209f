"""``pgc torture``: break runs on purpose, and show that they come through."""

import typer

torture = typer.Typer(help="Break runs on purpose, and show what comes of it.", no_args_is_help=True)
