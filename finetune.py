"""Adapts a policy to one program on one machine: `python finetune.py workload=NAME cluster=local init=gdp-tiny`."""

from gdp.cli.finetune import main

if __name__ == "__main__":
    main()
