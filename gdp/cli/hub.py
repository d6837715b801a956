"""`gdp hub`: list, show, pull and push policies."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

app = typer.Typer(help="Policies: those that are bundled, and the Hugging Face Hub.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="a bundled name, a folder, org/name@revision, or hf://org/name@revision")]


@app.command("list")
def list_() -> None:
    """List the policies that can be loaded without network: those that travel with gdp, and those in the Hugging Face cache."""
    from gdp.hub.inventory import inventory

    table = Table(box=None, pad_edge=False)
    for column in ("policy", "where", "parameters", "bytes"):
        table.add_column(column, justify="right" if column in ("parameters", "bytes") else "left", overflow="fold")
    for one in inventory():
        table.add_row(one.name, one.where, str(one.num_parameters), str(one.weights_bytes))
    Console(highlight=False).print(table)


@app.command()
def card(name: Name) -> None:
    """Print the card of a policy: what it is, how it was made, what it was measured to do."""
    from gdp.hub.load import card as text_of

    typer.echo(text_of(name))


@app.command()
def pull(name: Name) -> None:
    """Download a policy into the Hugging Face cache, check it, and print its folder."""
    from gdp.hub.load import pull as pulled

    resolved = pulled(name)
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


@app.command("push-corpus")
def push_corpus(
    repository: Annotated[str, typer.Argument(help="org/name, a dataset repository")],
    workloads: Annotated[str, typer.Option(help="names of the catalog, comma-separated; all stored graphs where none is named")] = "",
    private: Annotated[bool, typer.Option(help="make a new repository private")] = False,
    create_pr: Annotated[bool, typer.Option(help="open a pull request instead of committing")] = False,
    dry_run: Annotated[bool, typer.Option(help="check, and say what would be sent")] = False,
) -> None:
    """Upload graphs of the catalog to a dataset repository of the Hugging Face Hub."""
    from gdp.hub.corpus import push_corpus as upload

    names = [name.strip() for name in workloads.split(",") if name.strip()]
    typer.echo(upload(repository, names, private=private, create_pr=create_pr, dry_run=dry_run))


@app.command("pull-corpus")
def pull_corpus(name: Annotated[str, typer.Argument(help="org/name@revision, or hf://datasets/org/name@revision")]) -> None:
    """Download a corpus of graphs into the Hugging Face cache, check every graph, and print its folder."""
    from gdp.hub.corpus import pull_corpus as pulled

    corpus = pulled(name)
    Console(soft_wrap=True, highlight=False).print(
        f"{len(corpus.graphs)} graphs of {corpus.name} at revision {corpus.revision} in {corpus.folder}", markup=False
    )
