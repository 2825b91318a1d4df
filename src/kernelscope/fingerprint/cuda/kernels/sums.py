"""The sum of the definition over the words of a tensor that are one program's, by layout.

Sums are order-free, so any grid gives the same number.
"""

from __future__ import annotations

import triton
import triton.language as tl

from kernelscope.fingerprint.definition import POSITION

from .words import load, load_words, mix, offset, unfolded

_POSITION = tl.constexpr(POSITION)
_WORD = tl.constexpr(1 << 64)


@triton.jit  # type: ignore[untyped-decorator]
def flat_sum(address, nbytes, program, programs, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """The whole words of a contiguous, aligned tensor that are this program's, BLOCK of them at a time.

    A thread has two neighbouring words at once, and two loads on their way.
    """
    LANES: tl.constexpr = BLOCK // 4
    words = nbytes // 8
    source = address.to(tl.pointer_type(tl.uint64))
    lanes = 2 * tl.arange(0, LANES)[:, None] + tl.arange(0, 2)[None, :]
    step = programs * BLOCK
    keys = (program * BLOCK + lanes + 1).to(tl.uint64) * _POSITION
    # So that the loop adds where the definition multiplies.
    key_step = unfolded(step.to(tl.uint64) * _POSITION, programs)
    total = tl.zeros([LANES], tl.uint64)
    blocks = words // BLOCK
    for start in range(program * BLOCK, blocks * BLOCK, step):
        for half in tl.static_range(2):
            word = tl.load(source + start + half * 2 * LANES + lanes)
            total += tl.sum(mix(word ^ (keys + half * 2 * LANES * _POSITION % _WORD)), 1)
        keys += key_step
    if blocks % programs == program:  # what is left is less than a block
        for half in tl.static_range(2):
            here = blocks * BLOCK + half * 2 * LANES + lanes
            inside = here < words
            word = tl.load(source + here, mask=inside, other=0)
            total += tl.sum(tl.where(inside, mix(word ^ ((here + 1).to(tl.uint64) * _POSITION)), 0), 1)
    return tl.sum(total, 0)


@triton.jit  # type: ignore[untyped-decorator]
def shifted_sum(address, nbytes, program, programs, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """The same where the address may be no multiple of 8."""
    words = nbytes // 8
    lanes = tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], tl.uint64)
    for start in range(program * BLOCK, words, programs * BLOCK):
        here = start + lanes
        inside = here < words
        word = load_words(address, here, inside, inside, True)
        total += tl.where(inside, mix(word ^ ((here + 1).to(tl.uint64) * _POSITION)), 0)
    return tl.sum(total, 0)


@triton.jit
def tail(address, nbytes):  # type: ignore[no-untyped-def]
    """What is left beyond the last whole word."""
    words = nbytes // 8
    left = nbytes - words * 8
    bytes = tl.arange(0, 8)
    end = address.to(tl.pointer_type(tl.uint8)) + words * 8
    value = tl.load(end + bytes, mask=bytes < left, other=0).to(tl.uint64) << (bytes * 8).to(tl.uint64)
    return mix(tl.sum(value, 0) ^ ((words + 1).to(tl.uint64) * _POSITION))


@triton.jit  # type: ignore[untyped-decorator]
def strided_sum(  # type: ignore[no-untyped-def]
    base, nbytes, program, programs,
    size0, stride0, size1, stride1, size2, stride2, size3, stride3, size4, stride4, stride5,
    WIDTH: tl.constexpr, DIMS: tl.constexpr, NUMBER: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    words = (nbytes + 7) // 8
    pieces = (nbytes // WIDTH).to(NUMBER)
    lanes = tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], tl.uint64)
    for start in range(program * BLOCK, words, programs * BLOCK):
        here = start + lanes
        word = tl.zeros([BLOCK], tl.uint64)
        for part in tl.static_range(8 // WIDTH):
            piece = (here * (8 // WIDTH) + part).to(NUMBER)
            at = offset(
                piece, size0, stride0, size1, stride1, size2, stride2, size3, stride3, size4, stride4,
                stride5, DIMS, NUMBER,
            )  # fmt: skip
            word |= load(base + at, piece < pieces, WIDTH) << (8 * WIDTH * part)
        mixed = mix(word ^ ((here + 1).to(tl.uint64) * _POSITION))
        total += tl.where(here < words, mixed, 0)
    return tl.sum(total, 0)


@triton.jit  # type: ignore[untyped-decorator]
def transposed_sum(  # type: ignore[no-untyped-def]
    base, program, programs, row_words, stride, rows, rows_apart, outer, outer_stride, outer_apart,
    WIDTH: tl.constexpr, ROWS: tl.constexpr, WORDS: tl.constexpr,
):  # fmt: skip
    # Of tiles there are few enough for 32 bits, in which a division is much cheaper.
    row_tiles = ((rows + ROWS - 1) // ROWS).to(tl.int32)
    word_tiles = ((row_words + WORDS - 1) // WORDS).to(tl.int32)
    tiles = row_tiles * word_tiles
    r = tl.arange(0, ROWS).to(tl.int64)[:, None]
    w = tl.arange(0, WORDS).to(tl.int64)[None, :]
    total = tl.zeros([ROWS, WORDS], tl.uint64)
    for tile in range(program.to(tl.int32), outer.to(tl.int32) * tiles, programs.to(tl.int32)):
        of_outer = (tile // tiles).to(tl.int64)
        rest = tile % tiles
        row = (rest // word_tiles).to(tl.int64) * ROWS + r
        place = (rest % word_tiles).to(tl.int64) * WORDS + w
        inside = (row < rows) & (place < row_words)
        word = tl.zeros([ROWS, WORDS], tl.uint64)
        for part in tl.static_range(8 // WIDTH):
            at = of_outer * outer_stride + row * WIDTH + (place * (8 // WIDTH) + part) * stride
            word |= load(base + at, inside, WIDTH) << (8 * WIDTH * part)
        index = of_outer * outer_apart + row * rows_apart + place
        mixed = mix(word ^ ((index + 1).to(tl.uint64) * _POSITION))
        total += tl.where(inside, mixed, 0)
    return tl.sum(tl.sum(total, 1), 0)


@triton.jit
def _columns(a, b, c, d):  # type: ignore[no-untyped-def]
    """Two columns of four lines that have two 2-byte elements each."""
    low, high = (a & 0xFFFF) | (b << 16), (c & 0xFFFF) | (d << 16)
    first = low.to(tl.uint64) | (high.to(tl.uint64) << 32)
    low, high = (a >> 16) | (b & 0xFFFF0000), (c >> 16) | (d & 0xFFFF0000)
    return first, low.to(tl.uint64) | (high.to(tl.uint64) << 32)


@triton.jit  # type: ignore[untyped-decorator]
def paired_sum(  # type: ignore[no-untyped-def]
    base, program, programs, row_words, stride, rows, rows_apart, outer, outer_stride, outer_apart,
    ROWS: tl.constexpr, WORDS: tl.constexpr,
):  # fmt: skip
    """`transposed_sum` of 2-byte elements, loading those of two rows at once: rows and strides are even."""
    row_tiles = ((rows // 2 + ROWS - 1) // ROWS).to(tl.int32)
    word_tiles = ((row_words + WORDS - 1) // WORDS).to(tl.int32)
    tiles = row_tiles * word_tiles
    source = base.to(tl.pointer_type(tl.uint32))
    apart = stride // 4
    other_row = rows_apart.to(tl.uint64) * _POSITION
    r = tl.arange(0, ROWS).to(tl.int64)[:, None]
    w = tl.arange(0, WORDS).to(tl.int64)[None, :]
    total = tl.zeros([ROWS, WORDS], tl.uint64)
    for tile in range(program.to(tl.int32), outer.to(tl.int32) * tiles, programs.to(tl.int32)):
        of_outer = (tile // tiles).to(tl.int64)
        rest = tile % tiles
        pair = (rest // word_tiles).to(tl.int64) * ROWS + r
        place = (rest % word_tiles).to(tl.int64) * WORDS + w
        inside = (pair < rows // 2) & (place < row_words)
        at = source + of_outer * (outer_stride // 4) + pair + place * stride
        a = tl.load(at, mask=inside, other=0)
        b = tl.load(at + apart, mask=inside, other=0)
        c = tl.load(at + 2 * apart, mask=inside, other=0)
        d = tl.load(at + 3 * apart, mask=inside, other=0)
        first, second = _columns(a, b, c, d)
        key = (of_outer * outer_apart + pair * (2 * rows_apart) + place + 1).to(tl.uint64) * _POSITION
        total += tl.where(inside, mix(first ^ key) + mix(second ^ (key + other_row)), 0)
    return tl.sum(tl.sum(total, 1), 0)


@triton.jit  # type: ignore[untyped-decorator]
def both_sums(  # type: ignore[no-untyped-def]
    base, program, programs, line_words, quads, outer, LINES: tl.constexpr, WORDS: tl.constexpr
):
    """A contiguous tensor of 2-byte elements read as it lies, and with its last two dimensions swapped.

    A matrix has 4 * quads lines of line_words words. A lane takes a word of four lines: 4 × 4 elements.
    """
    line_tiles = ((quads + LINES - 1) // LINES).to(tl.int32)
    word_tiles = ((line_words + WORDS - 1) // WORDS).to(tl.int32)
    tiles = line_tiles * word_tiles
    source = base.to(tl.pointer_type(tl.uint64))
    next_line, next_column = line_words.to(tl.uint64) * _POSITION, quads.to(tl.uint64) * _POSITION
    q = tl.arange(0, LINES).to(tl.int64)[:, None]
    w = tl.arange(0, WORDS).to(tl.int64)[None, :]
    flat = tl.zeros([LINES, WORDS], tl.uint64)
    swapped = tl.zeros([LINES, WORDS], tl.uint64)
    for tile in range(program.to(tl.int32), outer.to(tl.int32) * tiles, programs.to(tl.int32)):
        before = (tile // tiles).to(tl.int64) * (4 * quads * line_words)
        rest = tile % tiles
        quad = (rest // word_tiles).to(tl.int64) * LINES + q
        word = (rest % word_tiles).to(tl.int64) * WORDS + w
        inside = (quad < quads) & (word < line_words)
        here = before + 4 * quad * line_words + word
        a = tl.load(source + here, mask=inside, other=0)
        b = tl.load(source + here + line_words, mask=inside, other=0)
        c = tl.load(source + here + 2 * line_words, mask=inside, other=0)
        d = tl.load(source + here + 3 * line_words, mask=inside, other=0)
        key = (here + 1).to(tl.uint64) * _POSITION
        one = mix(a ^ key) + mix(b ^ (key + next_line))
        one += mix(c ^ (key + 2 * next_line)) + mix(d ^ (key + 3 * next_line))
        flat += tl.where(inside, one, 0)
        key = (before + 4 * word * quads + quad + 1).to(tl.uint64) * _POSITION
        first, second = _columns(a.to(tl.uint32), b.to(tl.uint32), c.to(tl.uint32), d.to(tl.uint32))
        other = mix(first ^ key) + mix(second ^ (key + next_column))
        first, second = _columns(
            (a >> 32).to(tl.uint32), (b >> 32).to(tl.uint32), (c >> 32).to(tl.uint32), (d >> 32).to(tl.uint32)
        )
        other += mix(first ^ (key + 2 * next_column)) + mix(second ^ (key + 3 * next_column))
        swapped += tl.where(inside, other, 0)
    return tl.sum(tl.sum(flat, 1), 0), tl.sum(tl.sum(swapped, 1), 0)


@triton.jit
def quotient(number, magic):  # type: ignore[no-untyped-def]
    """Divide a uint32 below 2³¹ by what `cuda.magic` was given."""
    return ((number.to(tl.uint64) * (magic & 0xFFFFFFFFF)) >> (magic >> 40)).to(tl.uint32)


@triton.jit  # type: ignore[untyped-decorator]
def runs_sum(  # type: ignore[no-untyped-def]
    base, nbytes, program, programs, size0, magic0, size1, stride1, magic1, size2, stride2, magic2, stride3,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """A tensor of up to four dimensions whose innermost runs of bytes lie together, and can be quartered.

    Finding a run costs much, so that a thread takes two words from each of its quarters, of size0 pairs;
    other dimensions have sizes, and strides in bytes.
    """
    LANES: tl.constexpr = BLOCK // 4
    pairs = (nbytes // 64).to(tl.int32)
    source = base.to(tl.pointer_type(tl.uint64))
    quarter = 2 * size0
    size0, size1, size2 = size0.to(tl.uint32), size1.to(tl.uint32), size2.to(tl.uint32)
    magic0, magic1, magic2 = magic0.to(tl.uint64), magic1.to(tl.uint64), magic2.to(tl.uint64)
    next_quarter = quarter.to(tl.uint64) * _POSITION
    lanes = tl.arange(0, LANES)
    two = tl.arange(0, 2)[None, :]
    total = tl.zeros([LANES], tl.uint64)
    for start in range(program.to(tl.int32) * LANES, pairs, programs.to(tl.int32) * LANES):
        pair = (start + lanes).to(tl.uint32)
        inside = (start + lanes < pairs)[:, None]
        run = quotient(pair, magic0)
        in_run = 2 * (pair - run * size0).to(tl.int64)
        rest = quotient(run, magic1)
        at = (run - rest * size1).to(tl.int64) * stride1
        last = quotient(rest, magic2)
        at += (rest - last * size2).to(tl.int64) * stride2 + last.to(tl.int64) * stride3
        here = source + (at // 8 + in_run)[:, None] + two
        index = (run.to(tl.int64) * (4 * quarter) + in_run)[:, None] + two
        keys = (index + 1).to(tl.uint64) * _POSITION
        for part in tl.static_range(4):
            word = tl.load(here + part * quarter, mask=inside, other=0)
            total += tl.sum(tl.where(inside, mix(word ^ keys), 0), 1)
            keys += next_quarter
    return tl.sum(total, 0)
