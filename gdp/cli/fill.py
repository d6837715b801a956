"""Fills a typed dataclass from a composed configuration: every key known, every value of the declared type. Nothing is ever instantiated by name."""

import dataclasses
import difflib
import types
import typing
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from gdp.errors import InputError

T = TypeVar("T")


def fill(cls: type[T], values: Any, *, where: str) -> T:
    """An instance of the dataclass `cls` with the given values; a field with a default may be left out.

    Raises `InputError` on an unknown or missing key and on a value of another type; what the dataclass itself refuses passes through.
    """
    if not isinstance(values, Mapping):
        raise InputError(f"{where or 'the configuration'} is {values!r}; it must hold the keys {', '.join(_fields(cls))}")
    fields = _fields(cls)
    for key in values:
        if key not in fields:
            raise InputError(f"{where or 'the configuration'} has no key {key!r}; {did_you_mean(str(key), fields)}")
    missing = [
        name
        for name, field in fields.items()
        if name not in values and field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
    ]
    if missing:
        raise InputError(f"{where or 'the configuration'} lacks {', '.join(missing)}; give {'it' if len(missing) == 1 else 'them'} a value")
    hints = typing.get_type_hints(cls)
    return cls(**{key: _convert(hints[key], value, f"{where}.{key}" if where else key) for key, value in values.items()})


def did_you_mean(text: str, known: Iterable[str]) -> str:
    """The end of a sentence about an unknown name: the nearest known one, or all of them."""
    names = sorted(known)
    close = difflib.get_close_matches(text, names, n=1)
    return f"did you mean {close[0]!r}?" if close else f"known are {', '.join(names)}"


def _fields(cls: type) -> dict[str, Any]:
    return {field.name: field for field in dataclasses.fields(cls) if field.init}


def _convert(kind: Any, value: Any, where: str) -> Any:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        return fill(kind, value, where=where)
    if origin is typing.Literal:
        if value in arguments:
            return value
        raise InputError(f"{where} is {value!r}; {did_you_mean(str(value), map(str, arguments))}")
    if origin in (types.UnionType, typing.Union):
        if value is None and type(None) in arguments:
            return None
        (kind,) = [argument for argument in arguments if argument is not type(None)]
        return _convert(kind, value, where)
    if origin is tuple:
        if not isinstance(value, list | tuple):
            raise InputError(f"{where} is {value!r}; it must be a list")
        return tuple(_convert(arguments[0], item, f"{where}[{number}]") for number, item in enumerate(value))
    if origin is dict:
        if isinstance(value, dict):
            return value
        raise InputError(f"{where} is {value!r}; it must hold keys and values")
    if kind is float and type(value) is int:
        return float(value)
    if kind is Path and isinstance(value, str) and value:
        return Path(value)
    if type(value) is not kind:
        raise InputError(f"{where} is {value!r}; it must be {_ARTICLE.get(kind, kind)}")
    return value


_ARTICLE = types.MappingProxyType(
    {int: "a whole number", float: "a number", str: "a text", bool: "true or false", Path: "the path of a folder"}
)
