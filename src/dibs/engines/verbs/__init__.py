"""Verbs that are written once for all stores: coroutines over a port (`dibs.engines.port`).

A verb loads what it needs, decides with `dibs.engines.decisions`, saves, and notes whom to notify. What one transaction
can't finish it leaves as steps. `engine` gives these verbs to the engines that inherit it.

- Tasks: `records` (those that one transaction works on), `enqueueing` (what has to be decided), `admin` (act),
  `claiming` (choosing and leasing), `candidates` (what a choice works on), `partitions` (which tasks are gated),
  `shares` (counts and turns that were left), `settling` (settle, record by record), `rescue`, `upkeep` (what a claim
  does first), `dependencies`, `workflows`.
- What goes on later: `steps` (how a transaction ends, and parts of background steps), `background` (those as they are
  stored), `act_on` (acting on all that match).
- Looking: `reading` (get, history, stats, standing), `figures` (counts, backlog), `peeking`, `searching`,
  `search_sources` (where a search finds tasks), `events`.
- All else: `queues`, `schedules`, `workers`, `audit`, `chores` (leadership, and what the leader repeats), `retention`,
  `reranking`.

Stores import this package; it imports none of them.
"""
