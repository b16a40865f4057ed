"""Arrays in a file come back bit by bit; whatever the library safetensors refuses is refused."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.testing import assert_array_equal
from safetensors.numpy import load, save

from truelike.core.array_files import TYPES, checksum, read_arrays, write_arrays


def read(path: Path) -> Any:
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0))
    try:
        return read_arrays(descriptor)[1]
    finally:
        os.close(descriptor)


arrays = st.dictionaries(
    st.text(st.characters(codec="utf-8"), max_size=8).filter(lambda name: name != "__metadata__"),
    st.sampled_from(list(TYPES.values())).flatmap(
        lambda kind: hnp.arrays(kind, hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=5))
    ),
    max_size=4,
)


@given(arrays)
def test_what_is_read_is_what_was_written(tmp_path_factory: pytest.TempPathFactory, given: Any) -> None:
    path = tmp_path_factory.mktemp("arrays") / "file"
    sums = write_arrays(path, given)["checksums"]
    found = read(path)
    assert found.keys() == given.keys() == sums.keys()
    for name, array in given.items():
        assert (found[name].dtype, found[name].shape) == (array.dtype, array.shape)
        assert_array_equal(found[name], array)
        assert found[name].flags.writeable
        assert checksum(found[name]) == sums[name]


def mutated(content: bytes, draw: random.Random) -> bytes:
    """A file with some bytes changed, mostly in its header."""
    changed = bytearray(content)
    for _ in range(draw.randint(1, 4)):
        at = draw.randrange(min(len(changed), 250) if draw.random() < 0.8 else len(changed))
        kind = draw.randrange(3)
        if kind == 0:
            changed[at] = draw.choice(b'0123456789[]{}",:-\x00\xffFI')
        elif kind == 1:
            del changed[at : at + draw.randint(1, 9)]
        else:
            changed[at:at] = bytes(draw.choice(b'0123456789[]",-') for _ in range(draw.randint(1, 3)))
        changed = changed or bytearray(1)
    return bytes(changed)


def test_a_mutated_file_is_refused_or_read_as_the_library_reads_it(tmp_path: Path) -> None:
    whole = save({"a": np.arange(7, dtype=np.float32), "b": np.ones((2, 3), np.int32), "c": np.zeros(0, np.int64)})
    path, accepted = tmp_path / "file", 0
    for seed in range(3_000):
        content = mutated(whole, random.Random(seed))
        path.write_bytes(content)
        try:
            found = read(path)
        except (ValueError, TypeError, KeyError, RecursionError):
            continue
        accepted += 1
        try:
            expected = load(content)
        except Exception as error:  # stricter here than there is fine, the other way round is not
            raise AssertionError(f"seed {seed}: the library refuses it: {error}") from error
        assert found.keys() == expected.keys()
        for name, array in expected.items():
            assert_array_equal(found[name], array)
    assert accepted > 50


@pytest.mark.parametrize(
    "header",
    [
        {"a": {"dtype": "F32", "shape": [10**9, 10**9], "data_offsets": [0, 4 * 10**18]}},
        {"a": {"dtype": "F32", "shape": [-2], "data_offsets": [0, -8]}},
        {"a": {"dtype": "F32", "shape": [2], "data_offsets": [4, 12]}},
        {"a": {"dtype": "F32", "shape": [True], "data_offsets": [0, 4]}, "b": 3},
        {"a": {"dtype": "float", "shape": [2], "data_offsets": [0, 8]}},
        [], 3, None, "x",
    ],
)  # fmt: skip
def test_a_header_that_leads_outside_the_file_is_refused(header: Any, tmp_path: Path) -> None:
    text = json.dumps(header).encode()
    (tmp_path / "file").write_bytes(len(text).to_bytes(8, "little") + text + bytes(8))
    with pytest.raises((ValueError, TypeError, KeyError)):
        read(tmp_path / "file")


def test_mapped_arrays_are_the_same_and_writing_to_them_does_not_change_the_file(tmp_path: Path) -> None:
    path = tmp_path / "arrays.safetensors"
    arrays = {"a": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.array([7], dtype=np.int64)}
    write_arrays(path, arrays)
    descriptor = os.open(path, os.O_RDONLY)
    try:
        identity, mapped = read_arrays(descriptor, mapped=True)
        assert identity == read_arrays(descriptor)[0]
        assert all(np.array_equal(mapped[name], array) for name, array in arrays.items())
        mapped["a"][0, 0] = 99
        assert read_arrays(descriptor)[1]["a"][0, 0] == 0
    finally:
        os.close(descriptor)
