"""Asks the manual's questions about tables, and holds the columns of the answers against those it shows.

    chapter.py CHAPTER DIRECTORY    (the directory has run-tables/)
"""

import os
import re
import sys

import duckdb

with open(sys.argv[1], encoding="utf-8") as file:
    found = re.findall(r"```sql\n(.*?)```\n\n```text\n(.*?)\n(.*?)```", file.read(), re.S)
assert len(found) == 3, found
os.chdir(sys.argv[2])
for query, head, rows in found:
    answer = duckdb.sql(query)
    assert answer.columns == head.split(), (answer.columns, head)
    answers = answer.fetchall()
    assert 0 < len(answers) <= len(rows.splitlines()), (answers, rows)
    # Names do not change with the run.
    if "calls" in query:
        known = {line.split()[0] for line in rows.splitlines()}
        assert known & {row[0] for row in answers}, (answers, rows)
