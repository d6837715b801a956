"""`gdp hub`: list, pull and push policies."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

app = typer.Typer(help="Policies: those that are bundled, and the Hugging Face Hub.", no_args_is_help=True)


@app.command("list")
def list_() -> None:
    """List the policies that travel with gdp."""
    from gdp.hub.load import available

    for name in available():
        typer.echo(name)


@app.command()
def pull(name: Annotated[str, typer.Argument(help="org/name@revision, or hf://org/name@revision")]) -> None:
    """Download a policy into the Hugging Face cache, check it, and print its folder."""
    from gdp.hub.load import load, resolve

    resolved = resolve(name)
    load(str(resolved.folder))
    Console(soft_wrap=True, highlight=False).print(f"{resolved.name} at revision {resolved.revision} in {resolved.folder}", markup=False)


@app.command()
def push(
    folder: Annotated[Path, typer.Argument(help="a checkpoint folder")],
    repository: Annotated[str, typer.Argument(help="org/name")],
    private: Annotated[bool, typer.Option(help="make a new repository private")] = False,
    create_pr: Annotated[bool, typer.Option(help="open a pull request instead of committing")] = False,
    dry_run: Annotated[bool, typer.Option(help="check, and say what would be sent")] = False,
) -> None:
    """Check a checkpoint folder and upload it to the Hugging Face Hub."""
    from gdp.hub.push import push as upload

    typer.echo(upload(folder, repository, private=private, create_pr=create_pr, dry_run=dry_run))
