"""The command `gdp`."""

import sys
from typing import Annotated

import typer
from rich.console import Console

import gdp
from gdp.cli import bench, compare, demo, devices, export, hub, place, profile, solve
from gdp.cli.process import end_with
from gdp.errors import InputError

app = typer.Typer(
    name="gdp",
    help="Place the ops of a TensorFlow or PyTorch program on several devices with pretrained policies, fine-tuned by measured step times.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("devices")(devices.devices)
app.command("place")(place.place)
app.command("profile")(profile.profile)
app.command("bench")(bench.bench)
app.command("export")(export.export)
app.command("compare")(compare.compare)
app.command("solve")(solve.solve)
app.add_typer(hub.app, name="hub")
app.command("demo")(demo.demo)


@app.callback(invoke_without_command=True)
def root(
    version: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Options of every command; `main` reads `--debug` itself."""
    if version:
        typer.echo(f"gdp {gdp.__version__}")
        raise typer.Exit


def main() -> None:
    """Runs the command line: a user's mistake is one sentence and exit code 2, an interrupt is exit code 130, SIGTERM 143."""
    end_with(_run)


def _run() -> int:
    debug = "--debug" in sys.argv[1:]
    sys.argv[1:] = [argument for argument in sys.argv[1:] if argument != "--debug"]
    try:
        app()
    except InputError as error:
        if debug:
            raise
        Console(stderr=True, soft_wrap=True, highlight=False).print(f"gdp: {error}", markup=False)
        return 2
    return 0


if __name__ == "__main__":
    main()
