"""Import PyTorch if it is installed, and control its devices, threads, gradients and random numbers.

Without PyTorch the classes of networks can still be imported; creating one raises an error that says what to
install.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from truelike.core.parallel import SharedSetting, threads
from truelike.errors import MissingExtraError, ParameterError

torch: Any
nn: Any
try:
    import torch  # type: ignore[no-redef]
    from torch import nn  # type: ignore[no-redef]

    installed = True
except ImportError:
    torch, nn = SimpleNamespace(autograd=SimpleNamespace(Function=object)), SimpleNamespace(Module=object)
    installed = False

if TYPE_CHECKING:
    from torch import Tensor as Tensor
    from torch.nn import Module as Module
else:  # for annotations alone
    Module = Tensor = Any


def need(model: str) -> None:
    """Raise an error that says what to install if PyTorch is missing."""
    if not installed:
        raise MissingExtraError(f"{model} needs PyTorch: pip install 'truelike[deep]'")


def is_device(value: Any) -> bool:
    """Return whether a value is spelled like a device of PyTorch."""
    kind, _, number = str(value).partition(":")
    return kind in ("auto", "cpu", "cuda", "mps", "xpu") and (not number or number.isdigit())


def device(name: str) -> Any:
    """Return the device of a name. "auto" is CUDA if it is available, else the CPU."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        torch.empty(0, device=name)
    except (RuntimeError, AssertionError) as error:
        raise ParameterError(f"device is {name!r}, which is not available: {error}".splitlines()[0]) from None
    return torch.device(name)


_threads = SharedSetting(lambda: torch.get_num_threads(), lambda n: torch.set_num_threads(n))
_random_numbers = threading.RLock()  # PyTorch has one generator for all threads


def using_threads(n_jobs: int | None) -> AbstractContextManager[None]:
    """Set the number of threads of PyTorch in a context."""
    return _threads.changed(threads(n_jobs))


@contextmanager
def gradients_enabled() -> Iterator[None]:
    """Enable gradients in a context, also inside `torch.no_grad()` or `torch.inference_mode()` of a caller."""
    with torch.inference_mode(False), torch.enable_grad():
        yield


@contextmanager
def seeded(key: int) -> Iterator[None]:
    """Seed PyTorch's random numbers in a context. The caller's random state is restored afterwards.

    Of several threads, one at a time is in such a context: they would draw each other's numbers.
    """
    with _random_numbers, torch.random.fork_rng():
        torch.manual_seed(key % 2**63)
        yield
