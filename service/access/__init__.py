"""Access control: API keys, tokens of an issuer, quotas and their usage.

This package owns the file of keys and the database of usage. It knows neither gRPC nor HTTP:
`service.calls` finds the credential of a call and passes it on.
"""
