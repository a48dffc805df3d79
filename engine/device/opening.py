"""A device by its name."""

from __future__ import annotations

import torch

from engine.device.base import Device
from engine.device.cpu import CpuDevice
from engine.device.cuda import CudaDevice
from engine.errors import EngineError

NAMES = ("cpu", "cuda", "auto")


def open_device(name: str) -> Device:
    """cpu, cuda (the first GPU that CUDA_VISIBLE_DEVICES leaves), or auto: cuda where there is one.

    Raises EngineError.
    """
    if name not in NAMES:
        raise EngineError(
            "invalid-request",
            f"unknown device {name!r}: use {', '.join(NAMES)}",
            "device",
        )
    found = name != "cpu" and torch.cuda.is_available()
    if name == "cuda" and not found:
        built = torch.version.cuda is not None
        reason = "no CUDA GPU is to be seen" if built else "this torch was built without CUDA"
        raise EngineError("invalid-request", f"{reason}: use device cpu or auto", "device")
    return CudaDevice() if found else CpuDevice()
