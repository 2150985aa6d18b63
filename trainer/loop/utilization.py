"""Model FLOPs utilization (Chowdhery et al. 2022, appendix B): achieved operations as a share of the devices' peak."""

from __future__ import annotations


def utilization_percent(
    samples_per_second: float, operations: int | None, *, world_size: int, peak_tflops: float | None
) -> float | None:
    """Share of the gang's peak that the model's own operations take, in percent.

    Args:
        samples_per_second: Over all ranks.
        operations: Operations that one sample takes; None if nobody has counted them.
        world_size: Processes, each with one device.
        peak_tflops: Of one device; None if nobody knows.
    """
    if peak_tflops is None or operations is None:
        return None
    return 100 * samples_per_second * operations / (world_size * peak_tflops * 1e12)
