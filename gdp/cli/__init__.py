"""The commands, and the Hydra entry points behind train.py and finetune.py."""
