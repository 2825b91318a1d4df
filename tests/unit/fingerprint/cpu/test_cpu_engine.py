"""The compiled CPU engine against the reference, and the ways in which building it can go wrong."""

from __future__ import annotations

import os
import shlex
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.warm_python import WarmPython

from kernelscope import config
from kernelscope.fingerprint import definition
from kernelscope.fingerprint import torch_bits as hashes
from kernelscope.fingerprint.cpu import bits as cpu_bits
from kernelscope.fingerprint.cpu import library as cpu_library
from kernelscope.fingerprint.cpu.bits import BitsLibrary
from kernelscope.fingerprint.cpu.library import BYTES_PER_THREAD, MAX_DIMS
from kernelscope.native.compiler import compiler
from kernelscope.native.library_cache import check_private, is_intact
from kernelscope.native.load import OnDemand, load

DTYPES = list(hashes.DTYPE_NAMES)
PORTABLE = "-DKERNELSCOPE_PORTABLE"
# From the .cpp, with NEON and without: words of a round, of a tile's column, and of the buffer.
ROUND, TILE, BUFFER = (19, 32), (76, 128), (608, 1024)

Accumulate = Callable[[torch.Tensor], int | None]


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache that the tests share with each other and nobody else."""
    made = tmp_path_factory.mktemp("engine")
    made.chmod(0o700)
    return made


@pytest.fixture(scope="session", params=["native", "portable"])
def engine(request: pytest.FixtureRequest, folder: Path) -> BitsLibrary:
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "portable":
            patch.setenv("CXX", shlex.join([*compiler(), PORTABLE]))
        return load(BitsLibrary, folder)


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """The library not loaded yet, with the tests' cache."""
    monkeypatch.setattr(cpu_bits, "LIBRARY", OnDemand(BitsLibrary))
    monkeypatch.setattr(config, "cache_folder", lambda: folder)


@pytest.fixture(autouse=True)
def _threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def few_bytes_per_thread(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    for module in (cpu_bits, cpu_library):
        monkeypatch.setattr(module, "BYTES_PER_THREAD", count)


def logical_bytes(tensor: torch.Tensor) -> bytes:
    """By way of torch's own copy of the elements as integers, which the engine does not use."""
    carrier = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    if tensor.itemsize == 16:
        tensor = torch.view_as_real(tensor)
    plain = tensor.view(carrier[tensor.itemsize]).contiguous().reshape(-1)
    return plain.numpy().tobytes()


def bits(accumulate: Accumulate, tensor: torch.Tensor) -> int:
    total = accumulate(tensor)
    assert total is not None
    name = hashes.DTYPE_NAMES[tensor.dtype]
    return definition.mix(total ^ definition.salt(name, tensor.nbytes))


def check(engine: BitsLibrary, tensor: torch.Tensor) -> None:
    wanted = definition.reference_bits(logical_bytes(tensor), hashes.DTYPE_NAMES[tensor.dtype])
    assert bits(engine.accumulate, tensor) == wanted, (tensor.dtype, tensor.shape, tensor.stride())


def random_tensor(dtype: torch.dtype, numel: int, offset: int = 0) -> torch.Tensor:
    """Random bytes, NaNs and all, starting `offset` bytes after an aligned address."""
    size = numel * dtype.itemsize
    generator = torch.Generator().manual_seed(numel + offset)
    # A view of another dtype wants a storage offset in whole elements, a buffer may begin anywhere.
    raw = torch.randint(0, 256, (size + offset + 1,), dtype=torch.uint8, generator=generator).numpy()
    return torch.frombuffer(raw, dtype=torch.uint8, count=size + 1, offset=offset)[:size].view(dtype)


# --- the numbers ---


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_dtype_and_layout(engine: BitsLibrary, dtype: torch.dtype) -> None:
    base = random_tensor(dtype, 1200)
    layouts = {
        "flat": base,
        "empty": base[:0],
        "empty-strided": base.view(30, 40).t()[:, :0],
        "scalar": base[3],
        "misaligned-odd": base[3:706],
        "stepped": base[::3],
        "transposed": base.view(20, 60).t(),
        "transposed-odd": base[:1155].view(21, 55).t(),
        "permuted": base.view(20, 5, 12).permute(2, 0, 1),
        "channels-last": base.view(2, 10, 10, 6).permute(0, 3, 1, 2),
        "sliced": base.view(12, 100)[1:11, 3:98],
        "heads": base.view(2, 6, 4, 25).transpose(1, 2),
        "expanded": base[:5].view(5, 1).expand(5, 90),
        "expanded-outside": base[:90].view(1, 90).expand(7, 90),
        "expanded-scalar": base[2].expand(3, 11),
        "ones": base[5:10].view(1, 5, 1).transpose(0, 2),
    }
    for tensor in layouts.values():
        check(engine, tensor)


@pytest.mark.parametrize("unit", [*ROUND, 2 * ROUND[0], *TILE, *BUFFER])
def test_sizes_around_each_boundary(engine: BitsLibrary, unit: int) -> None:
    base = random_tensor(torch.uint8, 2 * (unit + 2) * 8, offset=5)
    for nbytes in {unit * 8 + d for d in (-9, -8, -7, -1, 0, 1, 4, 7, 8, 9)}:
        check(engine, base[:nbytes])
        check(engine, base[: 2 * nbytes : 2])


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("dtype", [torch.uint8, torch.bfloat16, torch.float32, torch.complex128], ids=str)
def test_threads(
    engine: BitsLibrary, dtype: torch.dtype, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    few_bytes_per_thread(monkeypatch, 512)
    torch.set_num_threads(threads)
    for numel in (512, 1023, 1024, 1025, 3001):
        base = random_tensor(dtype, numel)
        rows = numel // 9
        matrix = base[: rows * 9].view(rows, 9)
        for tensor in (base, base[1:], base[::2], matrix.t(), matrix[:, 1:], matrix.t()[:, 1:]):
            check(engine, tensor)


def test_the_real_threshold_for_threads(engine: BitsLibrary) -> None:
    torch.set_num_threads(3)
    base = random_tensor(torch.uint8, 3 * BYTES_PER_THREAD + 9)
    for parts in (2, 3):
        for extra in (-1, 0, 9):
            check(engine, base[: parts * BYTES_PER_THREAD + extra])


@st.composite
def layouts(draw: st.DrawFn) -> torch.Tensor:
    """Permuted, sliced, stepped and expanded views at any byte offset."""
    dtype = draw(st.sampled_from(DTYPES))
    sizes = draw(st.lists(st.sampled_from([1, 2, 3, 4, 7, 8, 16, 33, 64, 91]), min_size=0, max_size=4))
    while torch.Size(sizes).numel() > 4000:
        sizes.pop()
    tensor = random_tensor(dtype, torch.Size(sizes).numel(), draw(st.integers(0, 15))).view(sizes)
    for dim, size in enumerate(sizes):
        start = draw(st.integers(0, min(size, 3)))
        step = draw(st.sampled_from([1, 1, 1, 2, 3]))
        tensor = tensor[(slice(None),) * dim + (slice(start, None, step),)]
    tensor = tensor.permute(draw(st.permutations(range(len(sizes)))))
    if draw(st.booleans()):
        at = draw(st.integers(0, tensor.dim()))
        shape = list(tensor.unsqueeze(at).shape)
        shape[at] = draw(st.sampled_from([1, 2, 5]))
        tensor = tensor.unsqueeze(at).expand(shape)
    return tensor


@settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(tensor=layouts(), threads=st.sampled_from([1, 2, 3]))
def test_any_layout(
    engine: BitsLibrary, monkeypatch: pytest.MonkeyPatch, tensor: torch.Tensor, threads: int
) -> None:
    few_bytes_per_thread(monkeypatch, 128)
    torch.set_num_threads(threads)
    check(engine, tensor)


@settings(max_examples=60, deadline=None)
@given(
    dtype=st.sampled_from([torch.uint8, torch.int16, torch.float32, torch.float64, torch.complex128]),
    outer=st.integers(1, 3),
    across=st.integers(2, 70),
    along=st.integers(8, 90)
    | st.sampled_from([n * tile + d for tile in TILE for n in (1, 2) for d in (-1, 0, 1, 2)]),
)
def test_tiles(engine: BitsLibrary, dtype: torch.dtype, outer: int, across: int, along: int) -> None:
    base = random_tensor(dtype, outer * along * across)
    check(engine, base.view(outer, along, across).transpose(1, 2))
    check(engine, base.view(along, outer, across).permute(2, 1, 0))
    check(engine, base.view(along, outer, across).permute(1, 2, 0))


def test_many_dimensions(engine: BitsLibrary) -> None:
    wide = random_tensor(torch.int16, 1 << 10).view([2] * 10).permute(*range(9, -1, -1))
    check(engine, wide)
    check(engine, wide[(None,) * (MAX_DIMS - 10)])
    assert engine.accumulate(wide[(None,) * (MAX_DIMS - 9)]) is None


def test_lazy_conjugates_and_negations_are_left_to_torch(engine: BitsLibrary) -> None:
    tensor = torch.randn(6, dtype=torch.complex64)
    assert engine.accumulate(tensor.conj()) is None
    assert engine.accumulate(tensor.conj().imag) is None
    check(engine, tensor.conj().resolve_conj())


def test_a_copy_on_write_tensor_stays_one(engine: BitsLibrary) -> None:
    base = torch.randn(50)
    lazy = torch._lazy_clone(base)
    assert engine.accumulate(lazy) == engine.accumulate(base)
    assert torch._C._is_cow_tensor(lazy)


def test_several_threads_at_once(engine: BitsLibrary) -> None:
    tensors = [random_tensor(torch.float32, n) for n in (40, 5000, 100_000)]
    tensors += [tensors[-1].view(100, 1000).t()]
    wanted = [engine.accumulate(tensor) for tensor in tensors]
    wrong: list[int] = []

    def work() -> None:
        for _ in range(20):
            wrong.extend(i for i, t in enumerate(tensors) if engine.accumulate(t) != wanted[i])

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # it is what this is about
def test_a_forked_child_does_not_wait_for_its_parents_threads(engine: BitsLibrary) -> None:
    torch.set_num_threads(2)
    tensor = random_tensor(torch.uint8, 4 * BYTES_PER_THREAD)
    wanted = engine.accumulate(tensor)
    child = os.fork()
    if child == 0:
        os._exit(engine.accumulate(tensor) != wanted)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


# --- building it ---


@pytest.mark.usefixtures("fresh")
def test_available() -> None:
    tensor = torch.arange(5)
    total = cpu_bits.accumulate(tensor)
    assert (cpu_bits.LIBRARY.unavailable(), cpu_bits.LIBRARY.uncached()) == ("", "")
    assert total is not None
    assert definition.mix(total ^ definition.salt("int64", 40)) == definition.reference_bits(
        logical_bytes(tensor), "int64"
    )


@pytest.mark.usefixtures("fresh")
def test_without_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "compilers", lambda: ("no-such-c++", "nor-this"))
    assert cpu_bits.accumulate(torch.arange(5)) is None
    assert "no C++ compiler (looked for no-such-c++, nor-this)" in cpu_bits.LIBRARY.unavailable()


@pytest.mark.usefixtures("fresh")
def test_a_compiler_that_fails_is_quoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "c++"
    script.write_text("#!/bin/sh\necho 'out of cheese' >&2\nexit 1\n")
    script.chmod(0o700)
    monkeypatch.setattr(config, "compilers", lambda: (f"{script} --some-option",))
    assert "out of cheese" in cpu_bits.LIBRARY.unavailable()
    assert cpu_bits.accumulate(torch.arange(5)) is None


def test_refused_flags_are_left_out(tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "c++"
    script.write_text('#!/bin/sh\ncase "$*" in *=native*|*openmp*) exit 1;; esac\nexec c++ "$@"\n')
    script.chmod(0o700)
    torch.set_num_threads(2)
    monkeypatch.setenv("CXX", str(script))
    check(load(BitsLibrary, folder), random_tensor(torch.uint8, 2 * BYTES_PER_THREAD + 3))


def test_a_broken_file_is_made_again(folder: Path, tmp_path: Path) -> None:
    load(BitsLibrary, folder)
    # Whichever of them is looked for has the right name, and not all of its bytes.
    for whole in folder.iterdir():
        (tmp_path / whole.name).write_bytes(whole.read_bytes()[:5000])
    check(load(BitsLibrary, tmp_path), torch.arange(100))
    assert [is_intact(path) for path in tmp_path.iterdir()].count(True) == 1


@pytest.mark.usefixtures("fresh")
def test_a_folder_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr(config, "cache_folder", lambda: tmp_path / "file" / "kernelscope")
    assert cpu_bits.LIBRARY.unavailable() == ""
    assert "cannot be used" in cpu_bits.LIBRARY.uncached()
    assert cpu_bits.accumulate(torch.arange(5)) is not None


def test_folders_that_others_can_write_are_refused(tmp_path: Path) -> None:
    check_private(tmp_path / "new" / "folder")
    (tmp_path / "new" / "folder").chmod(0o770)
    with pytest.raises(PermissionError, match="chmod go-w"):
        check_private(tmp_path / "new" / "folder")
    (tmp_path / "new" / "folder").chmod(0o700)
    (tmp_path / "new").chmod(0o777)
    with pytest.raises(PermissionError, match="other users can replace"):
        check_private(tmp_path / "new" / "folder")


def test_two_processes_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, warm_python: WarmPython
) -> None:
    program = (
        "from kernelscope.fingerprint.cpu import bits; import torch\n"
        "assert (bits.LIBRARY.unavailable(), bits.LIBRARY.uncached()) == ('', '')\n"
        "print(bits.accumulate(torch.arange(1000)))"
    )
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    done = warm_python.run_together(*[("-c", program)] * 2)
    assert [each.returncode for each in done] == [0, 0], done
    assert len({each.stdout for each in done}) == 1
    assert len(list((tmp_path / "kernelscope").iterdir())) == 1


def test_cache_folder() -> None:
    assert config.cache_folder({"XDG_CACHE_HOME": "/x"}) == Path("/x/kernelscope")
    assert config.cache_folder({"XDG_CACHE_HOME": "relative"}) == Path.home() / ".cache" / "kernelscope"
    assert config.compilers({"CXX": "ccache g++"})[0] == "ccache g++"
