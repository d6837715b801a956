"""How many values a Parquet file really holds, counted from the headers of its pages without decoding any.

Runs and dictionaries let a file of a few kilobytes stand for gigabytes of values, and what its columns declare may be wrong. Only the headers, which say how many values each page
decodes to, are parsed here (Thrift compact protocol; the structures are those of the Parquet format's parquet.thrift).
"""

import mmap
import struct
from pathlib import Path
from typing import Any

_MAX_DEPTH = 32
_MAX_PAGES = 1_000_000

_FOOTER_BYTES, _MAGIC = 8, b"PAR1"
_ROW_GROUPS, _COLUMNS, _META_DATA = 4, 1, 3
_NUM_VALUES, _COMPRESSED_BYTES, _DATA_OFFSET, _DICTIONARY_OFFSET = 5, 7, 9, 11
_PAGE_BYTES, _DATA_PAGE, _DICTIONARY_PAGE, _DATA_PAGE_V2, _PAGE_VALUES = 3, 5, 7, 8, 1


def count_values(path: Path) -> int:
    """The values in all columns of a file, dictionaries included. Raises `ValueError` when the headers make no sense or contradict each other."""
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        size = len(data)
        if size < 3 * len(_MAGIC) or data[size - 4 :] != _MAGIC:
            raise ValueError("it has no footer")
        footer = size - _FOOTER_BYTES - struct.unpack("<I", data[size - 8 : size - 4])[0]
        try:
            groups = _Reader(data, footer, size - _FOOTER_BYTES).structure()[_ROW_GROUPS]
            return sum(_column_values(data, column[_META_DATA]) for group in groups for column in group[_COLUMNS])
        except (KeyError, TypeError, IndexError, AttributeError, struct.error) as error:
            raise ValueError("its headers are damaged") from error


def _column_values(data: mmap.mmap, column: dict[int, Any]) -> int:
    if column[_NUM_VALUES] == 0:  # nothing is read, and there may be no data page
        return 0
    start = column[_DATA_OFFSET]
    dictionary = column.get(_DICTIONARY_OFFSET, 0)
    if 0 < dictionary < start:
        start = dictionary
    end = start + column[_COMPRESSED_BYTES]
    values = total = pages = 0
    while start < end:
        reader = _Reader(data, start, min(end, len(data)))
        page = reader.structure()
        start = reader.place + page[_PAGE_BYTES]
        here = sum(page[kind][_PAGE_VALUES] for kind in (_DATA_PAGE, _DATA_PAGE_V2) if kind in page)
        in_dictionary = page[_DICTIONARY_PAGE][_PAGE_VALUES] if _DICTIONARY_PAGE in page else 0
        pages += 1
        if min(page[_PAGE_BYTES], here, in_dictionary) < 0 or pages > _MAX_PAGES:
            raise ValueError("its page headers are damaged")
        values += here
        total += here + in_dictionary
    if start != end or values != column[_NUM_VALUES]:
        raise ValueError(f"a column declares {column[_NUM_VALUES]} values and its pages hold {values}")
    return int(total)


class _Reader:
    """Thrift's compact protocol: structures as mappings from field number to value."""

    def __init__(self, data: mmap.mmap, place: int, end: int) -> None:
        if not 0 <= place < end:
            raise ValueError("its headers point outside the file")
        self._data, self.place, self._end = data, place, end

    def structure(self, depth: int = 0) -> dict[int, Any]:
        fields: dict[int, Any] = {}
        number = 0
        while (head := self._byte()) != 0:
            number = number + (head >> 4) if head >> 4 else self._signed()
            kind = head & 15
            fields[number] = kind == 1 if kind in (1, 2) else self._value(kind, depth + 1)
        return fields

    def _value(self, kind: int, depth: int) -> Any:
        if depth > _MAX_DEPTH:
            raise ValueError("its headers nest too deep")
        match kind:
            case 1 | 2 | 3:
                return self._byte()
            case 4 | 5 | 6:
                return self._signed()
            case 7:
                return self._skip(8)
            case 8:
                return self._skip(self._unsigned())
            case 9 | 10:
                head = self._byte()
                count = head >> 4 if head >> 4 < 15 else self._unsigned()
                return [self._value(head & 15, depth + 1) for _ in range(min(count, self._end - self.place + 1))]
            case 12:
                return self.structure(depth)
            case _:
                raise ValueError("its headers hold a type that Parquet has not")

    def _byte(self) -> int:
        if self.place >= self._end:
            raise ValueError("its headers are cut off")
        self.place += 1
        return self._data[self.place - 1]

    def _unsigned(self) -> int:
        value = shift = 0
        while True:
            byte = self._byte()
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value
            if shift > 63:
                raise ValueError("its headers hold a number that is too large")

    def _signed(self) -> int:
        value = self._unsigned()
        return (value >> 1) ^ -(value & 1)

    def _skip(self, count: int) -> None:
        self.place += count
        if self.place > self._end:
            raise ValueError("its headers are cut off")
