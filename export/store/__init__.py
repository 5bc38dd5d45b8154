"""Models that others publish: found in a registry, downloaded, imported and kept by pair."""
