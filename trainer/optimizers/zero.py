"""ZeRO stage 1 (Rajbhandari et al. 2020, §5.1): the optimizer's state is divided between the ranks.

Gradients are averaged as without it; each rank then changes the parameters that it owns and sends them to the others.
Whole parameters are owned, so every update is the one that an undivided optimizer would make, to the last bit, and a
checkpoint holds the undivided state: it can be resumed with any number of ranks, divided or not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist

from trainer.device.distributed import Gang


class ShardedOptimizer:
    """One rank's share of an optimizer, with the interface of a whole one."""

    def __init__(
        self,
        groups: Sequence[Mapping[str, Any]],
        make: Callable[[Sequence[Mapping[str, Any]]], torch.optim.Optimizer],
        gang: Gang,
    ) -> None:
        """
        Args:
            groups: All parameters, in the same order on every rank.
            make: Builds the optimizer for a part of the parameters.
            gang: The ranks to divide between.
        """
        self._parameters: list[torch.Tensor] = [parameter for group in groups for parameter in group["params"]]
        self._owners = owners([parameter.numel() for parameter in self._parameters], gang.world_size)
        self._places = [place for place, owner in enumerate(self._owners) if owner == gang.rank]
        """Numbers of this rank's parameters among all, in the order of its own optimizer."""
        owner_of = {id(parameter): owner for parameter, owner in zip(self._parameters, self._owners, strict=True)}
        self._own = make(
            [{**group, "params": [p for p in group["params"] if owner_of[id(p)] == gang.rank]} for group in groups]
        )
        self._group_sizes = [len(group["params"]) for group in groups]
        self.param_groups = self._own.param_groups

    def step(self) -> None:
        """Change the parameters that this rank owns, and exchange them."""
        self._own.step()
        with torch.no_grad():
            sent = [
                dist.broadcast(parameter.detach(), src=owner, async_op=True)
                for parameter, owner in zip(self._parameters, self._owners, strict=True)
            ]
            for work in sent:
                if work is not None:
                    work.wait()

    def zero_grad(self) -> None:
        """Drop the gradients of all parameters, not only of this rank's."""
        for parameter in self._parameters:
            parameter.grad = None

    def state_dict(self) -> dict[str, Any]:
        """This rank's state under the numbers of the undivided optimizer; `gather` joins the states of all ranks."""
        own = self._own.state_dict()
        state = {self._places[number]: value for number, value in own["state"].items()}
        return {"state": state, "param_groups": self._renumbered(own["param_groups"])}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load this rank's part of the state of an undivided optimizer."""
        number = {place: number for number, place in enumerate(self._places)}
        state = {number[place]: value for place, value in state_dict["state"].items() if place in number}
        groups = [
            {**group, "params": [number[place] for place in group["params"] if place in number]}
            for group in state_dict["param_groups"]
        ]
        self._own.load_state_dict({"state": state, "param_groups": groups})
        self.param_groups = self._own.param_groups

    def _renumbered(self, groups: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        ends = [sum(self._group_sizes[: index + 1]) for index in range(len(self._group_sizes))]
        return [
            {**group, "params": list(range(end - size, end))}
            for group, size, end in zip(groups, self._group_sizes, ends, strict=True)
        ]


def owners(sizes: Sequence[int], world_size: int) -> list[int]:
    """Assign each parameter to a rank: the largest first, each to the rank that has the least so far."""
    load = [0] * world_size
    owner = [0] * len(sizes)
    for place in sorted(range(len(sizes)), key=lambda place: -sizes[place]):
        owner[place] = load.index(min(load))
        load[owner[place]] += sizes[place]
    return owner


def gather(shares: Mapping[str, Any], gang: Gang) -> dict[str, Any] | None:
    """Join every rank's part, which is in host memory, to the undivided state on rank 0; None on the other ranks.

    It uses its own process group, so that it may run while the training communicates.
    """
    group = gang.background
    outlines: list[Any] = [None] * gang.world_size
    dist.gather_object(_outline(shares["state"]), outlines if gang.rank == 0 else None, dst=0, group=group)
    if gang.rank != 0:
        for tensor in _tensors(shares["state"]):
            dist.send(tensor, dst=0, group=group)
        return None
    state = dict(shares["state"])
    for rank, outline in enumerate(outlines[1:], start=1):
        theirs = {place: {name: _empty(value) for name, value in values.items()} for place, values in outline.items()}
        for tensor in _tensors(theirs):
            dist.recv(tensor, src=rank, group=group)
        state |= theirs
    return {"state": dict(sorted(state.items())), "param_groups": shares["param_groups"]}


def _tensors(state: Mapping[int, Mapping[str, Any]]) -> list[torch.Tensor]:
    return [value for values in state.values() for value in values.values() if isinstance(value, torch.Tensor)]


def _outline(state: Mapping[int, Mapping[str, Any]]) -> dict[int, dict[str, Any]]:
    """The state with a shape and a dtype instead of each tensor."""
    return {
        place: {name: (v.shape, v.dtype) if isinstance(v, torch.Tensor) else v for name, v in values.items()}
        for place, values in state.items()
    }


def _empty(outline: Any) -> Any:
    return torch.empty(outline[0], dtype=outline[1]) if isinstance(outline, tuple) else outline
