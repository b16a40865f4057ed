"""PyTorch, where it is installed. Where it is not, the models can be named, and say what is missing when made."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

from truelike.errors import MissingExtraError, ParameterError
from truelike.parallel import threads

torch: Any
nn: Any
try:
    import torch  # type: ignore[no-redef]
    from torch import nn  # type: ignore[no-redef]

    installed = True
except ImportError:
    torch, nn = SimpleNamespace(autograd=SimpleNamespace(Function=object)), SimpleNamespace(Module=object)
    installed = False


def need(model: str) -> None:
    """An error that says what to install, where PyTorch is not there."""
    if not installed:
        raise MissingExtraError(f"{model} needs PyTorch: pip install 'truelike[deep]'")


def is_device(value: Any) -> bool:
    """Whether a value names a device of PyTorch, as far as its spelling tells."""
    kind, _, number = str(value).partition(":")
    return kind in ("auto", "cpu", "cuda", "mps", "xpu") and (not number or number.isdigit())


def device(name: str) -> Any:
    """The device of a name; "auto" is CUDA's where there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        torch.empty(0, device=name)
    except (RuntimeError, AssertionError) as error:
        raise ParameterError(f"device is {name!r}, which is not to be had here: {error}".splitlines()[0]) from None
    return torch.device(name)


@contextmanager
def using_threads(n_jobs: int | None) -> Iterator[None]:
    """Let PyTorch work on so many threads, and put back how many it had."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads(n_jobs))
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def learning() -> Iterator[None]:
    """Let PyTorch keep track of gradients, also where a caller has asked it not to."""
    with torch.inference_mode(False), torch.enable_grad():
        yield


@contextmanager
def seeded(key: int) -> Iterator[None]:
    """Random numbers of PyTorch that depend on a key alone, and leave the caller's own as they were."""
    with torch.random.fork_rng():
        torch.manual_seed(key % 2**63)
        yield
