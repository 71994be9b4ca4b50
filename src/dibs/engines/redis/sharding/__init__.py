"""`?shard=queue`: each queue is a store of its own, which a cluster may keep on any of its servers.

`engine` has the verbs. `shards` opens the parts, knows the names of queues and has the one listener; `parts` asks some
of them at the same time; `claims` claims from several; `merging` puts answers together.
"""
