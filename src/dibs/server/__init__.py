"""The HTTP server: REST, events, remote workers and the HTTP engine's other half, on any store.

- Way in: `process` runs a server as `dibs serve` does (`http_protocol` is one connection), `server` puts its parts
  together and answers, `settings` says how; `gate` is what every request passes first (host, origin, limits), `router`
  finds its route, `http` turns requests into what handlers get and answers into HTTP.
- Who may do what: `tokens` (a file of hashes), `caller` (what a token may do), `guard` (an engine as one caller may use
  it), `visibility` (what it sees of answers), `checks` (values that came over the wire).
- What can be asked: `routes` (REST), `fields` (its words), `engine_calls` and `wake` (for the HTTP engine), `events`
  with `event_feed`, `event_messages` and `broadcast` (WebSocket and Server-Sent Events), `openapi` (the document).
- What all requests share: `request_figures` (how many, and how long), `readiness`, `depths` (positions of new tasks),
  `registrations` (workers in other languages), `poll_queue` (pollers that wait for the same work).

Only `cli` and users import it. Invariants:

- Every verb of the engine is asked through the guard of its caller.
- No request waits for longer than proxies do; nothing grows with the number of waiting clients but their sockets.
- A server keeps nothing that another one needs: what it remembers, the store knows as well.
"""

from dibs.server.server import Server
from dibs.server.settings import ServerSettings

__all__ = ["Server", "ServerSettings"]
