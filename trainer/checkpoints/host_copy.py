"""Copies of a training's state in host memory, made while the training waits and written while it continues."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from trainer.device import Device
from trainer.device.packing import Bucket, in_buckets

Layout = list[tuple[torch.Size, torch.dtype, torch.device]]


class HostCopy:
    """Host memory for one copy of a nested state; allocated once and used again for every copy."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._layout: Layout = []
        self._numbers: list[list[int]] = []
        """Numbers of the tensors in each bucket."""
        self._rooms: list[torch.Tensor] = []
        """Host memory of each bucket."""
        self._copies: list[torch.Tensor] = []
        """Copy of each tensor, which lies in a bucket's memory."""

    def make_room(self, state: Any) -> None:
        """Allocate the memory beforehand: the first use of so much memory can take longer than a step."""
        self._fit(list(_tensors(state).values()))
        for room in self._rooms:
            room.zero_()

    def start(self, state: Any) -> tuple[Any, Callable[[], None]]:
        """Copy a state as it is now.

        Args:
            state: Dictionaries, lists and tuples of tensors and plain values. A tensor that occurs twice, as tied
                weights do, is copied once.

        Returns:
            The copy and a function that waits for it; the copy's tensors are valid after the function has returned.
        """
        found = _tensors(state)
        tensors = list(found.values())
        self._fit(tensors)
        buckets = [
            Bucket([tensors[number] for number in numbers], room)
            for numbers, room in zip(self._numbers, self._rooms, strict=True)
        ]
        copied = _with(state, dict(zip(found, self._copies, strict=True)))
        return copied, self._device.copy_to_host(buckets)

    def _fit(self, tensors: list[torch.Tensor]) -> None:
        """Allocate memory for tensors of other sizes than the last."""
        layout = [(tensor.shape, tensor.dtype, tensor.device) for tensor in tensors]
        if layout != self._layout:
            self._layout, self._numbers = layout, in_buckets(tensors)
            self._rooms = []
            copies: dict[int, torch.Tensor] = {}
            for numbers in self._numbers:
                sources = [tensors[number] for number in numbers]
                room = self._device.host_memory(sum(source.numel() for source in sources), sources[0].dtype)
                places = Bucket(sources, room).places()
                copies |= {number: _alone(place) for number, (_, place) in zip(numbers, places, strict=True)}
                self._rooms.append(room)
            self._copies = [copies[number] for number in range(len(tensors))]


def _tensors(state: Any) -> dict[int, torch.Tensor]:
    """The tensors of a state by their identity, in the order of their occurrence."""
    if isinstance(state, torch.Tensor):
        return {id(state): state.detach()}
    found: dict[int, torch.Tensor] = {}
    if isinstance(state, dict | list | tuple):
        for inner in state.values() if isinstance(state, dict) else state:
            found |= _tensors(inner)
    return found


def _with(state: Any, copies: dict[int, torch.Tensor]) -> Any:
    """Replace the tensors of a state by others."""
    if isinstance(state, torch.Tensor):
        return copies[id(state)]
    if isinstance(state, dict):
        return {key: _with(inner, copies) for key, inner in state.items()}
    if isinstance(state, list | tuple):
        return type(state)(_with(inner, copies) for inner in state)
    return state


def _alone(place: torch.Tensor) -> torch.Tensor:
    """A separate tensor on the same memory, since torch writes the whole underlying tensor of a view to a file."""
    if place.numel() == 0:
        return torch.empty_like(place)
    as_bytes = place.reshape(-1).view(torch.uint8).numpy()
    return torch.from_numpy(as_bytes).view(place.dtype).view(place.shape)
