import pytest
import torch

from gdp.runtime.device_memory import PeakMemory, resident_bytes

HOST = torch.device("cpu")


def test_memory_that_tensors_share_counts_once_and_that_of_other_devices_not():
    value = torch.zeros(100)
    others = [torch.zeros(7, dtype=torch.int8), torch.zeros(9, device="meta"), 3.0, None]
    assert resident_bytes([value, value[10:], value.reshape(10, 10), *others], HOST) == 400 + 7


def test_the_host_s_memory_is_not_watched():
    with PeakMemory([HOST, HOST]) as peak:
        torch.zeros(1000)
    assert peak.added_bytes == [0, 0]


def test_an_error_inside_is_told_though_the_gpu_answers_no_more(monkeypatch):
    def refuse(_: torch.device) -> None:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    monkeypatch.setattr(torch.cuda, "synchronize", lambda _: None)
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda _: None)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda _: 0)
    with pytest.raises(ValueError, match="the op of this name failed"), PeakMemory([torch.device("cuda:0")]):
        monkeypatch.setattr(torch.cuda, "synchronize", refuse)
        raise ValueError("the op of this name failed")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_the_peak_of_a_gpu_is_what_was_held_at_once():
    gpu = torch.device("cuda:0")
    before = torch.zeros(2**20, device=gpu)
    with PeakMemory([HOST, gpu]) as peak:
        first = torch.zeros(2**22, dtype=torch.uint8, device=gpu)
        del first
        second = torch.zeros(2**21, dtype=torch.uint8, device=gpu)
    assert peak.added_bytes == [0, 2**22]
    assert resident_bytes([before, second], gpu) == 2**22 + 2**21
