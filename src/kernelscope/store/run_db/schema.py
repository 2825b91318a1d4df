"""The tables of run.db. docs/runs.md describes them; a change here is a new SCHEMA_VERSION there."""

from __future__ import annotations

APPLICATION_ID = 0x4B534350  # "KSCP", in the header of every run.db
SCHEMA_VERSION = 6

TABLES = {
    "info": "CREATE TABLE info (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
    "kernels": """CREATE TABLE kernels (
  id INTEGER PRIMARY KEY, name TEXT NOT NULL, kind TEXT NOT NULL, producer TEXT NOT NULL,
  source TEXT NOT NULL, source_hash TEXT NOT NULL)""",
    "graphs": """CREATE TABLE graphs (
  id INTEGER PRIMARY KEY, direction TEXT NOT NULL, name TEXT NOT NULL, compile_id TEXT NOT NULL,
  cache_key TEXT NOT NULL, source TEXT NOT NULL, path TEXT NOT NULL)""",
    "sites": """CREATE TABLE sites (
  id INTEGER PRIMARY KEY, kernel INTEGER NOT NULL, file TEXT NOT NULL, line INTEGER NOT NULL, grid TEXT,
  config TEXT NOT NULL, origin TEXT NOT NULL, device TEXT NOT NULL, collective TEXT NOT NULL,
  dead TEXT NOT NULL, bytes INTEGER)""",
    "arguments": """CREATE TABLE arguments (
  site INTEGER NOT NULL, position INTEGER NOT NULL, name TEXT NOT NULL, role TEXT NOT NULL,
  dtype TEXT, shape TEXT, stride TEXT, device TEXT, type TEXT, unread TEXT,
  wrapper_name TEXT NOT NULL, value TEXT, varies INTEGER NOT NULL, returned INTEGER NOT NULL,
  PRIMARY KEY (site, position)) WITHOUT ROWID""",
    "graph_calls": """CREATE TABLE graph_calls (
  id INTEGER PRIMARY KEY, graph INTEGER NOT NULL, thread INTEGER NOT NULL, stream INTEGER NOT NULL,
  phase TEXT NOT NULL, step INTEGER NOT NULL, parent INTEGER)""",
    # Narrow: what a noted call does not say itself, its graph call says. NULL means "as there".
    "calls": """CREATE TABLE calls (
  id INTEGER PRIMARY KEY, site INTEGER NOT NULL, graph_call INTEGER NOT NULL, start_ns INTEGER NOT NULL,
  duration_ns INTEGER, step INTEGER, phase TEXT, thread INTEGER, stream INTEGER, replay INTEGER,
  parent INTEGER, layout INTEGER)""",
    "details": """CREATE TABLE details (
  call INTEGER PRIMARY KEY, scalars TEXT NOT NULL, storages TEXT NOT NULL, epochs TEXT NOT NULL,
  offsets TEXT NOT NULL, dead TEXT NOT NULL, pre TEXT, post TEXT, depth INTEGER NOT NULL, poison TEXT)""",
    # In place of details where fingerprints were planned, and of calls that a CUDA graph replayed: slots are
    # counted from the first of the graph call, or of the replay.
    "layouts": """CREATE TABLE layouts (
  id INTEGER PRIMARY KEY, storages TEXT NOT NULL, epochs TEXT NOT NULL, offsets TEXT NOT NULL,
  pre TEXT, post TEXT, scalars TEXT NOT NULL, dead TEXT NOT NULL, poison TEXT)""",
    "first_slots": "CREATE TABLE first_slots (graph_call INTEGER PRIMARY KEY, slot INTEGER NOT NULL)",
    # By its first call; its others are those up to the first of the next that have a replay.
    "replays": "CREATE TABLE replays (call INTEGER PRIMARY KEY, slot INTEGER)",
    "errors": "CREATE TABLE errors (call INTEGER PRIMARY KEY, message TEXT NOT NULL)",
    "fingerprints": """CREATE TABLE fingerprints (
  slot INTEGER PRIMARY KEY, bits INTEGER, other TEXT, stats TEXT)""",
    "tensors": """CREATE TABLE tensors (
  call INTEGER NOT NULL, position INTEGER NOT NULL, moment TEXT NOT NULL, file TEXT NOT NULL,
  PRIMARY KEY (call, position, moment)) WITHOUT ROWID""",
    "marks": """CREATE TABLE marks (
  id INTEGER PRIMARY KEY, call INTEGER NOT NULL, kind TEXT NOT NULL, text TEXT NOT NULL)""",
    "findings": """CREATE TABLE findings (
  id INTEGER PRIMARY KEY, kind TEXT NOT NULL, message TEXT NOT NULL, call INTEGER NOT NULL,
  kernel TEXT NOT NULL, arg TEXT NOT NULL)""",
    "compilations": """CREATE TABLE compilations (
  id INTEGER PRIMARY KEY, compile_id TEXT NOT NULL, direction TEXT NOT NULL, frame INTEGER NOT NULL,
  name TEXT NOT NULL, cache_key TEXT NOT NULL, made TEXT NOT NULL, start_ns INTEGER NOT NULL,
  duration_ns INTEGER NOT NULL, origin TEXT NOT NULL)""",
    "stages": """CREATE TABLE stages (
  id INTEGER PRIMARY KEY, compilation INTEGER NOT NULL, name TEXT NOT NULL, language TEXT NOT NULL,
  text TEXT NOT NULL, start_ns INTEGER NOT NULL, duration_ns INTEGER NOT NULL)""",
    "provenance": """CREATE TABLE provenance (
  id INTEGER PRIMARY KEY, compilation INTEGER NOT NULL, kernel TEXT NOT NULL, handle INTEGER NOT NULL,
  buffers TEXT NOT NULL, nodes TEXT NOT NULL)""",
    "refusals": """CREATE TABLE refusals (
  id INTEGER PRIMARY KEY, compilation INTEGER NOT NULL, first TEXT NOT NULL, second TEXT NOT NULL,
  reason TEXT NOT NULL, times INTEGER NOT NULL)""",
    "candidates": """CREATE TABLE candidates (
  id INTEGER PRIMARY KEY, compilation INTEGER NOT NULL, kernel TEXT NOT NULL, config TEXT NOT NULL,
  nanoseconds INTEGER NOT NULL, chosen INTEGER NOT NULL)""",
    "incidents": """CREATE TABLE incidents (
  id INTEGER PRIMARY KEY, kind TEXT NOT NULL, compilation INTEGER NOT NULL, compile_id TEXT NOT NULL,
  reason TEXT NOT NULL, origin TEXT NOT NULL, detail TEXT NOT NULL, source TEXT NOT NULL,
  stage TEXT NOT NULL)""",
}

VIEWS = {
    "call": """CREATE VIEW call AS SELECT
  c.id AS id, k.name AS kernel, k.kind AS kind, k.producer AS producer, s.grid AS grid, s.device AS device,
  g.graph AS graph, c.graph_call AS graph_call, coalesce(c.step, g.step, 0) AS step,
  coalesce(c.phase, g.phase, 'other') AS phase, coalesce(c.thread, g.thread, 0) AS thread,
  coalesce(c.stream, g.stream, 0) AS stream, c.replay AS replay,
  coalesce(c.parent, g.parent) AS parent, c.start_ns AS start_ns,
  c.duration_ns AS duration_ns, json_extract(s.origin, '$[0][0]') AS file,
  json_extract(s.origin, '$[0][1]') AS line, c.site AS site, k.id AS kernel_id
FROM calls c JOIN sites s ON s.id = c.site JOIN kernels k ON k.id = s.kernel
LEFT JOIN graph_calls g ON g.id = c.graph_call""",
    "hash": """CREATE VIEW hash AS SELECT * FROM (SELECT
  c.id AS call, a.position AS position, a.name AS name,
  (SELECT printf('%016x', bits) FROM fingerprints
   WHERE slot = coalesce(json_extract(d.pre, '$."' || a.position || '"'),
   c.first + json_extract(l.pre, '$."' || a.position || '"')) AND bits IS NOT NULL) AS before,
  (SELECT printf('%016x', bits) FROM fingerprints
   WHERE slot = coalesce(json_extract(d.post, '$."' || a.position || '"'),
   c.first + json_extract(l.post, '$."' || a.position || '"')) AND bits IS NOT NULL
   AND (d.call IS NOT NULL OR NOT EXISTS (SELECT 1 FROM errors e WHERE e.call = c.id))) AS after
FROM (SELECT id, site, layout, CASE
  WHEN layout IS NULL THEN NULL
  WHEN replay IS NULL THEN (SELECT f.slot FROM first_slots f WHERE f.graph_call = calls.graph_call)
  ELSE (SELECT r.slot FROM replays r WHERE r.call <= calls.id ORDER BY r.call DESC LIMIT 1) END AS first
  FROM calls) c JOIN arguments a ON a.site = c.site LEFT JOIN details d ON d.call = c.id
LEFT JOIN layouts l ON l.id = c.layout)
WHERE before IS NOT NULL OR after IS NOT NULL""",
}

# What older versions had in place of that. A run of theirs still reads.
_UP_TO_5 = {
    "layouts": """CREATE TABLE layouts (
  id INTEGER PRIMARY KEY, storages TEXT NOT NULL, epochs TEXT NOT NULL, offsets TEXT NOT NULL,
  pre TEXT NOT NULL, post TEXT NOT NULL)""",
    "hash": """CREATE VIEW hash AS SELECT * FROM (SELECT
  c.id AS call, a.position AS position, a.name AS name,
  (SELECT printf('%016x', bits) FROM fingerprints
   WHERE slot = coalesce(json_extract(d.pre, '$."' || a.position || '"'),
   f.slot + json_extract(l.pre, '$."' || a.position || '"')) AND bits IS NOT NULL) AS before,
  (SELECT printf('%016x', bits) FROM fingerprints
   WHERE slot = coalesce(json_extract(d.post, '$."' || a.position || '"'),
   f.slot + json_extract(l.post, '$."' || a.position || '"')) AND bits IS NOT NULL
   AND (d.call IS NOT NULL OR NOT EXISTS (SELECT 1 FROM errors e WHERE e.call = c.id))) AS after
FROM calls c JOIN arguments a ON a.site = c.site LEFT JOIN details d ON d.call = c.id
LEFT JOIN layouts l ON l.id = c.layout LEFT JOIN first_slots f ON f.graph_call = c.graph_call)
WHERE before IS NOT NULL OR after IS NOT NULL""",
}
_UP_TO_4 = {
    "calls": TABLES["calls"].replace(", layout INTEGER)", ")"),
    "hash": """CREATE VIEW hash AS SELECT * FROM (SELECT
  d.call AS call, a.position AS position, a.name AS name,
  (SELECT printf('%016x', bits) FROM fingerprints
   WHERE slot = json_extract(d.pre, '$."' || a.position || '"') AND bits IS NOT NULL) AS before,
  (SELECT printf('%016x', bits) FROM fingerprints
   WHERE slot = json_extract(d.post, '$."' || a.position || '"') AND bits IS NOT NULL) AS after
FROM details d JOIN calls c ON c.id = d.call JOIN arguments a ON a.site = c.site)
WHERE before IS NOT NULL OR after IS NOT NULL""",
}
_UP_TO_3 = {
    **_UP_TO_4,
    "graph_calls": TABLES["graph_calls"].replace(", parent INTEGER)", ")"),
    "call": VIEWS["call"].replace(",\n  coalesce(c.parent, g.parent) AS parent,", ", c.parent AS parent,"),
}
_OLDER = {
    1: {"details": TABLES["details"].replace(", poison TEXT)", ")"), **_UP_TO_3},
    2: _UP_TO_3,
    3: _UP_TO_3,
    4: _UP_TO_4,
    5: _UP_TO_5,
}
_SINCE = {
    **dict.fromkeys(("compilations", "stages", "provenance", "refusals", "candidates", "incidents"), 3),
    **dict.fromkeys(("layouts", "first_slots"), 5),
    "replays": 6,
}  # tables that came later; in a run that is older they read as empty

OBJECTS = {
    version: {
        name: sql
        for name, sql in {**TABLES, **VIEWS, **_OLDER.get(version, {})}.items()
        if version >= _SINCE.get(name, 1)
    }
    for version in range(1, SCHEMA_VERSION + 1)
}

_TYPES = {"INTEGER": int, "TEXT": str}


def _columns(sql: str) -> tuple[tuple[type, ...], ...]:
    """What each column of a table may hold."""
    inside = sql[sql.index("(") + 1 : sql.rindex(")")].split("PRIMARY KEY (")[0]
    words = [part.split() for part in inside.split(",") if part.strip()]
    return tuple(
        (_TYPES[kind],) if rest else (_TYPES[kind], type(None)) for _, kind, *rest in words if kind in _TYPES
    )


_MANY_LINES = frozenset((
    ("arguments", "wrapper_name"), ("errors", "message"), ("findings", "message"), ("graphs", "source"),
    ("incidents", "detail"), ("incidents", "source"), ("info", "value"), ("kernels", "source"),
    ("stages", "text"),
))  # fmt: skip


def _lines(table: str, sql: str) -> frozenset[int]:
    """The columns whose texts are one line: names, kinds, files."""
    inside = sql[sql.index("(") + 1 : sql.rindex(")")].split("PRIMARY KEY (")[0]
    words = [part.split() for part in inside.split(",") if part.strip()]
    columns = [(name, kind) for name, kind, *_ in words if kind in _TYPES]
    return frozenset(
        at for at, (name, kind) in enumerate(columns) if kind == "TEXT" and (table, name) not in _MANY_LINES
    )


LINES = {
    name: _lines(name, sql) for name, sql in TABLES.items()
}  # older tables have fewer columns at the end
COLUMNS = {
    version: {name: _columns(sql) for name, sql in objects.items() if name in TABLES}
    for version, objects in OBJECTS.items()
}
