-- When the next schedule fires. Takes names to leave out. Returns an instant.
SELECT min(next_fire_at) FROM dibs.schedules WHERE NOT paused AND name <> ALL ($1::text[]);
