"""The Triton kernels of level "stats". Imported only where there is a GPU.

Statistics depend on the order of the elements only in their last digits, so tensors are read as they lie in
memory, whatever their dimensions. A tensor is cut into shares, and where the cuts lie depends
on its size alone. A program sums up one share, in lanes that each go through their elements in order, and
leaves a record; the program that finishes last merges the records in order. So the same tensor gives the same
numbers, whatever ran first.

Full tiles are summed up as if every number were finite and near the first; where that was wrong, the share is
read again with checks.
"""

from __future__ import annotations

import triton
import triton.language as tl

from kernelscope.fingerprint.cuda.stats_batches import AT_ONCE, UNHASHED
from kernelscope.fingerprint.definition import POSITION

from .numbers import E4M3_BEYOND, bytes_of, count_of, is_fine, number_in
from .records import FAR, publish
from .running_sums import add_checked, add_finite, can_be_packed, middle, nothing_yet, pack, recorded, unpack
from .words import load, load_words, mix, offset, unfolded, wait_for_the_one_before

_POSITION = tl.constexpr(POSITION)
_INF = tl.constexpr(float("inf"))
_KINDS = tl.constexpr(43)  # dtype codes are smaller

_UNHASHED = tl.constexpr(UNHASHED)
_PLACES = ["sums", "rows", "scratch"]
_FLAT_NUMBERS = _PLACES + [f"{what}{i}" for i in range(AT_ONCE) for what in "pnekrf"] + ["later"]
_STRIDED_NUMBERS = [*_PLACES, "row", "record", "base", "nbytes"]
_STRIDED_NUMBERS += [*(f"{what}{i}" for i in range(6) for what in ("size", "stride")), "later"]


@triton.constexpr_function  # type: ignore[untyped-decorator]
def lanes_for(kind: int, block: int) -> int:
    """Of eight floating point numbers in each lane fewer programs would fit on the device."""
    return block // 2 if 17 <= kind <= 21 else block


@triton.jit  # type: ignore[untyped-decorator]
def _gathered(  # type: ignore[no-untyped-def]
    address, here, there, layout, KIND: tl.constexpr, WIDTH: tl.constexpr, DIMS: tl.constexpr,
    NUMBER: tl.constexpr, LAST: tl.constexpr,
):  # fmt: skip
    """Words out of pieces of WIDTH bytes. `there`: whether they are; of the LAST ones, how many bytes are."""
    LANE: tl.constexpr = 16 if KIND == 16 else 8
    word = tl.zeros(here.shape, tl.uint64)
    other = word
    for part in tl.static_range(LANE // WIDTH):
        at = offset(
            (here * (LANE // WIDTH) + part).to(NUMBER), layout[0], layout[1], layout[2], layout[3],
            layout[4], layout[5], layout[6], layout[7], layout[8], layout[9], layout[10], DIMS, NUMBER,
        )  # fmt: skip
        inside = there > part * WIDTH if LAST else there
        loaded = load(address + at, inside, WIDTH)
        if part * WIDTH < 8:
            word |= loaded << (8 * WIDTH * part)
        else:
            other |= loaded << (8 * WIDTH * part - 64)
    return word, other


@triton.jit  # type: ignore[untyped-decorator]
def _piece(  # type: ignore[no-untyped-def]
    address, here, inside, layout, KIND: tl.constexpr, MISALIGNED: tl.constexpr, WIDTH: tl.constexpr,
    DIMS: tl.constexpr, NUMBER: tl.constexpr,
):  # fmt: skip
    """Word number `here`, and the next, of a complex128. Of no DIMS, they lie side by side."""
    LANE: tl.constexpr = 16 if KIND == 16 else 8
    if DIMS == 0:
        word = load_words(address, here * (LANE // 8), inside, inside, MISALIGNED)
        other = word
        if KIND == 16:
            other = load_words(address, 2 * here + 1, inside, inside, MISALIGNED)
    else:
        word, other = _gathered(address, here, inside, layout, KIND, WIDTH, DIMS, NUMBER, False)
    return word, other


@triton.jit  # type: ignore[untyped-decorator]
def _last_piece(  # type: ignore[no-untyped-def]
    address, nbytes, here, layout, KIND: tl.constexpr, MISALIGNED: tl.constexpr, WIDTH: tl.constexpr,
    DIMS: tl.constexpr, NUMBER: tl.constexpr,
):  # fmt: skip
    """The same without bytes beyond the end; how many numbers and bytes are there."""
    LANE: tl.constexpr = 16 if KIND == 16 else 8
    left = tl.minimum(tl.maximum(nbytes - here * LANE, 0), LANE)
    if DIMS == 0 and KIND != 16:
        word = load_words(address, here, left > 0, address % 8 + left > 8, MISALIGNED)
        bits = (tl.minimum(left, 7) * 8).to(tl.uint64)
        word = tl.where(left == 8, word, word & ((bits * 0 + 1 << bits) - 1))
        other = word
    elif DIMS == 0:
        word, other = _piece(address, here, left > 0, layout, KIND, MISALIGNED, WIDTH, DIMS, NUMBER)
    else:
        word, other = _gathered(address, here, left, layout, KIND, WIDTH, DIMS, NUMBER, True)
    return word, other, (left // bytes_of(KIND)).to(tl.int32), left


@triton.jit  # type: ignore[untyped-decorator]
def _hashed(word, other, here, left, KIND: tl.constexpr):  # type: ignore[no-untyped-def]
    if KIND == 16:
        first = mix(word ^ ((2 * here + 1).to(tl.uint64) * _POSITION))
        mixed = first + mix(other ^ ((2 * here + 2).to(tl.uint64) * _POSITION))
    else:
        mixed = mix(word ^ ((here + 1).to(tl.uint64) * _POSITION))
    return tl.where(left > 0, mixed, 0)


@triton.jit  # type: ignore[untyped-decorator]
def _share(  # type: ignore[no-untyped-def]
    address, nbytes, local, programs, layout, KIND: tl.constexpr, MISALIGNED: tl.constexpr,
    WIDTH: tl.constexpr, DIMS: tl.constexpr, NUMBER: tl.constexpr, BLOCK: tl.constexpr, HASH: tl.constexpr,
    HOPPER: tl.constexpr,
):  # fmt: skip
    """The sum of the definition and the record of every programs-th tile, from number `local` on."""
    SIZE: tl.constexpr = bytes_of(KIND)
    LANE: tl.constexpr = 16 if KIND == 16 else 8
    COUNT: tl.constexpr = count_of(KIND)
    lanes = tl.arange(0, BLOCK)
    tiles = nbytes // (BLOCK * LANE)  # full ones
    rest = nbytes - tiles * (BLOCK * LANE)
    mine = tl.maximum(tiles - local + programs - 1, 0) // programs
    has_rest = (rest > 0) & (tiles % programs == local)
    elements = mine * (BLOCK * COUNT) + tl.where(has_rest, rest // SIZE, 0)

    here = local * BLOCK + lanes
    step = programs * BLOCK
    keys = (here * (LANE // 8) + 1).to(tl.uint64) * _POSITION
    key_step = unfolded((step * (LANE // 8)).to(tl.uint64) * _POSITION, programs)
    # The words of the next tile are on their way while those of this one are summed up.
    inside = here * 0 + local < tiles
    word, other = _piece(address, here, inside, layout, KIND, MISALIGNED, WIDTH, DIMS, NUMBER)
    around = tl.zeros([], tl.float64)
    if is_fine(KIND):  # around the first number of the share
        first, second, _, _ = _last_piece(
            address, nbytes, local * BLOCK + tl.zeros([1], tl.int64), layout, KIND, MISALIGNED, WIDTH, DIMS,
            NUMBER,
        )  # fmt: skip
        around = tl.sum(number_in(first, second, 0, KIND, True).to(tl.float64), 0)
    total, squares, sizes, low, high, zeros, nan, pos, neg = nothing_yet(tl.zeros([BLOCK], tl.int32), KIND)
    hashed = tl.zeros([BLOCK], tl.uint64)
    PACKED: tl.constexpr = HOPPER and can_be_packed(KIND)
    if PACKED:
        low, high = pack(low, high, KIND)
    for tile in range(local, tiles, programs):
        coming = tl.minimum(tile + programs, tiles - 1) * BLOCK + lanes  # after the last, something
        next_word, next_other = _piece(
            address, coming, lanes >= 0, layout, KIND, MISALIGNED, WIDTH, DIMS, NUMBER
        )
        if HASH:
            hashed += mix(word ^ keys)
            if KIND == 16:
                hashed += mix(other ^ (keys + _POSITION))
            keys += key_step
        total, squares, sizes, low, high, zeros = add_finite(
            word, other, around, total, squares, sizes, low, high, zeros, KIND, PACKED
        )
        word = next_word
        other = next_other
    if PACKED:
        low, high = unpack(low, high, KIND)
    if has_rest:
        at = tiles * BLOCK + lanes
        word, other, valid, left = _last_piece(
            address, nbytes, at, layout, KIND, MISALIGNED, WIDTH, DIMS, NUMBER
        )
        if HASH:
            hashed += _hashed(word, other, at, left, KIND)
        total, squares, sizes, low, high, zeros, nan, pos, neg = add_checked(
            word, other, valid, around, total, squares, sizes, low, high, zeros, nan, pos, neg, KIND
        )
    hash_sum, found = recorded(
        elements, around, total, squares, sizes, low, high, zeros, nan, pos, neg, hashed, KIND
    )
    if KIND > 3:
        trusted = (found[3] < _INF) & (tl.abs(around) < _INF)
        if KIND == 17:
            trusted = trusted & (found[5] < E4M3_BEYOND) & (found[4] > -E4M3_BEYOND)
        unseen = trusted == 0
        if is_fine(KIND):  # was the first number an outlier?
            apart = found[1] - around
            trusted = trusted & (found[0] * apart * apart <= found[2] * FAR)
        if not trusted:
            total, squares, sizes, low, high, zeros, nan, pos, neg = nothing_yet(
                tl.zeros([BLOCK], tl.int32), KIND
            )
            around = tl.where(unseen, 0.0, found[1])
            for tile in range(local, tiles + (rest > 0).to(tl.int64), programs):
                at = tile * BLOCK + lanes
                word, other, valid, left = _last_piece(
                    address, nbytes, at, layout, KIND, MISALIGNED, WIDTH, DIMS, NUMBER
                )
                around, unseen = middle(around, unseen, word, other, valid, KIND)
                total, squares, sizes, low, high, zeros, nan, pos, neg = add_checked(
                    word, other, valid, around, total, squares, sizes, low, high, zeros, nan, pos, neg, KIND
                )
            _again, found = recorded(
                elements, around, total, squares, sizes, low, high, zeros, nan, pos, neg, hashed, KIND
            )
    return hash_sum, found


@triton.jit(do_not_specialize=_FLAT_NUMBERS)  # type: ignore[untyped-decorator]
def flat(
    sums: tl.int64, rows: tl.int64, scratch: tl.int64,
    p0: tl.int64, n0: tl.int64, e0: tl.int64, k0: tl.int64, r0: tl.int64, f0: tl.int64,
    p1: tl.int64, n1: tl.int64, e1: tl.int64, k1: tl.int64, r1: tl.int64, f1: tl.int64,
    p2: tl.int64, n2: tl.int64, e2: tl.int64, k2: tl.int64, r2: tl.int64, f2: tl.int64,
    p3: tl.int64, n3: tl.int64, e3: tl.int64, k3: tl.int64, r3: tl.int64, f3: tl.int64,
    p4: tl.int64, n4: tl.int64, e4: tl.int64, k4: tl.int64, r4: tl.int64, f4: tl.int64,
    p5: tl.int64, n5: tl.int64, e5: tl.int64, k5: tl.int64, r5: tl.int64, f5: tl.int64,
    p6: tl.int64, n6: tl.int64, e6: tl.int64, k6: tl.int64, r6: tl.int64, f6: tl.int64,
    p7: tl.int64, n7: tl.int64, e7: tl.int64, k7: tl.int64, r7: tl.int64, f7: tl.int64,
    later: tl.int64,
    KINDS: tl.constexpr, MISALIGNED: tl.constexpr, BLOCK: tl.constexpr, ROW: tl.constexpr,
    HOPPER: tl.constexpr,
) -> None:  # fmt: skip
    """Up to eight tensors of n bytes and dtype code k that lie together at addresses p.

    Each has the programs below e, row r, and records from number f on. KINDS has a bit for every dtype code
    among them. Unless `later` is 0, the records are merged by another kernel.
    """
    program = tl.program_id(0).to(tl.int64)
    address, nbytes, first, end, kind, row, record, which = p0, n0, e0 * 0, e0, k0, r0, f0, 0
    if program >= e0:
        address, nbytes, first, end, kind, row, record, which = p1, n1, e0, e1, k1, r1, f1, 1
    if program >= e1:
        address, nbytes, first, end, kind, row, record, which = p2, n2, e1, e2, k2, r2, f2, 2
    if program >= e2:
        address, nbytes, first, end, kind, row, record, which = p3, n3, e2, e3, k3, r3, f3, 3
    if program >= e3:
        address, nbytes, first, end, kind, row, record, which = p4, n4, e3, e4, k4, r4, f4, 4
    if program >= e4:
        address, nbytes, first, end, kind, row, record, which = p5, n5, e4, e5, k5, r5, f5, 5
    if program >= e5:
        address, nbytes, first, end, kind, row, record, which = p6, n6, e5, e6, k6, r6, f6, 6
    if program >= e6:
        address, nbytes, first, end, kind, row, record, which = p7, n7, e6, e7, k7, r7, f7, 7
    wait_for_the_one_before(HOPPER)
    hashed = tl.zeros([], tl.uint64)
    zero = tl.zeros([], tl.float64)
    found = (zero, zero, zero, zero, zero, zero, zero, zero, zero, zero)
    for code in tl.static_range(_KINDS):
        if (KINDS >> code) & 1:  # noqa: SIM102  # known to the compiler, unlike the next
            if kind % _UNHASHED == code:
                hashed, found = _share(
                    address, nbytes, program - first, end - first, (nbytes,), code, MISALIGNED, 8, 0,
                    tl.int64, lanes_for(code, BLOCK), True, HOPPER,
                )  # fmt: skip
    its_row = rows.to(tl.pointer_type(tl.float64)) + row * ROW
    publish(its_row, scratch, which, record, program - first, end - first, found, later)
    if kind < _UNHASHED:
        entry = sums.to(tl.pointer_type(tl.int64)) + row
        tl.atomic_add(entry, hashed.to(tl.int64, bitcast=True), sem="relaxed")


@triton.jit(do_not_specialize=_STRIDED_NUMBERS)  # type: ignore[untyped-decorator]
def strided(
    sums: tl.int64, rows: tl.int64, scratch: tl.int64, row: tl.int64, record: tl.int64,
    base: tl.int64, nbytes: tl.int64,
    size0: tl.int64, stride0: tl.int64, size1: tl.int64, stride1: tl.int64,
    size2: tl.int64, stride2: tl.int64, size3: tl.int64, stride3: tl.int64,
    size4: tl.int64, stride4: tl.int64, size5: tl.int64, stride5: tl.int64, later: tl.int64,
    KIND: tl.constexpr, WIDTH: tl.constexpr, DIMS: tl.constexpr, NUMBER: tl.constexpr, BLOCK: tl.constexpr,
    ROW: tl.constexpr, HOPPER: tl.constexpr,
) -> None:  # fmt: skip
    """The statistics of one tensor with gaps, described as for the kernel of that name that hashes."""
    program = tl.program_id(0).to(tl.int64)
    programs = tl.num_programs(0).to(tl.int64)
    wait_for_the_one_before(HOPPER)
    layout = (size0, stride0, size1, stride1, size2, stride2, size3, stride3, size4, stride4, stride5)
    _, found = _share(
        base, nbytes, program, programs, layout, KIND, False, WIDTH, DIMS, NUMBER, lanes_for(KIND, BLOCK),
        False, HOPPER,
    )  # fmt: skip
    its_row = rows.to(tl.pointer_type(tl.float64)) + row * ROW
    publish(its_row, scratch, 0, record, program, programs, found, later)
