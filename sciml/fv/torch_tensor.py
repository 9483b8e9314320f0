"""One dense tensor out of a PyTorch `.pt` archive, read without PyTorch and without unpickling.

Such an archive is a zip: `data.pkl` describes the tensor (storage type, offset, size, strides), `data/0`
holds the storage, `byteorder` its byte order. The tensor is usually a *view*: reading `data/0` as a plain
array shears the rows of every view that was cut out of a wider array. The description is a pickle, a
program that could run anything; here its opcodes are walked over by a small inert stack machine that knows
twenty harmless ones and refuses the rest.
"""

from __future__ import annotations

import pickletools
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

_DTYPES = {"DoubleStorage": "f8", "FloatStorage": "f4"}
_GLOBALS = {
    "torch._utils _rebuild_tensor_v2",
    "collections OrderedDict",
    *(f"torch {name}" for name in _DTYPES),
}
_CONSTANTS = {
    "BININT", "BININT1", "BININT2", "LONG1", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8",
    "NEWTRUE", "NEWFALSE", "NONE", "EMPTY_TUPLE",
}  # fmt: skip
_LITERALS = {"NEWTRUE": True, "NEWFALSE": False, "NONE": None, "EMPTY_TUPLE": ()}
_MARK = object()


class TensorFileError(ValueError):
    """A `.pt` file that cannot be read; the message names the file and the field."""


def read_tensor(path: str | Path, *, max_bytes: int = 2**28) -> np.ndarray:
    """The tensor saved by `torch.save(tensor, path)`, as a contiguous array in the byte order of this
    machine.

    Args:
        path: the archive; its storage is float32 or float64, on any device.
        max_bytes: largest storage and largest tensor that is read, in bytes; larger ones are refused unread.

    Raises:
        TensorFileError: (a ValueError) naming the file and the field, when the archive is damaged, holds
            anything but one dense tensor, or describes a view that leaves its storage.
    """
    path = Path(path)

    def fail(field: str, problem: str) -> TensorFileError:
        return TensorFileError(f"{path}: {field}: {problem}")

    if not path.is_file():
        raise fail("file", "no such file")
    try:
        with zipfile.ZipFile(path) as archive:
            return _read(archive, fail, max_bytes)
    except TensorFileError:
        raise
    except zipfile.BadZipFile as error:
        raise fail(
            "file", f"not a .pt archive ({error}); a file of PyTorch before 1.6 must be saved anew"
        ) from error
    except Exception as error:  # zipfile and zlib raise half a dozen kinds on damaged archives
        raise fail("file", f"damaged .pt archive ({type(error).__name__}: {error})") from error


def _read(archive: zipfile.ZipFile, fail, max_bytes: int) -> np.ndarray:
    names = archive.namelist()
    descriptions = [name for name in names if name == "data.pkl" or name.endswith("/data.pkl")]
    if len(descriptions) != 1 or len(set(names)) != len(names):
        raise fail("data.pkl", f"expected exactly one in the archive, found {len(descriptions)}")
    prefix = descriptions[0].removesuffix("data.pkl")

    def record(name: str, limit: int) -> bytes:
        if prefix + name not in names:
            raise fail(name, "missing from the archive")
        size = archive.getinfo(prefix + name).file_size
        if size > limit:
            raise fail(name, f"{size} bytes unpacked, more than the limit of {limit}")
        with archive.open(prefix + name) as stream:
            content = stream.read(limit + 1)  # the declared size may lie
        if len(content) > limit:
            raise fail(name, f"unpacks to more than the limit of {limit} bytes")
        return content

    tensor = _description(record("data.pkl", 2**20), fail)
    order = "little"
    if prefix + "byteorder" in names:
        order = record("byteorder", 64).decode("ascii", "replace").strip()
    if order not in ("little", "big"):
        raise fail("byteorder", f"{order!r} is neither 'little' nor 'big'")
    storage_type, key, declared, offset, size, stride = tensor
    dtype = np.dtype(("<" if order == "little" else ">") + _DTYPES[storage_type])
    content = record(f"data/{key}", max_bytes)
    if len(content) != declared * dtype.itemsize:
        raise fail(
            f"data/{key}",
            f"{len(content)} bytes, but {declared} numbers of {dtype.itemsize} bytes are declared",
        )
    elements = int(np.prod(size, dtype=object))
    if elements * dtype.itemsize > max_bytes:
        raise fail("size", f"{size} is more than the limit of {max_bytes} bytes")
    if elements and offset + sum((n - 1) * step for n, step in zip(size, stride, strict=True)) >= declared:
        raise fail(
            "stride", f"offset {offset}, size {size}, stride {stride} leave a storage of {declared} numbers"
        )
    storage = np.frombuffer(content, dtype)
    steps = tuple(step * dtype.itemsize for step in stride)
    view = np.lib.stride_tricks.as_strided(storage[offset:], size, steps, writeable=False)
    return np.ascontiguousarray(view, dtype.newbyteorder("="))


def _description(program: bytes, fail) -> tuple[str, str, int, int, tuple[int, ...], tuple[int, ...]]:
    """Storage type, storage key, storage length, offset, size and strides, checked for their types."""
    value = _walk(program, fail)
    match value:
        case ("call", ("global", "torch._utils _rebuild_tensor_v2"), (storage, offset, size, stride, *_)):
            pass
        case _:
            raise fail("data.pkl", "holds something else than one dense tensor; save the tensor alone")
    match storage:
        case ("persistent", ("storage", ("global", kind), str(key), str(), int(declared))):
            pass
        case _:
            raise fail("data.pkl", "the storage of the tensor is not described as expected")
    kind = kind.removeprefix("torch ")
    if kind not in _DTYPES:
        raise fail("dtype", f"{kind} is not read; save the tensor as float32 or float64")
    whole = lambda numbers: isinstance(numbers, tuple) and all(type(n) is int and n >= 0 for n in numbers)  # noqa: E731
    if not whole((offset, declared)) or not whole(size) or not whole(stride) or len(size) != len(stride):
        raise fail(
            "data.pkl", f"offset {offset}, size {size}, stride {stride} are not non-negative whole numbers"
        )
    if not key.isalnum():
        raise fail("data.pkl", f"storage key {key!r} is not a plain name")
    return kind, key, declared, offset, size, stride


def _walk(program: bytes, fail) -> Any:
    """The value that the pickle describes, with every global, call and storage left as an inert tuple."""
    stack: list[Any] = []
    memo: dict[int, Any] = {}

    def to_mark() -> tuple[Any, ...]:
        for i in range(len(stack) - 1, -1, -1):
            if stack[i] is _MARK:
                items = tuple(stack[i + 1 :])
                del stack[i:]
                return items
        raise IndexError

    try:
        for opcode, argument, _ in pickletools.genops(program):
            name = opcode.name
            if name in ("PROTO", "FRAME"):
                continue
            if name == "STOP":
                (value,) = stack
                return value
            if name in _CONSTANTS:
                stack.append(_LITERALS.get(name, argument))
            elif name in ("GLOBAL", "STACK_GLOBAL"):
                if name == "STACK_GLOBAL":
                    *_, module, attribute = stack
                    del stack[-2:]
                    argument = f"{module} {attribute}"
                if argument not in _GLOBALS and not str(argument).startswith("torch "):
                    raise fail("data.pkl", f"refers to {argument!r}, which no plain tensor needs; refused")
                stack.append(("global", argument))
            elif name in ("BINPUT", "LONG_BINPUT"):
                memo[argument] = stack[-1]  # pyright: ignore[reportArgumentType]
            elif name == "MEMOIZE":
                memo[len(memo)] = stack[-1]
            elif name in ("BINGET", "LONG_BINGET"):
                stack.append(memo[argument])  # pyright: ignore[reportArgumentType]
            elif name == "MARK":
                stack.append(_MARK)
            elif name == "TUPLE":
                stack.append(to_mark())
            elif name in ("TUPLE1", "TUPLE2", "TUPLE3"):
                count = int(name[-1])
                items = tuple(stack[-count:])
                del stack[-count:]
                stack.append(items)
            elif name == "BINPERSID":
                stack.append(("persistent", stack.pop()))
            elif name == "REDUCE":
                arguments = stack.pop()
                stack.append(("call", stack.pop(), arguments))
            else:
                raise fail("data.pkl", f"opcode {name} is not needed for a plain tensor; refused")
    except TensorFileError:
        raise
    except (IndexError, KeyError, TypeError, ValueError) as error:
        raise fail("data.pkl", f"damaged description of the tensor ({error})") from error
    raise fail("data.pkl", "the description of the tensor ends too early")
