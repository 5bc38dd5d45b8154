"""Glossaries: of a request, of the server's files, and of clients, in a database."""
