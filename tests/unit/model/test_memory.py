"""What keeps training from growing: few prepared products, and free memory given back."""

from __future__ import annotations

import os

import pytest

from model.memory import limit_kernel_caches, release_free_memory


def test_caches_are_limited_unless_the_environment_says_otherwise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("LRU_CACHE_CAPACITY", "7")
    monkeypatch.setenv("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "")  # set back afterwards
    monkeypatch.delenv("ONEDNN_PRIMITIVE_CACHE_CAPACITY")
    limit_kernel_caches()
    assert os.environ["LRU_CACHE_CAPACITY"] == "7"
    assert os.environ["ONEDNN_PRIMITIVE_CACHE_CAPACITY"] == "64"


def test_free_memory_can_be_released_at_any_time() -> None:
    release_free_memory()
