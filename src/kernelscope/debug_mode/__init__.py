"""DebugMode: a listing of all that ran, with names, outputs and hashes; a thin face on a recording.

from kernelscope.debug_mode import DebugMode

with DebugMode() as debug_mode, DebugMode.log_tensor_hashes():
    compiled(x)
print(debug_mode.debug_string())
"""

from kernelscope.model.call import KernelCall as KernelCall
from kernelscope.model.kinds import OperatorCall as OperatorCall

from .mode import DebugMode as DebugMode
from .mode import get_active_debug_mode as get_active_debug_mode
from .stock_names import TensorIdTracker as TensorIdTracker
from .stock_names import _AnnotateCall as _AnnotateCall
from .stock_names import _DebugCall as _DebugCall
from .stock_names import _get_call_name as _get_call_name
from .stock_names import _OpCall as _OpCall
from .stock_names import _OutputPlacementCall as _OutputPlacementCall
from .stock_names import _RedistributeCall as _RedistributeCall
from .stock_names import _stringify_shape as _stringify_shape
from .stock_names import _TritonKernelCall as _TritonKernelCall
from .stock_names import default_hash_fn as default_hash_fn
from .stock_names import hash_tensor_fn as hash_tensor_fn
from .stock_names import norm_hash_fn as norm_hash_fn

__all__ = ["DebugMode", "KernelCall", "OperatorCall", "get_active_debug_mode"]
