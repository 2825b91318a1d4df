"""Makes torchvision work where its compiled operators cannot be loaded; import it first.

PyPI's torchvision is built for one torch. With another build of the same torch (one without CUDA) its
operators are missing, and its import fails where it describes two of them. None of the models here uses them.
"""

from __future__ import annotations

import torch

try:
    import torchvision
except ModuleNotFoundError:
    pass  # then its models are left out
except RuntimeError as failure:
    if "torchvision::nms does not exist" not in str(failure):
        raise
    _library = torch.library.Library("torchvision", "DEF")
    for _name in ("nms", "qnms"):
        _library.define(f"{_name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    import torchvision  # noqa: F401
