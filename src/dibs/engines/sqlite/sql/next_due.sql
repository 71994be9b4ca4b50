-- When the next waiting task falls due. Takes nothing. Returns an instant or NULL. One seek in dibs_due.
SELECT min(due_at) FROM dibs_tasks WHERE due_at IS NOT NULL;
