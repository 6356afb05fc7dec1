from datetime import date
from decimal import Decimal
from uuid import UUID

SqlValue = bool | int | float | Decimal | str | bytes | date | UUID | list[str] | list[UUID] | None
