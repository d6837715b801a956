"""`finetune.py`: adapts a policy to one program on one machine, in the simulator or with measured step times."""

import sys
from typing import Any

from gdp.cli.hydra_config import launch


def main() -> None:
    """The console script `gdp-finetune`."""
    sys.exit(launch("finetune", run, sys.argv[1:]))


def run(config: dict[str, Any]) -> int:
    """Fine-tunes as configured, continues a run that was stopped, and returns the exit code."""
    from gdp.cli.fill import fill
    from gdp.cli.finetune_config import FinetuneSettings
    from gdp.cli.finetuning import finetune_configured

    return finetune_configured(fill(FinetuneSettings, config, where=""), config)


if __name__ == "__main__":
    main()
