"""The names that programs written for torch's own DebugMode import: what its entries are here.

Its classes serve `isinstance`; entries have the attributes that theirs have.
"""

from __future__ import annotations

from torch.utils import _debug_mode as stock

from kernelscope.model.call import KernelCall
from kernelscope.model.kinds import CodeKernelCall, OperatorCall

from .entries import Annotation, Entry, OperatorEntry, OutputPlacement, Redistribution
from .hashes import call_name

norm_hash_fn, hash_tensor_fn = stock.norm_hash_fn, stock.hash_tensor_fn  # type: ignore[attr-defined]
TensorIdTracker, _stringify_shape = stock.TensorIdTracker, stock._stringify_shape  # type: ignore[attr-defined]
default_hash_fn = norm_hash_fn  # its name in older releases
_TritonKernelCall = CodeKernelCall  # C++ kernels too: what a filter is to find, on a machine without a GPU
_RedistributeCall = Redistribution
_AnnotateCall = Annotation
_OutputPlacementCall = OutputPlacement
_OpCall = OperatorCall | OperatorEntry  # an operator or a function, whether it launches something or not
_DebugCall = KernelCall | Entry
_get_call_name = call_name
