"""Compare the steps of an objective with its likelihood, and numba, NumPy and PyTorch with each other.

`KINDS` says for each base class of objectives how its steps and derivatives are computed, and what else is checked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from truelike.core.forks import check_not_forked
from truelike.errors import ParameterError
from truelike.objectives import Listwise, Objective, Pairwise, Pointwise

Doubles = NDArray[np.float64]
Result = Literal["ok", "FAILED", "surrogate", "skipped"]
ARGUMENTS = {Pointwise: ("r", "g"), Pairwise: ("r_i", "r_j")}
FUNCTIONS = {
    Pointwise: (("positive", "likelihood_positive"), ("negative", "likelihood_negative")),
    Pairwise: (("pair", "likelihood_pair"),),
}
WIDTH = 1e-4  # of the central differences
CLOSE = 1e-5  # a step and a derivative differ by less, relative to the larger of the derivative and 1
CLOSE_IN_FLOAT32 = 5e-4
KINK = 1e-2  # where derivatives from the left and the right differ by more, a step may be either or between
# Moderate values of the two arguments, which are nowhere whole numbers apart: objectives jump at such differences.
FIRST = (-8.03, -3.99, -2.01, -0.93, -0.26, 0.04, 0.52, 1.07, 2.03, 4.01, 8.05)
SECOND = (-8.31, -4.37, -2.23, -1.11, -0.41, 0.13, 0.71, 1.31, 2.47, 4.43, 8.41)
EXTREME = (-50.02, -30.02, -20.02, 20.02, 30.02, 50.02)
RANDOM = 300  # random points


class Row(NamedTuple):
    """One line of a report: what was checked, the result, and the worst place in words."""

    what: str
    result: Result
    detail: str = ""


@dataclass(frozen=True, repr=False)
class Report:
    """What `tl.objectives.check` found. Its `repr` is a table.

    Attributes
    ----------
    objective
        The name of the class.
    rows
        What was checked: tuples of what, result ("ok", "FAILED", "surrogate" or "skipped") and the details.
    """

    objective: str
    rows: tuple[Row, ...]

    @property
    def ok(self) -> bool:
        """Whether nothing failed."""
        return not self.failures

    @property
    def failures(self) -> tuple[Row, ...]:
        """The rows that failed."""
        return tuple(row for row in self.rows if row.result == "FAILED")

    def __repr__(self) -> str:
        width = max(len(row.what) for row in self.rows)
        lines = [f"{row.what:<{width}}  {row.result:<9}  {row.detail}".rstrip() for row in self.rows]
        return "\n".join([f"{self.objective}: {'ok' if self.ok else 'FAILED'}", *lines])


class _Findings:
    """The rows so far, and the calls of an objective whose failure is a row."""

    def __init__(self, objective: type[Objective]) -> None:
        self.objective, self.rows = objective, list[Row]()

    def add(self, what: str, problem: str, fine: str = "") -> None:
        """Add a row that failed if there is a problem."""
        self.rows.append(Row(what, "FAILED", problem) if problem else Row(what, "ok", fine))

    def skip(self, what: str, reason: str) -> None:
        self.rows.append(Row(what, "skipped", reason))

    @contextmanager
    def row(self, what: str, missing: str = "it is not defined") -> Iterator[None]:
        """A context in which an error of the objective becomes a row that failed, a missing function one without."""
        try:
            with np.errstate(all="ignore"):
                yield
        except NotImplementedError:
            self.skip(what, missing)
        except Exception as error:
            self.add(what, f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}")

    def gradients(self, gradients: Iterator[Gradient]) -> None:
        """Add a row for each, whether these steps are the derivatives of the likelihood.

        Those of a surrogate must only point the same way, on the whole: their cosine must not be negative.
        """
        for what, steps, slopes, place in gradients:
            problem, reason = slopes.contradiction(steps, place), self.objective.surrogate
            if problem and reason is not None:
                cosine = slopes.cosine(steps)
                result: Result = "FAILED" if cosine < 0 else "surrogate"
                self.rows.append(Row(what, result, f"{reason}; cosine with the gradient {cosine:.2f}; {problem}"))
            else:
                distance = f"{slopes.worst(steps):.1g} at most from the derivative of the likelihood"
                self.add(what, problem, distance)


@dataclass
class _Slopes:
    """Derivatives of a likelihood by differences, at some places."""

    central: Doubles
    left: Doubles
    right: Doubles
    finite: NDArray[np.bool_] = field(init=False)

    def __post_init__(self) -> None:
        self.finite = np.isfinite(self.central)

    @classmethod
    def of(cls, likelihood: Callable[[Doubles], Any], at: Doubles) -> _Slopes:
        """Those of a function of each place alone."""
        below, here, above = (np.asarray(likelihood(at + move), dtype=float) for move in (-WIDTH, 0.0, WIDTH))
        return cls((above - below) / (2 * WIDTH), (here - below) / WIDTH, (above - here) / WIDTH)

    def _distance(self, steps: Doubles) -> Doubles:
        """How far steps are from the derivatives, relative to the larger of the derivative and 1."""
        is_kink = np.abs(self.right - self.left) > KINK * np.maximum(1, np.abs(self.central))
        low, high = np.minimum(self.left, self.right), np.maximum(self.left, self.right)
        between = np.clip(steps, low, high)
        nearest = np.where(is_kink, between, self.central)
        return np.asarray(np.abs(steps - nearest) / np.maximum(1, np.abs(nearest)))

    def worst(self, steps: Doubles) -> float:
        return float(self._distance(steps)[self.finite].max(initial=0.0))

    def cosine(self, steps: Doubles) -> float:
        """The cosine of the angle between steps and derivatives at all places; 0 if all of either are 0."""
        known = self.finite & np.isfinite(steps)
        steps, slopes = steps[known], self.central[known]
        return float(steps @ slopes / (np.linalg.norm(steps) * np.linalg.norm(slopes) or 1.0))

    def contradiction(self, steps: Doubles, place: Callable[[int], str]) -> str:
        """Where steps differ from the derivatives, in words; empty if they do not."""
        if not self.finite.all():
            return f"the likelihood is not finite near {place(int(np.argmin(self.finite)))}"
        distance = self._distance(steps)
        wrong = int(np.argmax(np.where(np.isfinite(distance), distance, np.inf)))
        if distance[wrong] <= CLOSE:
            return ""
        expected = f"the derivative of the likelihood is {self.central[wrong]:.6g}"
        text = f"at {place(wrong)} it is {steps[wrong]:.6g}, and {expected}"
        clear = np.abs(self.central) > 1e-3
        ratios = steps[clear] / self.central[clear]
        if len(ratios) > 1 and np.ptp(ratios) < 1e-3 * np.abs(ratios).mean():
            text += f"; it is {ratios.mean():.4g} times the derivative everywhere"
        return text


class Gradient(NamedTuple):
    """Steps, the derivatives that they should be, and the names of their places."""

    what: str
    steps: Doubles
    slopes: _Slopes
    place: Callable[[int], str]


# --- functions of numbers: pointwise and pairwise ---------------------------------------------------


def _elementwise_gradients(objective: type[Objective], every: int) -> Iterator[Gradient]:
    kind = _base(objective)
    names, points = ARGUMENTS[kind], _points()[:, ::every]

    def place(index: int) -> str:
        return _at(names, points[:, index])

    for name, likelihood in FUNCTIONS[kind]:
        found = _call(objective, name, *points)
        if not isinstance(found, tuple) or len(found) != len(names):
            raise ParameterError(f"{name} must return two steps, not {type(found).__name__}")
        steps = [np.asarray(step, dtype=float) + np.zeros_like(points[0]) for step in found]
        for each, step, slopes in zip(names, steps, _both(getattr(objective, likelihood), points), strict=True):
            yield Gradient(f"{name}: step of {each}", step, slopes, place)


def _check_elementwise(found: _Findings) -> None:
    objective, kind = found.objective, _base(found.objective)
    names, points, steepest = ARGUMENTS[kind], _points(), 0.0
    extremes = np.array([(a, b) for a in EXTREME for b in EXTREME]).T
    far = np.concatenate([points, extremes], axis=1)
    for name, _ in FUNCTIONS[kind]:
        steps = getattr(objective, name)
        with found.row(f"{name}: shapes"):
            found.add(f"{name}: shapes", _shapes(steps))
        with found.row(f"{name}: finite up to 50"):
            broken = ~np.isfinite(np.stack([*steps(*far)])).all(axis=0)
            at = _at(names, far[:, broken.argmax()])
            found.add(f"{name}: finite up to 50", f"the steps are not finite at {at}" if broken.any() else "")
        with found.row(f"{name}: curvature"):
            steepest = max(steepest, _steepest(steps))
        with found.row(f"{name}: numba"):
            _compare_numba(found, kind, name, extremes)
        _compare_torch(found, name, points)
    if kind is Pointwise:
        with found.row("uses_flips"):
            _check_flips(found, points)
    _check_curvature(found, steepest)


def _at(names: tuple[str, str], values: Doubles) -> str:
    return ", ".join(f"{name}={value:g}" for name, value in zip(names, values, strict=True))


def _points() -> Doubles:
    """Pairs of moderate values, pairs of an extreme and a small value, and random pairs."""
    grid = [(a, b) for a in FIRST for b in SECOND]
    edges = [pair for a in EXTREME for b in (-2.23, 0.13, 1.31) for pair in ((a, b), (b, a))]
    random = np.random.default_rng(0).normal(scale=3.0, size=(RANDOM, 2)).clip(-9, 9)
    return np.concatenate([np.array(grid), np.array(edges), random]).T


def _both(likelihood: Callable[[Any, Any], Any], points: Doubles) -> tuple[_Slopes, _Slopes]:
    """The derivatives of a likelihood by its first and by its second argument."""
    a, b = points
    flat = np.zeros_like(a)  # a likelihood may not use g
    return _Slopes.of(lambda x: likelihood(x, b) + flat, a), _Slopes.of(lambda x: likelihood(a, x) + flat, b)


def _shapes(steps: Callable[..., Any]) -> str:
    """What is wrong with the shapes of the steps; empty if nothing is."""
    for shape in ((5,), (3, 4)):
        r, g = np.full(shape, 0.3), np.full(shape, -0.2)
        for step in steps(r, g):
            if np.shape(step) != shape:
                return f"for arrays of shape {shape} a step is of shape {np.shape(step)}; write 1 + 0 * r in place of 1"
    if any(np.ndim(step) for step in steps(0.3, -0.2)):
        return "for two numbers a step is an array"
    return ""


def _steepest(steps: Callable[..., Any]) -> float:
    """The largest change of the first step with the first argument."""
    a, b = np.meshgrid(np.linspace(-9, 9, 181) + 0.003, np.linspace(-9, 9, 37))
    change = (np.asarray(steps(a + WIDTH, b)[0]) - np.asarray(steps(a - WIDTH, b)[0])) / (2 * WIDTH)
    return float(np.abs(change).max())


def _check_flips(found: _Findings, points: Doubles) -> None:
    assert issubclass(found.objective, Pointwise)
    moves = max(float(np.abs(f(*points)[1]).max()) for f in (found.objective.positive, found.objective.negative))
    if found.objective.uses_flips:
        found.add("uses_flips", "" if moves else "it is True, and the step of g is 0 everywhere", "g is learned")
    else:
        problem = "it is False, and the step of g is not 0: set uses_flips = True, or return 0 * g"
        found.add("uses_flips", problem if moves else "", "g is not learned")


def _check_curvature(found: _Findings, steepest: float) -> None:
    bound = found.objective.curvature
    if bound is None:
        found.skip("curvature", f"it is not set; the step changes by {steepest:.3g} at most")
        return
    below = f"the step changes by {steepest:.3g} at most, and curvature = {bound:g}"
    found.add("curvature", "" if steepest <= bound * (1 + 1e-6) else f"{below} must bound it", below)


def _compare_numba(found: _Findings, kind: type[Objective], name: str, extremes: Doubles) -> None:
    """Add a row, whether compiled steps are finite, and equal to those of NumPy at moderate scores."""
    from truelike.objectives.compiler import compiled_steps, reason

    what = f"{name}: numba"
    try:
        compiled = compiled_steps(found.objective)[int(name == "negative")]  # type: ignore[arg-type]
    except Exception as error:
        found.add(what, f"numba cannot compile it: {reason(error)}")
        return
    near = np.array([(a, b) for a in FIRST[1:-1] for b in SECOND[1:-1]]).T
    a, b = np.concatenate([near, extremes], axis=1).astype(np.float32)
    expected = [np.asarray(step) for step in getattr(found.objective, name)(a.astype(float), b.astype(float))]
    first, second = (b.copy(), a.copy()) if kind is Pairwise else (a.copy(), b.copy())
    compiled(first, second, np.uint64(0), np.uint64(len(a)))
    ours = (second, first) if kind is Pairwise else (first, second)
    n, worst = near.shape[1], 0.0
    for step, other in zip(ours, expected, strict=True):
        broken = ~np.isfinite(step)
        if broken.any():
            at = int(broken.argmax())
            found.add(what, f"a step is not finite at {a[at]:g}, {b[at]:g}: float32 rounds a divisor to 0")
            return
        worst = max(worst, float((np.abs(step - other) / np.maximum(1, np.abs(other)))[:n].max()))
    found.add(what, f"it is {worst:.2g} from NumPy" if worst > CLOSE_IN_FLOAT32 else "", f"{worst:.1g} from NumPy")


def _compare_torch(found: _Findings, name: str, arguments: Sequence[Doubles] | Doubles) -> None:
    """Add a row, whether PyTorch, if it is installed, gives the steps that NumPy gives."""
    what, steps = f"{name}: PyTorch", getattr(found.objective, name)
    try:
        import torch
    except ImportError:
        found.skip(what, "PyTorch is not installed")
        return
    with found.row(what):
        worst = 0.0
        for one, other in zip(steps(*arguments), steps(*map(torch.tensor, arguments)), strict=True):
            if not isinstance(other, torch.Tensor):
                found.add(what, f"for tensors it returns a {type(other).__name__}")
                return
            distance = np.abs(np.asarray(one) - other.numpy()) / np.maximum(1, np.abs(one))
            worst = max(worst, float(distance.max()))
        found.add(what, "" if worst <= CLOSE else f"it is {worst:.2g} from NumPy", f"{worst:.1g} from NumPy")


# --- functions of the scores of all items: listwise ---------------------------------------------------


def _listwise_gradients(objective: type[Objective], every: int) -> Iterator[Gradient]:
    assert issubclass(objective, Listwise)
    r, observed = (table[::every] for table in _lists())

    def place(index: int) -> str:
        row, item = divmod(index, r.shape[1])
        return f"{'a positive' if observed[row, item] else 'an unobserved item'} with r={r[row, item]:g}"

    steps = np.asarray(_call(objective, "steps", r, observed), dtype=float)
    yield Gradient("steps: gradient", steps.ravel(), _list_slopes(objective, r, observed), place)


def _check_listwise(found: _Findings) -> None:
    objective = found.objective
    assert issubclass(objective, Listwise)
    r, observed = _lists()
    with found.row("steps: shape"):
        shape = np.shape(objective.steps(r, observed))
        found.add("steps: shape", "" if shape == r.shape else f"it is {shape} for r of shape {r.shape}")
    with found.row("steps: rows"):
        whole = np.asarray(objective.steps(r, observed))
        alone = np.concatenate([objective.steps(r[n : n + 1], observed[n : n + 1]) for n in range(len(r))])
        apart = np.abs(whole - alone)
        problem = f"a row's steps depend on other rows, by {apart.max():.2g}" if apart.max() > CLOSE else ""
        if np.isnan(apart).any():
            problem = f"a step is NaN or infinite at r={r.flat[np.isnan(apart).argmax()]:g}"
        found.add("steps: rows", problem)
    with found.row("steps: finite up to 50"):
        far, worst = r.copy(), ""
        far[0], far[1] = np.where(observed[0], -50, 50), np.where(observed[1], 50, -50)
        for kind in (np.float64, np.float32):
            values = np.asarray(objective.steps(far.astype(kind), observed.astype(kind)))
            if not np.isfinite(values).all():
                worst = f"the steps are not finite in {np.dtype(kind)} with scores of -50 and 50"
        found.add("steps: finite up to 50", worst)
    _compare_listwise_torch(found, r, observed)


def _compare_listwise_torch(found: _Findings, r: Doubles, observed: Doubles) -> None:
    """As `_compare_torch`; steps that need arrays are no mistake: networks alone cannot be trained by them."""
    objective = found.objective
    assert issubclass(objective, Listwise)
    with suppress(ImportError):
        import torch

        try:
            objective.steps(torch.tensor(r), torch.tensor(observed))
        except Exception as error:
            found.skip("steps: PyTorch", f"it fails on tensors, so networks cannot be trained by it: {error}")
            return
    _compare_torch(found, "steps", (r, observed))


def _lists() -> tuple[Doubles, Doubles]:
    """Scores of six users and nine items, of several magnitudes, and what was observed."""
    rng = np.random.default_rng(0)
    r = rng.normal(size=(6, 9)) * np.array([0.1, 1, 1, 3, 6, 12])[:, None]
    observed = (rng.uniform(size=r.shape) < 0.3).astype(float)
    observed[np.arange(6), np.arange(6)] = 1.0
    return r, observed


def _list_slopes(objective: type[Listwise], r: Doubles, observed: Doubles) -> _Slopes:
    """The derivatives of the likelihood of each row by each of its scores."""

    def likelihood(scores: Doubles) -> Doubles:
        found = np.asarray(objective.likelihood(scores, observed), dtype=float)
        if found.shape != r.shape[:1]:
            raise ValueError(
                f"likelihood returned an array of shape {found.shape} for {len(r)} rows; one number each"
            )
        return found

    here, columns = likelihood(r), []
    for item in range(r.shape[1]):
        move = np.zeros(r.shape[1])
        move[item] = WIDTH
        columns.append((likelihood(r - move), likelihood(r + move)))
    below, above = (np.stack(each, axis=1) for each in zip(*columns, strict=True))
    central, left, right = (above - below) / 2, here[:, None] - below, above - here[:, None]
    return _Slopes(*(each.ravel() / WIDTH for each in (central, left, right)))


# --- the door ---------------------------------------------------------------------------------------


class Kind(NamedTuple):
    """How the objectives of a base class are checked."""

    gradients: Callable[[type[Objective], int], Iterator[Gradient]]  # at every n-th place
    rest: Callable[[_Findings], None]


KINDS: dict[type[Objective], Kind] = {
    Pointwise: Kind(_elementwise_gradients, _check_elementwise),
    Pairwise: Kind(_elementwise_gradients, _check_elementwise),
    Listwise: Kind(_listwise_gradients, _check_listwise),
}
FEW = {Pointwise: 19, Pairwise: 19, Listwise: 2}  # every so many places are looked at before training


def report(objective: type[Objective]) -> Report:
    """Run all checks of the base class of an objective."""
    check_not_forked()
    kind, found = KINDS[_base(objective)], _Findings(objective)
    with found.row("gradient", "there is no likelihood to compare with"):
        found.gradients(kind.gradients(objective, 1))
    kind.rest(found)
    return Report(objective.__name__, tuple(found.rows))


def contradiction(objective: type[Objective]) -> str:
    """Where the steps of an objective are not the derivatives of its likelihood; a few places, a few microseconds.

    Empty if they are, if there is no likelihood, or if the steps are a surrogate.
    """
    base = _base(objective)
    if objective.surrogate is not None:
        return ""
    try:
        with np.errstate(all="ignore"):
            for what, steps, slopes, place in KINDS[base].gradients(objective, FEW[base]):
                problem = slopes.contradiction(steps, place)
                if problem:
                    return f"{what}: {problem}"
    except NotImplementedError:
        pass
    return ""


def _base(objective: type[Objective]) -> type[Objective]:
    """The base class that says how an objective is checked."""
    if isinstance(objective, type):
        for base in objective.__mro__:
            if base in KINDS:
                return base
    raise ParameterError(
        f"check takes a Pointwise, Pairwise or Listwise class, such as tl.objectives.BPO, not {objective!r}"
    )


def _call(objective: type[Objective], name: str, *arguments: Doubles) -> Any:
    """Call a function of an objective. One that is missing is an error, unlike a missing likelihood."""
    try:
        return getattr(objective, name)(*arguments)
    except NotImplementedError:
        raise ParameterError(f"there is no function {name}") from None
