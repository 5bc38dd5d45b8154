"""Who may call what, and how much: API keys, tokens of an issuer, quotas and what was used of them.

Owns the file of keys and the database of usage. Knows neither gRPC nor HTTP: `service.calls` finds
the credential of a call and asks here.
"""
