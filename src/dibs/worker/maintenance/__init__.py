"""What workers and servers do for the store as a whole. Each of them rescues; one at a time leads and does the rest.

`rescuer`       takes back the tasks of workers that are gone
`leader`        leadership, and the chores of the one that leads
`scheduler`     declares schedules, and fires them while it leads
`blob_sweeper`  deletes blobs that no task needs

Only `dibs.worker.session`, `dibs.worker.shutdown` and `dibs.worker.caretaker` import this package.
"""
