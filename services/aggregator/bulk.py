"""Statements about many rows at a time.

Postgres gets one statement with all rows in one JSON text: one round trip and one plan, which is
made once whatever the number of rows. (An array a column costs four times as much to write down.)
SQLite, which is nearby, gets the rows one by one.
"""

import json
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Generic, TypeVarTuple

from sqlalchemy import (
    ColumnClause,
    ColumnElement,
    Connection,
    Executable,
    Insert,
    Integer,
    Row,
    Select,
    TableValuedAlias,
    Text,
    Update,
    bindparam,
    cast,
    column,
    func,
    literal_column,
    select,
)
from sqlalchemy import any_ as any_of
from sqlalchemy import insert as insert_into
from sqlalchemy import update as update_of
from sqlalchemy.dialects.postgresql import ARRAY, JSON
from sqlalchemy.sql.schema import Table
from sqlmodel import Session

Ts = TypeVarTuple("Ts")

Values = Mapping[str, object]
"""Values by column; of rows that are written as JSON, in dicts."""

_PREFIX = "new_"
"""Parameters must not have the names of columns."""
_IDS = "ids"
_NUL = "\\u0000"
"""As JSON has it, where it is not the end of something else."""


class RowStatement:
    """A statement that is executed for each of some rows, in any order.

    Args:
        table: What it is about.
        each: About one row, by parameters.
        together: About all of them, by the one parameter that `rows_parameter` names.
        names: The columns that rows have.
    """

    def __init__(
        self,
        table: Table,
        each: Executable,
        together: Insert | Update,
        names: Sequence[str],
    ) -> None:
        self.parameter = rows_parameter(table)
        self.together = together
        self._each = each
        self._names = tuple(names)

    def execute(self, session: Session, rows: Sequence[Values]) -> None:
        """Execute it for rows, given by column; no two have the same key."""
        if not rows:
            return
        connection = session.connection()
        if _is_postgres(connection):
            connection.execute(self.together, {self.parameter: text_of(rows)})
        else:
            named = [{_PREFIX + name: row[name] for name in self._names} for row in rows]
            connection.execute(self._each, named)


class RowStatements:
    """Statements about tables that differ, executed in one round trip, in no order.

    Insertions give a value to each column that needs one: nothing else fills in defaults.

    Args:
        statements: Each of them.
    """

    def __init__(self, *statements: RowStatement) -> None:
        self._statements = statements
        parts = (one.together.cte(f"change_{one.parameter}") for one in statements)
        self._together: Executable = select(literal_column("1", Integer)).add_cte(*parts)

    def execute(self, session: Session, rows: Sequence[Sequence[Values]]) -> None:
        """Execute each statement for its rows."""
        if not any(rows):
            return
        pairs = tuple(zip(self._statements, rows, strict=True))
        connection = session.connection()
        if _is_postgres(connection):
            parameters = {statement.parameter: text_of(some) for statement, some in pairs}
            connection.execute(self._together, parameters)
        else:
            for statement, some in pairs:
                statement.execute(session, some)


def update(
    table: Table, keys: Sequence[str], names: Sequence[str], constants: Mapping[str, object]
) -> RowStatement:
    """Return the update of rows by their keys.

    Args:
        table: The table.
        keys: Columns that say which row.
        names: Columns that get a value of the row.
        constants: Values of columns that are the same for all.
    """
    rows = given_rows(table, (*keys, *names))
    each = update_of(table).where(*(table.c[key] == bindparam(_PREFIX + key) for key in keys))
    together = update_of(table).where(*(table.c[key] == rows.c[key] for key in keys))
    return RowStatement(
        table,
        each.values({**{name: bindparam(_PREFIX + name) for name in names}, **constants}),
        together.values({**{name: rows.c[name] for name in names}, **constants}),
        (*keys, *names),
    )


def insert(table: Table, names: Sequence[str]) -> RowStatement:
    """Return the insertion of rows, of which some columns are given."""
    rows = given_rows(table, names)
    return RowStatement(
        table,
        insert_into(table).values({name: bindparam(_PREFIX + name) for name in names}),
        insert_into(table).from_select(list(names), select(*(rows.c[name] for name in names))),
        names,
    )


def by_pairs(
    table: Table, make: Callable[[ColumnElement[str], ColumnElement[str]], Insert | Update]
) -> RowStatement:
    """Return a statement about what pairs of ids lead to: rows of columns `target` and `source`.

    Args:
        table: What it changes.
        make: Makes it, given the expressions of the two ids.
    """
    names = ("target", "source")
    rows = _rows_in(rows_parameter(table), [column(name, Text) for name in names])
    target, source = (bindparam(_PREFIX + name, type_=Text) for name in names)
    return RowStatement(table, make(target, source), make(rows.c.target, rows.c.source), names)


class ByIds(Generic[*Ts]):
    """A query for the rows of some ids, made once.

    Args:
        key: The column of the ids.
        query: Makes it, given the condition that a row has one of the ids.
    """

    def __init__(
        self,
        key: ColumnElement[str],
        query: Callable[[ColumnElement[bool]], Select[*Ts]],
    ) -> None:
        self._postgres = query(key == any_of(bindparam(_IDS, type_=ARRAY(key.type))))
        self._other = query(key.in_(bindparam(_IDS, expanding=True)))

    def of(self, session: Session) -> Select[*Ts]:
        """Return the query itself, whose parameter is `ids_of` some ids."""
        return self._of(session.connection())

    def execute(self, session: Session, ids: Collection[str]) -> Iterable[Row[*Ts]]:
        """Return the rows; nothing of them is kept track of."""
        connection = session.connection()
        return connection.execute(self._of(connection), ids_of(ids))

    def _of(self, connection: Connection) -> Select[*Ts]:
        return self._postgres if _is_postgres(connection) else self._other


def ids_of(ids: Collection[str]) -> dict[str, list[str]]:
    """Return the parameter of a query by ids."""
    return {_IDS: list(ids)}


def is_postgres(session: Session) -> bool:
    """Tell which of the two databases it is."""
    return _is_postgres(session.connection())


def rows_parameter(table: Table) -> str:
    """Return the name of the parameter that all rows of a statement are in."""
    return f"{table.name}_rows"


def given_rows(table: Table, names: Sequence[str]) -> TableValuedAlias:
    """Return a table, for Postgres, of the rows that are in the parameter of a statement.

    Args:
        table: Where the columns are from, and the name of the parameter.
        names: Those columns.
    """
    return _rows_in(rows_parameter(table), [column(name, table.c[name].type) for name in names])


def _rows_in(parameter: str, columns: Sequence[ColumnClause[str]]) -> TableValuedAlias:
    text = cast(bindparam(parameter, type_=Text), JSON)
    rows = func.json_to_recordset(text).table_valued(*columns, name="rows")
    return rows.render_derived(with_types=True)


def text_of(rows: Sequence[Values]) -> str:
    """Write rows down as the parameter of a statement about all of them, a list of objects."""
    try:
        text = _write(rows)
    except ValueError:  # an infinity
        return _write(_written(rows))
    return _write(_written(rows)) if _NUL in text else text


def _is_postgres(connection: Connection) -> bool:
    return connection.dialect.name == "postgresql"


def _written(rows: Sequence[Values]) -> Sequence[Values]:
    """Return rows with what JSON can hold of odd values, and Postgres reads as those."""
    return [{name: _plain(value) for name, value in row.items()} for row in rows]


def _plain(value: object) -> object:
    if isinstance(value, str):
        return value.replace("\0", "\ufffd")  # as `tables.Text` stores it
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def _hexadecimal(value: object) -> str:
    """Return what Postgres reads as bytes."""
    if not isinstance(value, bytes):
        raise TypeError(f"no column holds {type(value).__name__}")
    return f"\\x{value.hex()}"


_write = json.JSONEncoder(
    allow_nan=False, check_circular=False, separators=(",", ":"), default=_hexadecimal
).encode
