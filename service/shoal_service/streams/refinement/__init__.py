"""Refinements: asked for or due, worked out by a child process, adopted through the log."""
