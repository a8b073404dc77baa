"""The demo: four agents that do small, real work on this checkout, and the tasks they find.

Read `agents/linter` first: a whole agent on one page. Then `agents/archivist` (dies and goes on; uploads to
a mirror that hangs up), `agents/scribe` (asks a question; publishes what policy allows) and `agents/janitor`
(deploys and deletes: exactly what a human has approved). The work itself is in the modules beside this one and
knows nothing of Titen; `backlog` is the tasks as data, `policy` what may be done without a question.
"""
