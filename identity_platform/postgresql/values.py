from datetime import date, datetime
from decimal import Decimal
from uuid import UUID

SqlScalar = bool | int | float | Decimal | str | bytes | date | UUID | None
SqlValue = SqlScalar | list[str] | list[UUID] | list[bytes] | list[datetime | None]
