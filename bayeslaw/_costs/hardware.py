"""Read clusters: the number of devices, and the peak FLOP/s of each."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from bayeslaw._base.errors import PlanError
from bayeslaw._base.limits import POSITIVE, checked

# Dense bfloat16 FLOP/s of one device (float16 of V100), without structured sparsity, which
# data sheets often count twice.
PEAK_FLOPS = {
    "V100": 125e12,  # NVIDIA V100 data sheet (2020), SXM2
    "A100": 312e12,  # NVIDIA A100 data sheet (2021)
    "H100": 989e12,  # NVIDIA H100 data sheet (2024), SXM
    "H100-PCIe": 756e12,  # the same, PCIe
    "H200": 989e12,  # NVIDIA H200 data sheet (2024), SXM
    "B200": 2250e12,  # NVIDIA HGX B200 data sheet (2025)
    "MI250X": 383e12,  # AMD Instinct MI250X data sheet (2021)
    "MI300X": 1307e12,  # AMD Instinct MI300X data sheet (2023)
    "TPUv4": 275e12,  # Google Cloud TPU documentation, by chip
    "TPUv5e": 197e12,
    "TPUv5p": 459e12,
    "TPUv6e": 918e12,
}
WRITTEN = re.compile(r"\s*(?:(?P<count>\d+)\s*[x×*]\s*)?(?P<device>[^\s].*?)\s*", re.I)
PEAK_WRITTEN = re.compile(
    r"(?P<peak>[\d.]+(?:e\+?\d+)?)\s*(?P<tera>T?)FLOP(?:/s|s)?", re.I
)


@dataclass(frozen=True)
class Hardware:
    """A cluster of ``count`` devices, each of ``peak_flops`` FLOP/s at most.

    Examples
    --------
    >>> Hardware.parse("64xH100").peak_flops
    989000000000000.0
    """

    count: int
    device: str
    peak_flops: float

    @classmethod
    def parse(cls, text: Any) -> Hardware:
        """Read ``64xH100``, ``A100`` (one of them) or ``8x150TFLOP/s``.

        Raises
        ------
        PlanError
            The device is not in `PEAK_FLOPS`, and its peak is not given.
        """
        if isinstance(text, Hardware):
            return text
        parts = WRITTEN.fullmatch(str(text))
        if parts is None:
            raise PlanError(f"hardware {text!r}: write 64xH100, or 64x989TFLOP/s")
        count = int(checked("hardware", parts["count"] or 1, POSITIVE))
        device = parts["device"]
        peak = PEAK_WRITTEN.fullmatch(device)
        if peak is not None:
            size = 1e12 if peak["tera"] else 1.0
            return cls(
                count, device, size * checked("hardware", peak["peak"], POSITIVE)
            )
        by_name = {name.lower().replace("-", ""): name for name in PEAK_FLOPS}
        name = by_name.get(re.sub(r"[-_ ]", "", device.lower()))
        if name is None:
            raise PlanError(
                f"hardware {text!r}: the peak of {device!r} is not listed; write it "
                f"(64x989TFLOP/s), or one of {', '.join(PEAK_FLOPS)}"
            )
        return cls(count, name, PEAK_FLOPS[name])

    def __str__(self) -> str:
        return f"{self.count}x{self.device}"
