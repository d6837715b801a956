"""What a measuring process answers, once it is sure that it makes sense: another process wrote it, which may have gone wrong in any way."""

from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from gdp.measurement import Status
from gdp.runtime.process import ChildFailed
from gdp.runtime.timing import MIN_PAIRS

_Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]
_StepSeconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class Steps(BaseModel):
    """Of `measure`: seconds of the steps, and by device, the median of its busy seconds and the most bytes that the candidate takes of its memory, 0 where that is not known."""

    model_config = ConfigDict(strict=True)

    candidate_s: Annotated[list[_StepSeconds], Field(min_length=MIN_PAIRS)]
    incumbent_s: list[_StepSeconds]
    busy_s: list[_Seconds]
    peak_memory_bytes: list[Annotated[int, Field(ge=0, lt=2**62)]]

    def misfit(self, request: Mapping[str, Any]) -> str:
        """What in it does not fit the request; empty when all does."""
        alone = request["incumbent"] is None and request.get("unplaced_on") is None
        if len(self.incumbent_s) != (0 if alone else len(self.candidate_s)):
            return f"{len(self.candidate_s)} times of one and {len(self.incumbent_s)} of the other"
        if len(self.busy_s) < len(request["devices"]):
            return f"{len(self.busy_s)} busy times of {len(request['devices'])} devices"
        if len(self.peak_memory_bytes) != len(self.busy_s):
            return f"{len(self.busy_s)} busy times and {len(self.peak_memory_bytes)} peaks of memory"
        return ""


class Profile(BaseModel):
    """Of `profile`: seconds by op."""

    model_config = ConfigDict(strict=True)

    op_s: dict[str, _Seconds]


_Answer = TypeVar("_Answer", bound=BaseModel)


def checked(kind: type[_Answer], answer: Mapping[str, Any], request: Mapping[str, Any]) -> _Answer:
    """The answer, if it is one of this kind to this request. Raises `ChildFailed` when it is not; nobody should ask that process again."""
    try:
        found = kind.model_validate(answer)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"])) or "as a whole"
        raise ChildFailed(Status.FAILED, f"the measuring process gave an answer that makes no sense ({where}: {first['msg']})") from error
    misfit = found.misfit(request) if isinstance(found, Steps) else ""
    if misfit:
        raise ChildFailed(Status.FAILED, f"the measuring process gave an answer that makes no sense ({misfit})")
    return found
