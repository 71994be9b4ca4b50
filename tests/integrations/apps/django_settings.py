"""Settings of the Django project whose tasks run here. The database is the one that the test may restart."""

from __future__ import annotations

import os
from urllib.parse import urlsplit

server = urlsplit(os.environ["DJANGO_DATABASE"])
persistent = os.environ["DJANGO_PERSISTENT"] == "yes"

DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.postgresql",
        "HOST": server.hostname,
        "PORT": server.port,
        "USER": server.username or "postgres",
        "NAME": server.path.lstrip("/"),
        "CONN_MAX_AGE": None if persistent else 0,
        "CONN_HEALTH_CHECKS": persistent,
    }
}
INSTALLED_APPS = ["django.contrib.contenttypes"]
USE_TZ = True
