"""What a measuring process answers, once it is sure that it makes sense: another process wrote it, which may have gone wrong in any way."""

from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from gdp.measurement import Status
from gdp.runtime.process import ChildFailed
from gdp.runtime.timing import MIN_PAIRS

_Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]
_StepSeconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class Steps(BaseModel):
    """Of `measure`: seconds of the steps, and by device, the median of its busy seconds."""

    model_config = ConfigDict(strict=True)

    candidate_s: Annotated[list[_StepSeconds], Field(min_length=MIN_PAIRS)]
    incumbent_s: list[_StepSeconds]
    busy_s: list[_Seconds]

    @model_validator(mode="after")
    def _paired(self) -> "Steps":
        if self.incumbent_s and len(self.incumbent_s) != len(self.candidate_s):
            raise ValueError(f"{len(self.candidate_s)} times of one and {len(self.incumbent_s)} of the other are no pairs")
        return self


class Profile(BaseModel):
    """Of `profile`: seconds by op."""

    model_config = ConfigDict(strict=True)

    op_s: dict[str, _Seconds]


_Answer = TypeVar("_Answer", bound=BaseModel)


def checked(kind: type[_Answer], answer: Mapping[str, Any]) -> _Answer:
    """The answer, if it is one of this kind. Raises `ChildFailed` when it is not; nobody should ask that process again."""
    try:
        return kind.model_validate(answer)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"])) or "as a whole"
        raise ChildFailed(Status.FAILED, f"the measuring process gave an answer that makes no sense ({where}: {first['msg']})") from error
