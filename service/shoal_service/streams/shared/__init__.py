"""Several processes share the streams of one store."""
