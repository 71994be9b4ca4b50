"""Every verb that is not hot, written once for all stores: coroutines over a port (`dibs.engines.port`).

A verb loads what it needs, decides with `dibs.engines.decisions`, saves, and notes whom to notify. What one transaction
can't finish it leaves as follow-ups.

    records       tasks that one transaction works on
    follow_ups    how a transaction ends, and what it leaves for later
    dependencies  tasks that wait for others
    workflows     workflows as a whole
    admin         act: what people do to tasks and workflows
    queues        their settings and states, and their deletion
    schedules     setting and firing them
    workers       heartbeats, states, and marking the dead
    chores        leadership, and what the leader repeats: retention, reranking
    reading       get, history, peek, counts, stats, audit, standing
    searching     search
    settling      settle, record by record
    rescue        rescue
    upkeep        what a claim does first

Stores import this folder; it imports none of them.
"""
