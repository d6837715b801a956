"""`train.py`: pretrains a policy on many graphs and clusters in the simulator."""

import sys
from typing import Any

from gdp.cli.hydra_config import launch


def main() -> None:
    """The console script `gdp-train`."""
    sys.exit(launch("train", run, sys.argv[1:]))


def run(config: dict[str, Any]) -> int:
    """Pretrains as configured, continues a run that was stopped, and returns the exit code."""
    from gdp.cli.fill import fill
    from gdp.cli.pretraining import pretrain
    from gdp.cli.train_config import TrainConfig

    return pretrain(fill(TrainConfig, config, where=""), config)


if __name__ == "__main__":
    main()
