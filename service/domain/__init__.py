"""The data types that the engine's packages share: requests, results, and plans of a step."""
