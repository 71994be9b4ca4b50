"""What other task queues call things, and what that is here: for the errors about names that Dibs does not know."""

from __future__ import annotations

__all__ = ["OF_HANDLES", "OF_OPTIONS", "OF_TASKS"]

NOW, LATER, VALUE = "write {0}.enqueue(…)", "write {0}.using(delay=seconds).enqueue(…)", "write {0}.call(…)"
WITH_OPTIONS = "write {0}.using(delay=…, priority=…).enqueue(…): options go into using(), arguments into enqueue()"
EACH = "write app.enqueue_many({0}.call(each) for each in …)"
OF_TASKS = {
    **dict.fromkeys(("delay", "send", "push", "kiq", "kicker", "defer", "submit", "enqueue_async"), NOW),
    **dict.fromkeys(("apply_async", "send_with_options", "enqueue_call"), WITH_OPTIONS),
    **dict.fromkeys(("s", "si", "signature", "subtask", "message", "message_with_options"), VALUE),
    **dict.fromkeys(
        ("enqueue_in", "enqueue_at", "schedule"), f"{LATER} or using(at=…); to repeat it, @app.schedule(…)"
    ),
    **dict.fromkeys(("map", "starmap", "chunks", "bulk"), EACH),
    **dict.fromkeys(("adelay", "asend", "aapply_async"), "write await {0}.aenqueue(…)"),
    **dict.fromkeys(("apply", "fn", "run", "call_local"), "write {0}(…), which runs the function here and now"),
    "retry": "raise dibs.Retry(after=seconds) in the function",
    "result": "{0}.enqueue(…) gives a handle: handle.result()",
    "AsyncResult": "write app.handle(id)",
}
"""Attributes of tasks; `{0}` stands for the task's name."""

STATE = "write handle.refresh().state"
OF_HANDLES = {
    "get": "write handle.result(timeout=…)",
    **dict.fromkeys(("status", "state", "ready", "successful", "failed"), STATE),
    **dict.fromkeys(("revoke", "revoked", "abort"), "write handle.cancel(), and then handle.refresh().state"),
}
"""Attributes of handles."""

ACKNOWLEDGED = "leave it out: a task is always acknowledged when it has ended"
OF_OPTIONS = {
    "time_limit": "write timeout=seconds",
    "soft_time_limit": "write timeout=seconds, and look at ctx.time_left in the function",
    "rate_limit": "write app.queue(name, rate=…), or per_task={…: {'rate': …}} for one task; both are per second",
    "base": "write a middleware (@app.middleware), and @app.lifespan for what tasks share",
    "bind": "annotate the first parameter, ctx: Context",
    **dict.fromkeys(("acks_late", "reject_on_worker_lost"), ACKNOWLEDGED),
    "autoretry_for": "write retry_on=(…)",
    "max_retries": "write retries=number",
    "default_retry_delay": "write retry_base=seconds, or backoff=[seconds] for a wait that does not grow",
    "ignore_result": "write keep_result=False",
    "countdown": "write delay=seconds",
    "eta": "write at=time",
    "task_id": "write id=",
}
"""Options of tasks and calls."""
