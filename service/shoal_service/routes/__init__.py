"""Handlers of HTTP requests. Each reads its request, calls one function of the streams, and writes the answer."""
