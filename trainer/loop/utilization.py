"""Model FLOPs utilization (Chowdhery et al. 2022, appendix B): achieved operations as a share of the devices' peak."""

from __future__ import annotations


def utilization_percent(
    samples_per_second: float, operations: int | None, *, world_size: int, peak_tflops: float | None
) -> float | None:
    """Share of the gang's peak that the model's own operations take, in percent.

    Args:
        samples_per_second: Rate over all ranks.
        operations: Operations that one sample takes; None if they have not been counted.
        world_size: Processes, each with one device.
        peak_tflops: Peak of one device; None if it is unknown.
    """
    if peak_tflops is None or operations is None:
        return None
    return 100 * samples_per_second * operations / (world_size * peak_tflops * 1e12)
