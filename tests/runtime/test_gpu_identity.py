"""A GPU is called the same in all processes, however each of them numbers it."""

from types import SimpleNamespace

import pytest
import torch

from gdp.runtime.gpu_identity import gpu_identity

UUIDS = ("0f41", "5af0", "77c2")


def shown(monkeypatch: pytest.MonkeyPatch, visible: str) -> None:
    """Torch in a process that is shown these GPUs of a machine of three."""
    numbers = [int(number) for number in visible.split(",")]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: len(numbers))
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda number: SimpleNamespace(uuid=UUIDS[numbers[number]]))


def test_one_gpu_has_one_name_under_all_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    shown(monkeypatch, "0,1,2")
    names = [gpu_identity(number) for number in range(3)]
    assert names == ["GPU-0f41", "GPU-5af0", "GPU-77c2"]
    shown(monkeypatch, "2,1")
    assert [gpu_identity(number) for number in range(2)] == [names[2], names[1]]


def test_where_torch_sees_no_gpu_it_is_called_as_the_environment_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert [gpu_identity(number) for number in (0, 3)] == ["0", "3"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2, GPU-5af0")
    assert [gpu_identity(number) for number in (0, 1)] == ["2", "GPU-5af0"]


def _no_start(number: int) -> None:
    raise RuntimeError("CUDA error: the device is in use")


@pytest.mark.parametrize("properties", [lambda number: SimpleNamespace(name="one without a UUID"), _no_start])
def test_where_torch_cannot_tell_it_is_called_as_the_environment_does(monkeypatch: pytest.MonkeyPatch, properties: object) -> None:
    shown(monkeypatch, "2,1")
    monkeypatch.setattr(torch.cuda, "get_device_properties", properties)
    assert gpu_identity(0) == "2"


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_gpu_of_this_machine_has_a_uuid(monkeypatch: pytest.MonkeyPatch) -> None:
    name = gpu_identity(0)
    assert len(name) == len("GPU-") + 36
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", name)  # what this process is shown stays as it is
    assert gpu_identity(0) == name
