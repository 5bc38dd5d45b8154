"""Glossaries: in requests, in the server's files, and of clients, in a database."""
