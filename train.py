"""Pretrains a placement policy: `python train.py experiment=smoke`; `python train.py --help` lists what can be set."""

from gdp.cli.train import main

if __name__ == "__main__":
    main()
