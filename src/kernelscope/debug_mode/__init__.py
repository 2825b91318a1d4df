"""DebugMode: a listing of all that ran, with names, outputs and hashes; a thin face on a recording.

from kernelscope.debug_mode import DebugMode

with DebugMode() as debug_mode, DebugMode.log_tensor_hashes():
    compiled(x)
print(debug_mode.debug_string())
"""

from kernelscope.model.call import KernelCall as KernelCall
from kernelscope.model.kinds import OperatorCall as OperatorCall
from kernelscope.model.kinds import TritonKernelCall as _TritonKernelCall

from .mode import DebugMode as DebugMode

__all__ = ["DebugMode", "KernelCall", "OperatorCall", "_TritonKernelCall"]
