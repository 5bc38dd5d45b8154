"""The HTTP server: routes, allowed hosts, the page and the OpenAPI document."""
