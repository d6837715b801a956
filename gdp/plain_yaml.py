"""YAML of files that may come from anywhere, read without surprises: no key twice, and no more data than the text accounts for."""

from typing import Any

import yaml

MAX_MERGED_PAIRS = 200_000
"""The most key-value pairs that mappings may have together once merge keys (`<<`) are resolved."""


def parse_yaml(text: str) -> Any:
    """The document. Raises `ValueError` with one line when it is no YAML, has a key twice, nests too deep, or grows out of bounds by merge keys."""
    try:
        return yaml.load(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        place = f" (line {error.problem_mark.line + 1})" if error.problem_mark is not None else ""
        raise ValueError(f"{error.problem or error.context}{place}") from error
    except yaml.YAMLError as error:
        raise ValueError(str(error).splitlines()[0] if str(error) else type(error).__name__) from error
    except RecursionError as error:
        raise ValueError("it nests too deep") from error
    except (TypeError, AttributeError, KeyError, IndexError) as error:
        raise ValueError(f"a value is not of the form its tag promises: {error}") from error


_MAX_DIGITS = 40


class _Loader(yaml.SafeLoader):
    def construct_yaml_int(self, node: yaml.ScalarNode) -> int:
        """A whole number. None to the base of 60 (`1:30`), which YAML 1.1 has and nobody means, and none of more digits than any number here has."""
        if ":" in node.value or len(node.value) > _MAX_DIGITS:
            raise yaml.MarkedYAMLError(
                problem=f"{node.value[:20]!r}... is no number that is meant here; quote text", problem_mark=node.start_mark
            )
        return super().construct_yaml_int(node)

    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self._resolved: set[int] = set()
        self._num_pairs = 0

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        """Resolves merge keys, once a mapping; the names of its own keys are looked at before those that it takes over."""
        if id(node) in self._resolved:
            return
        self._resolved.add(id(node))
        own: set[tuple[str, str]] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if (key.tag, key.value) in own:
                    raise yaml.MarkedYAMLError(problem=f"the key {key.value!r} is there twice", problem_mark=key.start_mark)
                own.add((key.tag, key.value))
        super().flatten_mapping(node)
        self._num_pairs += len(node.value)
        if self._num_pairs > MAX_MERGED_PAIRS:
            raise yaml.MarkedYAMLError(problem=f"merge keys make over {MAX_MERGED_PAIRS} fields", problem_mark=node.start_mark)


_Loader.add_constructor("tag:yaml.org,2002:int", _Loader.construct_yaml_int)
