"""New models under load, and broken ones; `tests/hostile/serve_reloads.py` does the same more often."""

from __future__ import annotations

from pathlib import Path

import pytest
import serve_reloads

pytestmark = pytest.mark.slow


def test_no_request_fails_while_models_are_swapped_and_broken_ones_refused(tmp_path: Path) -> None:
    counts = serve_reloads.swap_under_load(tmp_path, swaps=4, n_broken=2, pause=0.01)
    assert counts["swaps"] == 4
    assert counts["refused"] == 2
    assert counts["requests"] > 100
