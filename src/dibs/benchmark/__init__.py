"""The measurements of `dibs bench`, which the comparisons in the repository's `bench` folder use as well.

`app` has tasks that do nothing, `measures` turns an app into figures. May be imported by the command line, by tests and
by `bench`. Invariant: a figure says what it measured, on which store.
"""
