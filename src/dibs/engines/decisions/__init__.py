"""What engines decide alike: no I/O, no SQL, no clock.

An engine reads, decides with this package, and writes. `facts` defines how a task is stored, `records` what has changed
and what follows, `counting` what that adds to counters, `blocks` what it adds to the index that searches use, `steps`
what is left for later, `transaction` what decisions need of an engine's transaction, `partition` the stored form of a
partition, `encoding` JSON. `choosing` says which tasks a claim gives, within the `headroom` under limits, `events` what
subscribers are told of a change, and `audits` what the audit log has of it. `admin`, `dependencies`, `enqueueing`,
`schedules`, `searching`, `settling`, `workers` and `workflows` serve the verbs of these names. Verbs, stores and the
simulator import this package; it imports `dibs.core` and `dibs.engines.values`.

What is shared can't differ between engines, so comparing them would not find it wrong. The oracle that all of them are
compared with under random programs (`dibs.testing.model`) decides for itself, and imports nothing from here.
"""
