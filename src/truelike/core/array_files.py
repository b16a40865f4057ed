"""Arrays by name in a file of the format safetensors.

They are read into memory of their own, because a memory map of a file that another program cuts short ends the process,
and one of a file that another program writes to changes. A file that no other program changes may be mapped, so that
several processes share its memory. The header is checked like everything from outside.

The package safetensors is not used: its reader for NumPy takes a path, not an open file, and always copies. On 2 GB of
arrays, version 0.8.0 has up to 4 GB resident while it reads (half of it the mapped file), and keeps 2 GB; here it is
2 GB, and with a map no memory of its own. To write them, version 0.6.2 takes 2 GB more; 0.8.0 and this module none.
"""

from __future__ import annotations

import json
import math
import mmap
import os
import secrets
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import xxhash
from numpy.typing import NDArray

Arrays = dict[str, NDArray[Any]]

TYPES = {
    "BOOL": np.bool_, "U8": np.uint8, "I8": np.int8, "I16": np.int16, "U16": np.uint16, "F16": np.float16,
    "I32": np.int32, "U32": np.uint32, "F32": np.float32, "I64": np.int64, "U64": np.uint64, "F64": np.float64,
}  # fmt: skip
LONGEST_HEADER = 100_000_000  # bytes; the limit of the library safetensors


def write_arrays(path: Path, arrays: Mapping[str, NDArray[Any]]) -> dict[str, Any]:
    """Write arrays to a file, and return its random id and the checksum of each array, for the description."""
    whole = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    identity = secrets.token_hex(16)
    kinds = {np.dtype(kind): name for name, kind in TYPES.items()}
    order = sorted(whole, key=lambda name: (-whole[name].dtype.itemsize, name))  # so that all are aligned
    header: dict[str, Any] = {"__metadata__": {"id": identity}}
    end = 0
    for name in order:
        array = whole[name]
        header[name] = {
            "dtype": kinds[array.dtype],
            "shape": list(array.shape),
            "data_offsets": [end, end + array.nbytes],
        }
        end += array.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name in order:
            if whole[name].size:
                file.write(whole[name].reshape(-1).view(np.uint8).data)
    return {"id": identity, "checksums": {name: checksum(array) for name, array in whole.items()}}


def read_arrays(
    descriptor: int, *, mapped: bool = False, empty: Callable[..., NDArray[Any]] = np.empty
) -> tuple[Any, Arrays]:
    """Read the id and all arrays of an open file; ValueError if `write_arrays` cannot have written it.

    `empty` makes the arrays that are filled, from a shape and a type. With `mapped` they are views of a private memory
    map instead: what is written to them is not written to the file.
    """
    size = os.fstat(descriptor).st_size
    with os.fdopen(descriptor, "rb", closefd=False) as file:
        file.seek(0)
        length = int.from_bytes(file.read(8), "little")
        if not 0 < length <= min(LONGEST_HEADER, size - 8):
            raise ValueError(f"the header of a file of {size} bytes cannot have {length} bytes")
        header = json.loads(file.read(length))
        if not isinstance(header, dict):
            raise TypeError("the header is not an object")
        about = header.pop("__metadata__", None)
        identity = about.get("id") if isinstance(about, dict) else None
        start, arrays = 8 + length, Arrays()
        content = mmap.mmap(descriptor, size, access=mmap.ACCESS_COPY) if mapped else None
        for name, about in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
            kind, shape, (begin, end) = TYPES[about["dtype"]], about["shape"], about["data_offsets"]
            if not (isinstance(shape, list) and all(isinstance(n, int) and n >= 0 for n in shape)):
                raise ValueError(f"the array {name!r} has the shape {shape!r}")
            n, expected = math.prod(shape), math.prod(shape) * np.dtype(kind).itemsize
            if 8 + length + begin != start or end - begin != expected or start + expected > size:
                raise ValueError(f"the array {name!r} has bytes {begin} to {end}; expected {expected} bytes")
            if content is None or not expected:
                file.seek(start)
                arrays[name] = empty(shape, kind)
                if file.readinto(arrays[name].reshape(-1).view(np.uint8).data) != expected:
                    raise ValueError(f"the file ends in the array {name!r}")
            else:
                arrays[name] = np.frombuffer(content, kind, n, start).reshape(shape)
            start += expected
    if start != size:
        raise ValueError(f"the file has {size} bytes; its arrays end at {start}")
    return identity, arrays


def checksum(array: NDArray[Any]) -> int:
    """The 64-bit XXH3 hash of an array's bytes.

    It finds damage. It is no protection against somebody who edits the file on purpose.

    >>> checksum(np.array([1, 2, 3], dtype=np.int64)) == checksum(np.array([1, 3, 2], dtype=np.int64))
    False
    """
    return xxhash.xxh3_64_intdigest(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
