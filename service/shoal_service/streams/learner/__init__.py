"""One process learns a stream."""
