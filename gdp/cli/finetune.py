"""`finetune.py`: adapts a policy to one program on one machine, in the simulator or with measured step times."""

import sys
from collections.abc import Sequence
from typing import Any

from gdp.cli.process import end_with


def main() -> None:
    """The console script `gdp-finetune`."""
    end_with(_launch)


def run(config: dict[str, Any], typed: Sequence[str]) -> int:
    """Fine-tunes as configured, continues a run that was stopped, and returns the exit code; `typed` is the command line."""
    from gdp.cli.fill import fill
    from gdp.cli.finetune_config import FinetuneSettings
    from gdp.cli.finetuning import finetune_configured

    return finetune_configured(fill(FinetuneSettings, config, where=""), config, typed)


def _launch() -> int:
    from gdp.cli.launch import launch

    return launch("finetune", run, sys.argv[1:])


if __name__ == "__main__":
    main()
