"""Checkpoint files, their cards, and the Hugging Face Hub."""

from gdp.hub.card import Card as Card
from gdp.hub.card import Result as Result
from gdp.hub.checkpoint import save_checkpoint as save
from gdp.hub.inventory import Listed as Listed
from gdp.hub.inventory import inventory as list
from gdp.hub.load import Resolved as Resolved
from gdp.hub.load import card as card
from gdp.hub.load import load as load
from gdp.hub.load import pull as pull
from gdp.hub.load import resolve as resolve
from gdp.hub.push import push as push

__all__ = ["Card", "Listed", "Resolved", "Result", "card", "list", "load", "pull", "push", "resolve", "save"]
