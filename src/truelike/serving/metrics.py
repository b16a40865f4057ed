"""What is measured of a server, in the form of Prometheus. The workers of a server are added up.

With several processes, prometheus_client keeps its numbers in files of the directory PROMETHEUS_MULTIPROC_DIR.
"""

from __future__ import annotations

import contextlib
import os
from functools import lru_cache

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client import values as prometheus_values
from prometheus_client.multiprocess import MultiProcessCollector

from truelike.serving.served_model import ServedModel

CONTENT_TYPE = CONTENT_TYPE_LATEST
TYPES = ("click", "purchase", "like", "view", "remove")  # of events; others are counted as "other"
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


def share_counts(directory: str, slot: int) -> None:
    """Keep the numbers of this process in the files of a slot, which another worker had before, or will have."""
    os.environ["PROMETHEUS_MULTIPROC_DIR"] = directory
    made = prometheus_values.MultiProcessValue(lambda: slot)  # type: ignore[no-untyped-call]
    prometheus_values.ValueClass = made


class Metrics:
    """The numbers of a process."""

    def __init__(self) -> None:
        registry = self.registry = CollectorRegistry()
        self._requests = Counter("truelike_requests", "Requests", ["route", "status", "model"], registry=registry)
        self._seconds = Histogram(
            "truelike_request_seconds", "Seconds of a request", ["route"], buckets=SECONDS, registry=registry
        )
        self._lists = Counter(
            "truelike_lists", "Lists for users, by where they come from", ["model", "source"], registry=registry
        )
        self._events = Counter(
            "truelike_events", "Events on disk, by the model of the user", ["model", "type"], registry=registry
        )
        self._recall = Gauge(
            "truelike_index_recall",
            "recall@20 of the approximate index, measured when the model was loaded",
            ["model"],
            multiprocess_mode="livemostrecent",
            registry=registry,
        )
        # labels are looked up once: a lookup takes longer than a count
        self._counted = lru_cache(maxsize=1_000)(self._requests.labels)
        self._timed = lru_cache(maxsize=100)(self._seconds.labels)
        self._listed = lru_cache(maxsize=1_000)(self._lists.labels)
        self._counted("other", "404", ""), self._timed("other")  # opens their files, which may be removed later

    def request(self, route: str, status: int, model: str, seconds: float) -> None:
        """Count a request."""
        self._counted(route, str(status), model).inc()
        self._timed(route).observe(seconds)

    def lists(self, model: str, source: str) -> None:
        """Count a list."""
        self._listed(model, source).inc()

    def event(self, model: str, kind: str) -> None:
        """Count an event."""
        self._events.labels(model, kind if kind in TYPES else "other").inc()

    def models(self, models: list[ServedModel]) -> None:
        """Set what was measured of the models that are served."""
        for served in models:
            if "recall_at_20" in served.ranking:
                with contextlib.suppress(OSError):  # somebody removed the files
                    self._recall.labels(served.name).set(served.ranking["recall_at_20"])

    def text(self) -> bytes:
        """All numbers as text; with several processes, of all of them."""
        registry = self.registry
        if "PROMETHEUS_MULTIPROC_DIR" in os.environ:
            registry = CollectorRegistry()
            MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
        return generate_latest(registry)
