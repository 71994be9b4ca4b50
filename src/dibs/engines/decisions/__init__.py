"""What engines decide alike: no I/O, no SQL, no clock.

An engine reads, has this decide, and writes. `facts` says what of a task is kept how, `records` what has changed and
what follows, `errands` what is left for later; `transaction` is what all else needs to know of an engine's own. The
others have the name of the module in an engine's folder that they serve. Engines import this room; it imports
`dibs.core` and `dibs.engines.values`.

What is shared can't differ between engines, so comparing them would not find it wrong. The oracle that all of them are
compared with under random programs (`dibs.testing.model`) decides for itself, and imports nothing from here.
"""
