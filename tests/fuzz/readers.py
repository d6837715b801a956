"""Every reader that is fuzzed. A new one is an entry in one of these tuples."""

from tests.fuzz.binary_readers import BINARY_READERS
from tests.fuzz.own_readers import OWN_READERS
from tests.fuzz.reader import Reader
from tests.fuzz.text_readers import TEXT_READERS

READERS: tuple[Reader, ...] = (*BINARY_READERS, *TEXT_READERS, *OWN_READERS)
