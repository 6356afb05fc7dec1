"""fastapi-users with SQLAlchemy, asyncpg and tokens in the database, as its documentation sets it up.

`python -m bench.peers.fastapi_users.peer` makes the tables; uvicorn serves `app`. Only the argon2id parameters are the
platform's; it has no rate limits.
"""

import asyncio
import os
import uuid

from fastapi import Depends, FastAPI
from fastapi_users import BaseUserManager, FastAPIUsers, UUIDIDMixin, schemas
from fastapi_users.authentication import AuthenticationBackend, BearerTransport
from fastapi_users.authentication.strategy.db import AccessTokenDatabase, DatabaseStrategy
from fastapi_users.db import SQLAlchemyBaseUserTableUUID, SQLAlchemyUserDatabase
from fastapi_users.password import PasswordHelper
from fastapi_users_db_sqlalchemy.access_token import SQLAlchemyAccessTokenDatabase, SQLAlchemyBaseAccessTokenTableUUID
from pwdlib import PasswordHash
from pwdlib.hashers.argon2 import Argon2Hasher
from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase

engine = create_async_engine(os.environ["PEER_DATABASE_URL"].replace("postgresql://", "postgresql+asyncpg://"))
open_session = async_sessionmaker(engine, expire_on_commit=False)
passwords = PasswordHelper(PasswordHash((Argon2Hasher(time_cost=2, memory_cost=19 * 1024, parallelism=1),)))


class Base(DeclarativeBase):
    pass


class User(SQLAlchemyBaseUserTableUUID, Base):
    pass


class AccessToken(SQLAlchemyBaseAccessTokenTableUUID, Base):
    pass


class UserManager(UUIDIDMixin, BaseUserManager[User, uuid.UUID]):
    reset_password_token_secret = verification_token_secret = "of a peer that keeps nothing secret"


class UserRead(schemas.BaseUser[uuid.UUID]):
    pass


class UserUpdate(schemas.BaseUserUpdate):
    pass


async def session():
    async with open_session() as opened:
        yield opened


async def users(opened=Depends(session)):
    yield SQLAlchemyUserDatabase(opened, User)


async def tokens(opened=Depends(session)):
    yield SQLAlchemyAccessTokenDatabase(opened, AccessToken)


async def manager(database=Depends(users)):
    yield UserManager(database, passwords)


def strategy(database: AccessTokenDatabase[AccessToken] = Depends(tokens)) -> DatabaseStrategy:
    return DatabaseStrategy(database, lifetime_seconds=86_400)


backend = AuthenticationBackend("database", BearerTransport("auth/login"), strategy)
library = FastAPIUsers[User, uuid.UUID](manager, [backend])
app = FastAPI()
app.include_router(library.get_auth_router(backend), prefix="/auth")
app.include_router(library.get_users_router(UserRead, UserUpdate), prefix="/users")


async def make_tables() -> None:
    async with engine.begin() as raw:
        await raw.run_sync(Base.metadata.create_all)
    await engine.dispose()


if __name__ == "__main__":
    asyncio.run(make_tables())
