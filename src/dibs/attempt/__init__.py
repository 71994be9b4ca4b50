"""One run of one task."""
