"""The manifest of a comparison: what reproduces its table. It has settings, versions and hashes, and no code."""

from __future__ import annotations

import hashlib
import json
import platform
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from truelike._version import __version__
from truelike.core import progress
from truelike.core.files import replacing_file
from truelike.data.dataset import Dataset
from truelike.data.splits import Split
from truelike.errors import DataError, ParameterError, ParameterWarning, StorageError, warn
from truelike.models.registry import model_class
from truelike.selection.plan import Models, Plan, chosen_models
from truelike.selection.references import identity, is_own, is_plain, plain
from truelike.selection.variants import Parameters, Variant

FORMAT = 1
MANIFEST = "manifest.json"
PARTS = ("train", "validation", "test")
SETTINGS = ("metric", "by", "seen", "n_trials", "seeds", "seed")
PACKAGES = ("numpy", "scipy", "numba", "polars")
OWN = "own"  # the key of what stands for code of the user's own


@dataclass(frozen=True, eq=False, repr=False)
class Manifest:
    """What reproduces the table of a comparison: `tl.compare(data, manifest=...)` takes all settings from it.

    Attributes
    ----------
    content
        The versions, the SHA-256 of each part of each dataset and how it was split, the arguments of `tl.compare`,
        and the models with their parameters. A class or a function of one's own is named, with a hash of its
        definition.

    Examples
    --------
    >>> import truelike as tl
    >>> from truelike.selection.plan import Plan, chosen_models
    >>> split = tl.splits.by_user(tl.synthetic.World(n_users=60, n_items=40).dataset(), seed=0)
    >>> manifest = Manifest.of(Plan(chosen_models("ItemPop")), {"shop": split})
    >>> manifest.content["models"], list(manifest.content["datasets"]["shop"])
    ({'ItemPop': {'class': 'ItemPop', 'parameters': {}}}, ['train', 'validation', 'test', 'by'])
    """

    content: dict[str, Any]

    @classmethod
    def of(cls, plan: Plan, splits: Mapping[str, Split]) -> Manifest:
        """The manifest of a plan on some datasets."""
        return cls(
            {
                "format": FORMAT,
                "versions": versions(plan),
                "datasets": {name: {**digests(split), **_by(split)} for name, split in splits.items()},
                **{name: getattr(plan, name) for name in SETTINGS},
                "fixed": {name: _described(value) for name, value in plan.fixed.items()},
                "models": {model.name: _description(model) for model in plan.models},
            }
        )

    @classmethod
    def read(cls, path: str | Path) -> Manifest:
        """Read the file that `write` wrote."""
        try:
            content = json.loads(Path(path).read_text(encoding="utf-8"))
        except OSError as error:
            raise StorageError(f"cannot read the manifest {str(path)!r}: {error.strerror}") from error
        except (ValueError, RecursionError) as error:
            raise StorageError(f"{str(path)!r} is not a manifest: {error}") from error
        if not isinstance(content, dict) or content.get("format") != FORMAT:
            raise StorageError(
                f"{str(path)!r} is not a manifest of format {FORMAT}; expected the {MANIFEST} that tl.compare wrote"
            )
        if wrong := list(_unusable(content)):
            raise StorageError(
                f"{', '.join(wrong)} of the manifest {str(path)!r} cannot be used; give the file as tl.compare wrote it"
            )
        return cls(content)

    def __repr__(self) -> str:
        return f"Manifest({', '.join(self.content['datasets'])}: {', '.join(self.content['models'])})"

    @property
    def text(self) -> str:
        """The file."""
        return json.dumps(self.content, indent=2, ensure_ascii=False) + "\n"

    def write(self, path: str | Path) -> Path:
        """Write the manifest to a file."""
        with replacing_file(Path(path)) as fresh:
            fresh.write_text(self.text, encoding="utf-8")
        return Path(path)

    def plan(self, models: Models | None = None, fixed: Parameters | None = None) -> Plan:
        """The plan; models and fixed parameters with code of one's own are passed again."""
        again = {} if models is None else {model.name: model for model in chosen_models(models)}
        known, fixed = self.content["models"], fixed or {}
        unknown = [name for name in again if name not in known]
        unknown += [name for name in fixed if name not in self.content["fixed"]]
        if unknown:
            raise ParameterError(
                f"{', '.join(unknown)} is not in the manifest, which has the models {', '.join(known)}. It has all "
                "settings: pass only what has a class or a function of your own, under the name that it has there"
            )
        found = [_model(name, about, again.get(name)) for name, about in known.items()]
        values = {
            name: _value(f"the parameter {name}", about, fixed.get(name), name in fixed)
            for name, about in self.content["fixed"].items()
        }
        return Plan(found, fixed=values, **{name: self.content[name] for name in SETTINGS})

    def check(self, plan: Plan, splits: Mapping[str, Split]) -> None:
        """Raise an error for data that is not that of the manifest, and say which versions differ."""
        known: dict[str, dict[str, str]] = self.content["datasets"]
        if len(known) == len(splits) == 1:
            known = dict(zip(splits, known.values(), strict=True))  # one dataset needs no name
        if set(known) != set(splits):
            given = ", ".join(filter(None, splits)) or "one without a name"
            raise DataError(
                f"the manifest is of the datasets {', '.join(known)}; {given} given. Give the same, under "
                "the same names"
            )
        differing = list(self._differing(versions(plan)))
        for name, split in splits.items():
            for part, digest in digests(split).items():
                if digest != known[name].get(part):
                    raise DataError(
                        f"the {part} part of {name or 'the dataset'} is not that of the manifest: its SHA-256 is "
                        f"{digest[:12]}..., expected {str(known[name].get(part))[:12]}.... Read the same file with the "
                        "same options, or give the same split"
                        + (f". Versions differ, too: {'; '.join(differing)}" if differing else "")
                    )
        if differing:
            progress.note(f"other versions than in the manifest: {'; '.join(differing)}. Figures may differ")

    def _differing(self, own: Mapping[str, str]) -> Iterator[str]:
        then = self.content["versions"]
        for name in sorted({*own, *then}):
            if own.get(name) != then.get(name):
                yield f"{name} {own.get(name, 'absent')}, then {then.get(name, 'absent')}"


def _unusable(content: Mapping[str, Any]) -> Iterator[str]:
    """The names of what a manifest lacks, or has of another kind."""
    yield from (name for name in SETTINGS if name not in content)
    for name, keys in (("versions", ()), ("fixed", ()), ("datasets", PARTS), ("models", ("class", "parameters"))):
        table = content.get(name)
        entries = list(table.values()) if isinstance(table, dict) else None
        if entries is None or (
            keys and not (entries and all(isinstance(each, dict) and {*keys} <= {*each} for each in entries))
        ):
            yield name


def versions(plan: Plan) -> dict[str, str]:
    """The versions of what computes: the system, Python, truelike and the packages that its models use."""
    deep = any(".networks." in each.model_class.__module__ for each in plan.models)
    found = {
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "truelike": __version__,
    }
    for package in (*PACKAGES, *(("torch",) if deep else ())):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def digests(split: Split) -> dict[str, str]:
    """The SHA-256 of each part of a split: of its ids and of all that models learn from."""
    return {name: _digest(part) for name, part in zip(PARTS, split.parts, strict=True)}


def _by(split: Split) -> dict[str, str]:
    """How held-out interactions were chosen, "time" or "random", where the split has it."""
    by = split.info.get("by")
    return {"by": by} if isinstance(by, str) else {}


def _digest(data: Dataset) -> str:
    digest = hashlib.sha256()
    for ids in (data.users, data.items):
        digest.update(json.dumps([ids.kind, ids.values.to_list()]).encode())
    data.with_parts(item_features=None, user_features=None).digest_into(digest)
    for table in (data.item_features, data.user_features):
        if table is not None:  # as text: the bytes of a frame differ by the version of polars
            digest.update(table.frame.write_ndjson().encode() + table.known.tobytes())
    return digest.hexdigest()


def _described(value: Any) -> Any:
    """A value as JSON holds it; what is code is named."""
    return plain(value) if is_plain(value) else {OWN: identity(value)}


def _description(model: Variant) -> dict[str, Any]:
    kind = model.model_class
    return {
        "class": {OWN: identity(kind)} if is_own(kind) else kind.__name__,
        "parameters": {name: _described(value) for name, value in model.parameters.items()},
    }


def _is_code(about: Any) -> bool:
    return isinstance(about, dict) and OWN in about


def _model(name: str, about: dict[str, Any], again: Variant | None) -> Variant:
    """A model of the manifest; one with code of the user's own is the one that was passed again."""
    code = [each for each in (about["class"], *about["parameters"].values()) if _is_code(each)]
    if again is not None:
        _check_same(name, _description(again), about)
        return again
    if code:
        raise ParameterError(
            f"{name} of the manifest has code of your own, {_without_digests(code[0][OWN])}, which no manifest holds. "
            f"Pass it again: models={{{name!r}: ...}}"
        )
    return Variant(name, model_class(about["class"]), dict(about["parameters"]))


def _value(name: str, about: Any, again: Any, is_given: bool) -> Any:
    if is_given:
        _check_same(name, _described(again), about)
        return again
    if _is_code(about):
        raise ParameterError(
            f"{name} of the manifest is {_without_digests(about[OWN])}, code of your own, which no manifest holds. "
            "Pass it again"
        )
    return about


def _check_same(name: str, now: Any, then: Any) -> None:
    if _without_digests(now) != _without_digests(then):
        raise ParameterError(
            f"{name} is {_without_digests(now)}, and {_without_digests(then)} in the manifest. Pass the same, or leave "
            "out what has no code of your own"
        )
    if now != then:
        warn(
            f"{name} has code of your own that is defined otherwise than when the manifest was written, or by another "
            "version of Python. Figures may differ: to reproduce the table, pass the code that it was made with",
            ParameterWarning,
        )


def _without_digests(about: Any) -> str:
    return re.sub(r"#[0-9a-f]{12}\b", "", json.dumps(about, ensure_ascii=False))
