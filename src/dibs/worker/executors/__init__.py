"""Where tasks run that don't run on the worker's loop. Each executor turns a `Run` into a `Settlement`.

`thread`          plain functions, in daemon threads
`process`         tasks that can be killed or limited, in processes that are reused
`child_process`   one such process, seen from the worker
`child`           the same process from inside
`child_protocol`  the messages between the two
`child_logs`      how the process logs: as its worker does
`app_path`        where the process imports the app from

Only `dibs.worker` imports this package.
"""
