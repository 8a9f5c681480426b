"""Tokens: a file of who may make requests, which holds no secret."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import secrets
import stat
import time
from collections.abc import Generator, Iterable
from pathlib import Path
from typing import get_args

import msgspec

from adjourn.errors import UsageError

from ._callers import Caller, Role

PREFIX = "adj"


class Token(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A token as the file has it: the digest of its secret, and never the secret."""

    id: str
    digest: str
    name: str
    roles: frozenset[Role]
    agents: tuple[str, ...] = ("*",)
    created: float
    expires: float | None = None

    @property
    def caller(self) -> Caller:
        """Who makes requests with it.

        Raises:
            UsageError: it names nobody.
        """
        return Caller(name=self.name, roles=self.roles, agents=self.agents)

    @property
    def is_over(self) -> bool:
        """Whether it has expired."""
        return self.expires is not None and self.expires <= time.time()


class _File(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    tokens: list[Token] = []


class Tokens:
    """The tokens in a file, as it is now: it is read again when it changes.

    Whoever can read the file learns who has tokens, and cannot use them: a secret has 256 random bits, of which the
    file has the SHA-256. Several processes may read it, and change it.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Use the tokens in a file; it need not exist before the first is created."""
        self.path: Path = Path(path)
        self._seen: tuple[int, int, int] | None = None
        self._by_id: dict[str, Token] = {}

    def __len__(self) -> int:
        return len(self.all())

    def all(self) -> list[Token]:
        """Return the tokens, oldest first.

        Raises:
            UsageError: the file cannot be read or is not one of tokens, or others may write it.
        """
        try:
            found = self.path.stat()
            seen = (found.st_mtime_ns, found.st_size, found.st_ino)
            if seen != self._seen:
                self._by_id = {each.id: each for each in self._read(found)}
                self._seen = seen
        except FileNotFoundError:
            self._by_id, self._seen = {}, None
        except OSError as error:
            raise UsageError(f"The tokens in {self.path} cannot be read: {error.strerror}.") from error
        return list(self._by_id.values())

    def _read(self, found: os.stat_result) -> list[Token]:
        if os.name == "posix" and found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise UsageError(f"Others may write the tokens in {self.path}, and so let anybody in. Use: chmod 600")
        try:
            tokens = msgspec.json.decode(self.path.read_bytes(), type=_File).tokens
            for token in tokens:
                _ = token.caller
            return tokens
        except (msgspec.DecodeError, UsageError) as error:
            message = f"{self.path} is not a file of tokens: {error}. Make one with `adjourn token create`."
            raise UsageError(message) from error

    def create(
        self,
        name: str,
        *,
        roles: Iterable[Role] = ("use",),
        agents: Iterable[str] = ("*",),
        lifetime: float | None = None,
    ) -> tuple[Token, str]:
        """Add a token for somebody; return it and its text, which nobody can be shown again.

        Raises:
            UsageError: the file cannot be changed, the name is empty, or a role is not one.
        """
        secret = secrets.token_urlsafe(32)
        now = time.time()
        token = Token(
            id=secrets.token_hex(6),
            digest=_digest(secret),
            name=name,
            roles=frozenset(roles),
            agents=tuple(agents),
            created=now,
            expires=None if lifetime is None else now + lifetime,
        )
        _ = token.caller  # Raises if it names nobody.
        try:
            msgspec.json.decode(
                msgspec.json.encode(token), type=Token
            )  # A file with a token that is none lets nobody in.
        except msgspec.ValidationError as error:
            message = f"Tokens.create({name!r}, roles={sorted(token.roles)}, agents={token.agents}): {error}."
            raise UsageError(
                f"{message} Roles are {', '.join(get_args(Role))}; agents are patterns of names."
            ) from error
        with self._changing() as tokens:
            tokens.append(token)
        return token, f"{PREFIX}_{token.id}_{secret}"

    def revoke(self, id: str) -> bool:
        """Remove a token; return whether there was one.

        Raises:
            UsageError: the file cannot be changed.
        """
        with self._changing() as tokens:
            kept = [each for each in tokens if each.id != id]
            is_found = len(kept) < len(tokens)
            tokens[:] = kept
        return is_found

    @contextlib.contextmanager
    def _changing(self) -> Generator[list[Token]]:
        """Change the file as a whole; the next version, while it is written, keeps others from doing the same."""
        new = self.path.with_name(f"{self.path.name}.new")
        try:
            file = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError as error:
            message = f"Somebody else is changing the tokens. If nobody is, remove {new} and try again."
            raise UsageError(message) from error
        except OSError as error:
            raise UsageError(f"The tokens in {self.path} cannot be changed: {error.strerror}.") from error
        try:
            with os.fdopen(file, "wb") as written:
                tokens = self.all()
                yield tokens
                written.write(msgspec.json.format(msgspec.json.encode(_File(tokens=tokens))) + b"\n")
                written.flush()
                os.fsync(written.fileno())
            new.replace(self.path)
        except BaseException:
            new.unlink(missing_ok=True)
            raise

    def caller(self, text: str) -> Caller | None:
        """Return whose token this is; None if it is not one, or has expired.

        Raises:
            UsageError: the file cannot be read.
        """
        prefix, _, rest = text.partition("_")
        name, _, secret = rest.partition("_")
        self.all()
        token = self._by_id.get(name)
        # Compared also if there is none, so that the time it takes does not tell which ids there are.
        is_right = hmac.compare_digest(_digest(secret), _digest("") if token is None else token.digest)
        if token is None or not is_right or not secret or prefix != PREFIX or token.is_over:
            return None
        return token.caller


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).hexdigest()
