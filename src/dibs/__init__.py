"""Dibs, a priority task queue for Python: first dibs to the most urgent task."""
