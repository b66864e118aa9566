"""Handlers: each parses, calls one verb, and renders."""
