"""Where tasks run: on the loop, in threads, in processes. Each executor turns a `Run` into a `Settlement`.

`loop`            async functions, on the worker's event loop
`thread`          plain functions, in daemon threads
`process`         tasks that can be killed or limited, in processes that are reused
`child_process`   one such process, seen from the worker
`child`           the same process from inside
`child_protocol`  the messages between the two
`app_path`        where the process imports the app from

Only `dibs.worker` imports this package.
"""
