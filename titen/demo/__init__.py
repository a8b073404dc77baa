"""The demo: four agents that do small, real work on this checkout, and the tasks they find.

Read `agents/linter` first: a whole agent on one page. Then `agents/archivist` (dies and goes on),
`agents/scribe` (asks a question) and `agents/janitor` (acts only after an approval). The work itself
is in the modules beside this one and knows nothing of Titen; `backlog` is the tasks as data.
"""
