"""What `bits` means, in plain Python: every engine must give exactly these numbers."""

from __future__ import annotations

MASK64 = (1 << 64) - 1
WORD_BYTES = 8

POSITION = 0x9E3779B97F4A7C15
MIX_FIRST, SHIFT_FIRST = 0xC2B2AE3D27D4EB4F, 32
MIX_SECOND, SHIFT_SECOND = 0xBF58476D1CE4E5B9, 29
DTYPE_SALT = 0x94D049BB133111EB
LENGTH_SALT = 0xD6E8FEB86659FD93

# Frozen: a stored run carries fingerprints made with these. A new dtype takes the next free code; a code
# is never changed and never reused, not even when torch drops the dtype. Quantized dtypes have none,
# because their bytes mean nothing without a scale that lives outside the tensor's memory.
DTYPE_CODES: dict[str, int] = {
    "bool": 1,
    "uint8": 2,
    "int8": 3,
    "uint16": 4,
    "int16": 5,
    "uint32": 6,
    "int32": 7,
    "uint64": 8,
    "int64": 9,
    "float16": 10,
    "bfloat16": 11,
    "float32": 12,
    "float64": 13,
    "complex32": 14,
    "complex64": 15,
    "complex128": 16,
    "float8_e4m3fn": 17,
    "float8_e5m2": 18,
    "float8_e4m3fnuz": 19,
    "float8_e5m2fnuz": 20,
    "float8_e8m0fnu": 21,
    "float4_e2m1fn_x2": 22,
    "bits1x8": 23,
    "bits2x4": 24,
    "bits4x2": 25,
    "bits8": 26,
    "bits16": 27,
    "uint1": 28,
    "uint2": 29,
    "uint3": 30,
    "uint4": 31,
    "uint5": 32,
    "uint6": 33,
    "uint7": 34,
    "int1": 35,
    "int2": 36,
    "int3": 37,
    "int4": 38,
    "int5": 39,
    "int6": 40,
    "int7": 41,
    "bcomplex32": 42,
}


def mix(h: int) -> int:
    """M of the definition: a bijection of the unsigned 64-bit integers."""
    h = h * MIX_FIRST & MASK64
    h ^= h >> SHIFT_FIRST
    h = h * MIX_SECOND & MASK64
    return h ^ h >> SHIFT_SECOND


def salt(dtype: str, nbytes: int) -> int:
    """What the dtype and the length contribute before the last mix."""
    return (DTYPE_CODES[dtype] * DTYPE_SALT ^ nbytes * LENGTH_SALT) & MASK64


def reference_sum(data: bytes) -> int:
    """The sum over the words of `data`, zero-padded: what an engine computes."""
    padded = data + bytes(-len(data) % WORD_BYTES)
    total = 0
    for i in range(len(padded) // WORD_BYTES):
        word = int.from_bytes(padded[i * WORD_BYTES : (i + 1) * WORD_BYTES], "little")
        total += mix(word ^ (i + 1) * POSITION & MASK64)
    return total & MASK64


def reference_bits(data: bytes, dtype: str) -> int:
    """The `bits` of a tensor whose logical row-major bytes are `data`, as an unsigned 64-bit integer."""
    return mix(reference_sum(data) ^ salt(dtype, len(data)))


class SameNaN(float):
    """Prints and computes as NaN, and equals every NaN: two hashes of the same tensor have to be equal."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return float.__ne__(other, other) if isinstance(other, float) else NotImplemented

    def __ne__(self, other: object) -> bool:
        return float.__eq__(other, other) if isinstance(other, float) else NotImplemented

    def __hash__(self) -> int:
        return hash(SameNaN)


_NAN = SameNaN("nan")


def same_nan(value: object) -> object:
    """The value, or for a NaN one that equals itself."""
    return _NAN if isinstance(value, float) and value != value else value
