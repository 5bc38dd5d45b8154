"""Sets up the cache from the settings."""

from __future__ import annotations

from service.cache.memory_store import MemoryStore
from service.cache.response_cache import ResponseCache, SharedStore
from service.errors import StartupError
from service.observability.metrics import ServerMetrics
from service.settings import Settings


def response_cache(settings: Settings, metrics: ServerMetrics) -> ResponseCache | None:
    """The cache of a server; None if the settings ask for none.

    Raises:
        StartupError: the settings contradict each other, a library is missing, or the URL is bad.
    """
    if not settings.cache_memory:
        for name in ("cache_url", "cache_free"):
            if getattr(settings, name):
                raise StartupError(f"setting {name}: there is no cache without cache_memory")
        return None
    memory = MemoryStore(settings.cache_memory * 2**20)
    shared = _shared_store(settings, metrics) if settings.cache_url else None
    return ResponseCache(memory, metrics, shared)


def _shared_store(settings: Settings, metrics: ServerMetrics) -> SharedStore:
    try:  # an extra, imported only if it is needed
        from service.cache.redis_store import RedisStore
    except ModuleNotFoundError as exc:
        raise StartupError(
            "setting cache_url: redis is missing: pip install '.[cache]' in the folder of "
            "Dragoman's source"
        ) from exc
    labelled = metrics.response_cache_store_keys.labels

    def count(result: str, number: int) -> None:
        labelled(result).inc(number)

    try:
        return RedisStore(settings.cache_url, count, settings.cache_seconds)
    except ValueError:  # its message may hold the password
        raise StartupError(
            "setting cache_url: must be a URL such as redis://HOST:6379/0, rediss://HOST:6379/0 "
            "(TLS) or unix:///PATH"
        ) from None
