"""Saved tensors: one safetensors file for each content, named by its fingerprint, within a budget.

Only the saver needs torch; reading a file does not.
"""

from __future__ import annotations

import itertools
import os
import re
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernelscope.errors import RunError
from kernelscope.events import Call, Finding
from kernelscope.private_files import FILE, FOLDER
from kernelscope.processes.resources import usable_memory
from kernelscope.store.safety.regular_files import is_folder, open_regular

from .folder import TENSORS

if TYPE_CHECKING:
    from .writer_thread import Writer

SUFFIX = ".safetensors"
NAME = "tensor"  # of the one tensor in a file
_FILE = re.compile(r"[0-9a-f]{1,32}\.safetensors")
_MOST_SLOTS = 1 << 18  # remembered; a version that was forgotten is copied again, and found to be there
MOST_BYTES_WAITING = 256 << 20  # of copies, before the program waits for them to be written


@dataclass(frozen=True, slots=True)
class SavedTensor:
    """What a file holds: little-endian bytes in row-major order."""

    dtype: str  # as safetensors names it: F32, BF16
    shape: tuple[int, ...]
    data: bytes

    def numpy(self) -> Any:
        """As a numpy array, bfloat16 as float32; other dtypes that numpy lacks come as their bytes."""
        import numpy

        names = {
            "F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "i1",
            "U64": "<u8", "U32": "<u4", "U16": "<u2", "U8": "u1", "BOOL": "?", "C64": "<c8",
        }  # fmt: skip
        if self.dtype == "BF16":  # the upper half of a float32
            wide = numpy.frombuffer(self.data, "<u2").astype("<u4") << 16
            return self._shaped(wide.view("<f4"))
        if self.dtype not in names:
            return numpy.frombuffer(self.data, "u1")
        return self._shaped(numpy.frombuffer(self.data, names[self.dtype]))

    def _shaped(self, flat: Any) -> Any:
        try:
            return flat.reshape(self.shape)
        except ValueError as error:  # more dimensions than numpy has
            raise RunError(f"a saved tensor is damaged: {error}") from None


def is_tensor_file(name: str) -> bool:
    """Whether we write a file of this name; no path is one."""
    return bool(_FILE.fullmatch(name))


def read_tensor(path: Path) -> SavedTensor:
    """The tensor in a file of `tensors/`."""
    from safetensors import SafetensorError, deserialize

    try:
        if not is_folder(path.parent):
            raise FileNotFoundError
        with open_regular(path) as file:
            size = os.fstat(file.fileno()).st_size
            if size > usable_memory() // 2:
                raise RunError(
                    f"{path} has {size:,} bytes, which is too large for the memory of this machine"
                )
            data = file.read()
        found: Any = deserialize(data)  # type: ignore[no-untyped-call]
        [(_, held)] = found
        return SavedTensor(str(held["dtype"]), tuple(int(n) for n in held["shape"]), bytes(held["data"]))
    except FileNotFoundError:
        raise RunError(f"{path} is missing: it was deleted to stay within --max-tensors") from None
    except (SafetensorError, ValueError, KeyError, TypeError, OSError, OverflowError, MemoryError) as error:
        raise RunError(f"{path} is damaged: {error}") from None


class _HostCopy:
    """A tensor as it was; on a GPU the copy may still be on its way."""

    def __init__(self, copy: Any, arrives: Any = None) -> None:
        self._copy = copy
        self._arrives = arrives  # an event
        self.nbytes = int(copy.nbytes)

    def tensor(self) -> Any:
        """The copy; may wait for it."""
        if self._arrives is not None:
            self._arrives.synchronize()
        return self._copy


class _Copier:
    """Copies tensors. On a GPU: there first, and to the host on a stream of its own."""

    def __init__(self) -> None:
        self._streams: dict[Any, Any] = {}  # by device

    def copy(self, tensor: Any) -> _HostCopy:
        import torch

        tensor = tensor.detach()
        if tensor.device.type == "cuda" and not tensor.is_conj() and not tensor.is_neg():
            try:
                return self._from_gpu(tensor)
            except torch.cuda.OutOfMemoryError:
                pass  # there is no room for a second one: then it comes to the host at once
        return _HostCopy(tensor.cpu().contiguous().clone())

    def _from_gpu(self, tensor: Any) -> _HostCopy:
        """The program's stream makes a copy, and goes on; the other stream brings it to the host."""
        import torch

        device = tensor.device
        if device not in self._streams:
            self._streams[device] = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        stream = self._streams[device]
        there = torch.empty_like(tensor, memory_format=torch.contiguous_format).copy_(tensor)
        stream.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(stream):
            here = torch.empty(there.shape, dtype=there.dtype, device="cpu", pin_memory=True)
            here.copy_(there, non_blocking=True)
            there.record_stream(stream)
            return _HostCopy(here, stream.record_event())


@dataclass(frozen=True, slots=True)
class _Waiting:
    """One tensor of a call, on its way to a file."""

    call: int
    position: int
    moment: str
    slot: int
    copy: _HostCopy | None  # None: another call of the same version brings it


class TensorSaver:
    """Keeps the tensors that each launch finds and leaves: copied at once, and written by the writer.

    The program waits only when copies of many bytes are on their way, or when one call alone is wanted: its
    tensors are then on disk before the launch, which may crash.
    """

    def __init__(
        self,
        writer: Writer,
        budget: int,
        quiet: Callable[[], AbstractContextManager[Any]],
        only: int | None = None,
    ) -> None:
        self._writer = writer
        self._budget = budget
        self._only = only  # index of the one call that is wanted
        self._quiet = quiet
        self._folder = writer.folder / TENSORS
        self._folder.mkdir(FOLDER, exist_ok=True)
        self._sizes: dict[str, int] = {}  # by file; first what was not used for longest
        self._used_by: dict[str, int] = {}  # by file: the newest call that it is a tensor of
        self._total = 0
        self._file_of_slot: dict[int, str] = {}  # one version of a tensor is copied once; "": on its way
        self._said: set[str] = set()
        self._waiting: deque[_Waiting] = deque()
        self._bytes_waiting = 0
        # What is used next must not be dropped before.
        self._most_waiting = min(MOST_BYTES_WAITING, budget // 8)
        self._copier = _Copier()
        self._chosen = itertools.count(-1, -1)  # in place of slots, which are not negative
        writer.save_waiting = self._write_waiting

    def keep(self, call: Call, tensors: dict[int, Any], moment: str) -> None:
        """These tensors, by argument, of a call that was chosen; whether or not others are saved."""
        if not self._writer.is_open:
            return
        with self._quiet():
            for position, tensor in tensors.items():
                copy, slot = self._copier.copy(tensor), next(self._chosen)
                self._bytes_waiting += copy.nbytes
                self._waiting.append(_Waiting(call.index, position, moment, slot, copy))
        self._writer.wait_until(lambda: not self._waiting)

    def before(self, call: Call, launch: Any) -> None:
        tensors = {i: launch.flat[i] for i in launch.point.tensors if i not in launch.uninitialised}
        self._save(call, tensors, call.pre or {}, "before")

    def after(self, call: Call, launch: Any) -> None:
        tensors = {i: launch.flat[i] for i in launch.point.tensors if i in launch.point.written}
        first = len(launch.point.site.args)
        tensors |= {first + i: tensor for i, tensor in enumerate(launch.returned)}
        self._save(call, tensors, call.post or {}, "after")

    def _save(self, call: Call, tensors: dict[int, Any], slots: dict[int, int], moment: str) -> None:
        if not self._writer.is_open or self._only not in (None, call.index):
            return
        if len(self._file_of_slot) > _MOST_SLOTS:
            self._file_of_slot.clear()
        with self._quiet():
            for position, tensor in tensors.items():
                slot = slots.get(position)
                if slot is None:
                    continue  # it has no values that can be read
                file = self._file_of_slot.get(slot)
                copy = None
                if file is None or (file and file not in self._sizes):
                    copy = self._copier.copy(tensor)
                    self._bytes_waiting += copy.nbytes
                    self._file_of_slot[slot] = ""
                self._waiting.append(_Waiting(call.index, position, moment, slot, copy))
        too_many = self._bytes_waiting > self._most_waiting or len(self._waiting) > _MOST_SLOTS
        if too_many or self._only is not None:
            self._writer.wait_until(lambda: not self._waiting)

    def _write_waiting(self) -> None:
        """On the writer's thread, or on one that closes it: all that have been copied so far."""
        with self._quiet():
            for _ in range(len(self._waiting)):
                one = self._waiting[0]
                if one.call >= self._writer.first_kept:
                    self._write_one(one)
                elif one.copy is not None:
                    self._file_of_slot.pop(one.slot, None)
                if one.copy is not None:
                    self._bytes_waiting -= one.copy.nbytes
                self._waiting.popleft()  # last: an empty queue says that all is written
        self._drop_with_their_steps()

    def _write_one(self, one: _Waiting) -> None:
        file = self._file_of_slot.get(one.slot, "")
        if one.copy is not None:
            file = self._write(one.copy) or ""
            if file:
                self._file_of_slot[one.slot] = file
            else:
                self._file_of_slot.pop(one.slot, None)
        if file in self._sizes:
            self._use(file, one.call)
            self._writer.tensor(one.call, one.position, one.moment, file)

    def _use(self, file: str, call: int) -> None:
        self._sizes[file] = self._sizes.pop(file)  # now the last in order
        self._used_by[file] = call

    def _drop_with_their_steps(self) -> None:
        """With --keep-last: what only calls refer to that do not stay."""
        while self._sizes:
            file = next(iter(self._sizes))
            if self._used_by[file] >= self._writer.first_kept:
                return
            self._drop(file)

    def _drop(self, file: str) -> None:
        self._total -= self._sizes.pop(file)
        del self._used_by[file]
        with suppress(OSError):
            (self._folder / file).unlink()

    def _write(self, copied: _HostCopy) -> str | None:
        """The file that holds these values, written unless it is there already; None when it has no room."""
        from safetensors.torch import save_file

        from kernelscope.fingerprint import fingerprint

        try:
            copy = copied.tensor()
            file = f"{fingerprint(copy).bits:016x}{SUFFIX}"
        except Exception as error:  # a fault has taken the device with it
            self._say("tensor-not-saved", f"a tensor could not be saved: {error}".partition("\n")[0])
            return None
        if file in self._sizes:
            return file
        size = copy.nbytes + 256
        if not self._make_room(size):
            return None
        temporary = self._folder / f".{file}"
        try:
            try:
                save_file({NAME: copy}, temporary)
            except (ValueError, KeyError, TypeError, RuntimeError):  # a dtype that the format has no name for
                import torch

                save_file({NAME: copy.flatten().view(torch.uint8)}, temporary, {"dtype": str(copy.dtype)})
            os.chmod(temporary, FILE)
            os.replace(temporary, self._folder / file)
        except Exception as error:
            with suppress(OSError):
                temporary.unlink()
            self._say("tensor-not-saved", f"a tensor could not be saved: {error}")
            return None
        self._sizes[file], self._used_by[file] = size, 1 << 62  # until the call that it is for is noted
        self._total += size
        return file

    def _make_room(self, size: int) -> bool:
        if size > self._budget:
            self._say("tensor-not-saved", f"a tensor of {size:,} bytes is larger than --max-tensors allows")
            return False
        for file in self._oldest_until(size):
            self._drop(file)
            self._say(
                "tensors-dropped",
                f"saved tensors reached --max-tensors ({self._budget:,} bytes): the least recently used are "
                "deleted",
            )
        return True

    def _oldest_until(self, size: int) -> Iterator[str]:
        for file in list(self._sizes):
            if self._total + size <= self._budget:
                return
            yield file

    def _say(self, kind: str, message: str) -> None:
        if kind not in self._said:
            self._said.add(kind)
            self._writer.finding(Finding(kind, message))
