"""What makes Dibs fit into other libraries: `django`, `prometheus`, `opentelemetry`. Nothing else in Dibs imports this
package.

An integration is switched on by one call with the app, and uses only what any user could: middleware and settings.
"""
