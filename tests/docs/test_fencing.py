"""What the guide to fencing shows refuses the late writer, and nobody else."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from typing import Any

import pytest

from docs.made.markdown import DOCS
from tests.docs.blocks import blocks

BLOCKS = blocks(DOCS / "how-to/fencing.md")
UPDATE, COLUMN, INSERT, TABLE, MANY = [block.text for block in BLOCKS if block.language == "sql"]
PUT = next(block.text for block in BLOCKS if "def put(s3" in block.text)


@pytest.fixture
def database() -> Iterator[sqlite3.Connection]:
    database = sqlite3.connect(":memory:")
    database.execute("CREATE TABLE invoice (id INTEGER PRIMARY KEY, state TEXT)")
    database.execute("INSERT INTO invoice VALUES (41, 'open')")
    database.execute(COLUMN)
    database.executescript(TABLE)
    yield database
    database.close()


class TestSql:
    def test_an_update_with_a_late_fence_changes_no_row(self, database: sqlite3.Connection) -> None:
        database.execute("INSERT INTO invoice VALUES (42, 'open', 7)")
        assert database.execute(UPDATE, {"fence": 6}).rowcount == 0
        assert database.execute(UPDATE, {"fence": 7}).rowcount == 1
        assert database.execute(UPDATE, {"fence": 9}).rowcount == 1
        assert database.execute(UPDATE, {"fence": 8}).rowcount == 0

    def test_a_row_that_is_not_there_is_made_and_a_late_one_leaves_it(
        self, database: sqlite3.Connection
    ) -> None:
        assert database.execute(INSERT, {"fence": 7}).rowcount == 1
        assert database.execute(INSERT, {"fence": 6}).rowcount == 0
        assert database.execute("SELECT fence FROM invoice WHERE id = 42").fetchall() == [(7,)]
        assert database.execute(INSERT, {"fence": 8}).rowcount == 1

    def test_a_row_that_was_there_before_fences_can_be_written(self, database: sqlite3.Connection) -> None:
        assert database.execute(UPDATE.replace("42", "41"), {"fence": 1}).rowcount == 1

    def test_one_fence_for_many_rows(self, database: sqlite3.Connection) -> None:
        [update] = [line for line in MANY.split(";") if "UPDATE" in line]
        assert database.execute(update, {"fence": 7}).rowcount == 1
        assert database.execute(update, {"fence": 6}).rowcount == 0
        assert database.execute(update, {"fence": 8}).rowcount == 1


class ClientError(Exception):
    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.response = {"Error": {"Code": code}}


SCOPE: dict[str, Any] = {}
exec(PUT, SCOPE)
TooLate = SCOPE["TooLate"]


class Bucket:
    """One object with conditional writes, as S3 has them. `meanwhile`: what another does before a write."""

    class exceptions:
        ClientError = ClientError

    def __init__(self) -> None:
        self.etag = 0
        self.fence: str | None = None
        self.meanwhile: list[int] = []

    def head_object(self, **_: Any) -> dict[str, Any]:
        if self.fence is None:
            raise ClientError("404")
        return {"Metadata": {"fence": self.fence}, "ETag": str(self.etag)}

    def put_object(
        self, Metadata: dict[str, str], IfMatch: str = "", IfNoneMatch: str = "", **_: Any
    ) -> None:
        if self.meanwhile:
            self.etag, self.fence = self.etag + 1, str(self.meanwhile.pop())
        if IfMatch != str(self.etag) if IfMatch else self.fence is not None:
            raise ClientError("PreconditionFailed")
        self.etag, self.fence = self.etag + 1, Metadata["fence"]


class TestObjectStores:
    def put(self, bucket: Bucket, fence: int) -> None:
        SCOPE["put"](bucket, "reports", "today", b"", fence)

    def test_a_late_writer_is_refused(self) -> None:
        bucket = Bucket()
        for fence in (7, 7, 9):
            self.put(bucket, fence)
        with pytest.raises(TooLate):
            self.put(bucket, 8)
        assert bucket.fence == "9"

    @pytest.mark.parametrize("there", [False, True])
    def test_one_who_is_overtaken_between_look_and_write_looks_again(self, there: bool) -> None:
        bucket = Bucket()
        if there:
            self.put(bucket, 5)
        bucket.meanwhile = [9]
        with pytest.raises(TooLate):
            self.put(bucket, 8)
        bucket.meanwhile = [10]
        self.put(bucket, 11)
        assert bucket.fence == "11"
