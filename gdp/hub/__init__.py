"""Checkpoint files, their cards, and the Hugging Face Hub."""

from gdp.hub.card import Card as Card
from gdp.hub.card import Result as Result
from gdp.hub.checkpoint import load_checkpoint as load_checkpoint
from gdp.hub.checkpoint import save_checkpoint as save_checkpoint
from gdp.hub.load import Resolved as Resolved
from gdp.hub.load import available as available
from gdp.hub.load import load as load
from gdp.hub.load import resolve as resolve
from gdp.hub.push import push as push
