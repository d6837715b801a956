"""`train.py`: pretrains a policy on many graphs and clusters in the simulator."""

import sys
from collections.abc import Sequence
from typing import Any

from gdp.cli.process import end_with


def main() -> None:
    """The console script `gdp-train`."""
    end_with(_launch)


def run(config: dict[str, Any], typed: Sequence[str]) -> int:
    """Pretrains as configured, continues a run that was stopped, and returns the exit code; `typed` is the command line."""
    from gdp.cli.fill import fill
    from gdp.cli.pretraining import pretrain
    from gdp.cli.train_config import TrainConfig

    return pretrain(fill(TrainConfig, config, where=""), config, typed)


def _launch() -> int:
    from gdp.cli.launch import launch

    return launch("train", run, sys.argv[1:])


if __name__ == "__main__":
    main()
