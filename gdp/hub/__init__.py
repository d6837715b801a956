"""Checkpoint files, their cards, and the Hugging Face Hub."""

from gdp.hub.card import Card as Card
from gdp.hub.card import Result as Result
from gdp.hub.checkpoint import save_checkpoint as save
from gdp.hub.corpus import Corpus as Corpus
from gdp.hub.corpus import pull_corpus as pull_corpus
from gdp.hub.corpus import push_corpus as push_corpus
from gdp.hub.inventory import Listed as Listed
from gdp.hub.inventory import inventory as list
from gdp.hub.load import Resolved as Resolved
from gdp.hub.load import card as card
from gdp.hub.load import load as load
from gdp.hub.load import pull as pull
from gdp.hub.load import resolve as resolve
from gdp.hub.push import push as push

__all__ = [
    "Card",
    "Corpus",
    "Listed",
    "Resolved",
    "Result",
    "card",
    "list",
    "load",
    "pull",
    "pull_corpus",
    "push",
    "push_corpus",
    "resolve",
    "save",
]
