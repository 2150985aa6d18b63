"""Copies of a training's state in host memory, made while the training waits and written while it goes on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from trainer.device import Copy, Device


class HostCopy:
    """Host memory for one copy of a nested state; taken once and used again for every copy."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._room: dict[str, torch.Tensor] = {}

    def make_room(self, state: Any) -> None:
        """Take the memory beforehand: the first use of so much of it can take longer than a step."""
        copies: dict[int, Copy] = {}
        self._mapped(state, "", copies)
        for _, room in copies.values():
            room.zero_()

    def start(self, state: Any) -> tuple[Any, Callable[[], None]]:
        """Copy a state as it is now.

        Args:
            state: Dictionaries, lists and tuples of tensors and plain values. A tensor that occurs twice, as tied
                weights do, is copied once.

        Returns:
            The copy, whose tensors are valid once the function beside it has returned.
        """
        copies: dict[int, Copy] = {}
        copied = self._mapped(state, "", copies)
        return copied, self._device.copy_to_host(list(copies.values()))

    def _mapped(self, value: Any, path: str, copies: dict[int, Copy]) -> Any:
        if isinstance(value, torch.Tensor):
            if id(value) not in copies:
                copies[id(value)] = (value.detach(), self._room_for(value.detach(), path))
            return copies[id(value)][1]
        if isinstance(value, dict):
            return {key: self._mapped(inner, f"{path}/{key}", copies) for key, inner in value.items()}
        if isinstance(value, list | tuple):
            return type(value)(self._mapped(inner, f"{path}/{place}", copies) for place, inner in enumerate(value))
        return value

    def _room_for(self, tensor: torch.Tensor, path: str) -> torch.Tensor:
        if path not in self._room:
            self._room[path] = self._device.host_memory(tensor)
        return self._room[path]
