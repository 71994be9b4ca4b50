-- When the next waiting task expires. Takes nothing. Returns an instant or NULL. One seek in dibs_expiries.
SELECT min(expires_at) FROM dibs_tasks WHERE expires_at IS NOT NULL AND state <> 'running';
