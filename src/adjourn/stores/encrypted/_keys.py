"""Keys, and how bytes are sealed with one: AES-GCM, bound to the place where they are kept."""

from __future__ import annotations

import os
import re
from base64 import b64decode, b64encode
from binascii import Error as NotBase64
from collections.abc import Iterator, Mapping
from hashlib import blake2b
from typing import TYPE_CHECKING, NoReturn

import msgspec

from adjourn._values.codec import SEALED
from adjourn.errors import CheckpointCorrupt, MissingKey, NotStorable, UsageError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

VARIABLE = "ADJOURN_KEYS"

_SIZE = 32
_NONCE = 12
_TAG = 16
_CHECK = 4
_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_HOW = (
    f"A key is {_SIZE} random bytes, or those in base64: `EncryptedStore.generate_key()` makes one. "
    f"In ${VARIABLE}, write 'id:key', or 'new:key,old:key'; `adjourn keys --new` prints one with an id."
)
_NO_OTHER = "A store with keys reads only what is encrypted: begin a new store, or open this one without keys"

_encoder = msgspec.msgpack.Encoder()


class Place(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Where sealed bytes belong: they open nowhere else, so a row that was swapped with another is noticed."""

    app: str
    session: str
    kind: str
    id: str
    more: tuple[str | int | None, ...] = ()

    def __str__(self) -> str:
        return f"the {self.kind} of '{self.id}'"


class Key:
    """One key, and what is derived from it: a subkey for each purpose, so that no use of one tells about another."""

    def __init__(self, id: str, secret: bytes) -> None:
        self.id = id
        cipher, self._damage = _aes_gcm()
        self._cipher: AESGCM = cipher(_derived(secret, "seal"))
        self._nonces: bytes = _derived(secret, "nonce")
        self._digests: bytes = _derived(secret, "digest")
        # Tells another key under the same id from damage; four bytes of a one-way function reveal nothing of the key.
        check = _derived(secret, "check")[:_CHECK]
        self.label: bytes = SEALED + bytes([len(id)]) + id.encode() + check

    def seal(self, place: Place, data: bytes) -> bytes:
        """Return bytes that only `open` at the same place.

        The same content at the same place gives the same bytes, because stores compare what is written again with
        what they have. So the nonce is not random: it is a keyed hash of place and content. That is sound. AES-GCM only
        breaks if one nonce is used for two different messages, and for these the hash differs as random nonces would.
        What it gives away is that a row was written again as it was, which whoever sees both writes knows anyway.
        """
        where = _encoded(place)
        # An encoded array says where it ends, so no other place and content give the same text.
        nonce = blake2b(where + data, key=self._nonces, digest_size=_NONCE).digest()
        return self.label + nonce + self._cipher.encrypt(nonce, data, where)

    def open(self, place: Place, sealed: bytes) -> bytes:
        """Return what was sealed at this place.

        Raises:
            CheckpointCorrupt: the bytes are damaged, or belong somewhere else.
        """
        start = len(self.label)
        if len(sealed) < start + _NONCE + _TAG:
            _refuse(place, "is cut off")
        nonce, rest = sealed[start : start + _NONCE], sealed[start + _NONCE :]
        try:
            return self._cipher.decrypt(nonce, rest, _encoded(place))
        except self._damage:
            _refuse(place, "was altered, or written for another place")

    def digest(self, text: str) -> str:
        """Return a digest by which equal texts can be found, and which only holders of the key can compute."""
        return blake2b(text.encode(), key=self._digests, digest_size=16).hexdigest()


class Keys:
    """The keys of a store, by id: one of them seals, and all of them open.

    Raises:
        UsageError: there is none, an id or key is not valid, or `current` is not among them.
    """

    def __init__(self, keys: Mapping[str, bytes | str], current: str | None = None) -> None:
        if not isinstance(keys, Mapping) or not keys:  # pyright: ignore[reportUnnecessaryIsInstance]  # users pass anything
            raise UsageError(f"EncryptedStore needs keys: give a dict of them by id. {_HOW}")
        secrets = {name: _secret(name, key) for name, key in keys.items()}
        if current is not None and current not in secrets:
            raise UsageError(f"current={current!r} is not the id of one of the keys. Known: {', '.join(secrets)}.")
        self._all: dict[str, Key] = {name: Key(name, secret) for name, secret in secrets.items()}
        self.current: Key = self._all[next(iter(secrets)) if current is None else current]
        self.fingerprint: bytes = blake2b(b"".join(key.label for key in (self.current, *self._all.values()))).digest()

    def __iter__(self) -> Iterator[Key]:
        return iter(self._all.values())

    def open(self, place: Place, sealed: bytes) -> bytes:
        """Return what was sealed at this place, with whichever key.

        Raises:
            CheckpointCorrupt: the bytes are not encrypted, are damaged, or belong somewhere else.
            MissingKey: the key that they were sealed with is not here.
        """
        name = key_id(sealed)
        if name is None:
            _refuse(place, "is not encrypted", _NO_OTHER)
        key, what = self._all.get(name), f"{place} in session '{place.session}'"
        if key is None:
            raise MissingKey(name, f"{what} was encrypted with it", tuple(self._all))
        if not sealed.startswith(key.label):
            raise MissingKey(name, f"{what} was encrypted with another key of this id", tuple(self._all))
        return key.open(place, sealed)

    def of(self, sealed: bytes) -> Key:
        """Return the key of bytes that have been opened."""
        return self._all[key_id(sealed) or ""]


def keys_from_environment(variable: str = VARIABLE) -> dict[str, str]:
    """Return the keys that an environment variable holds, the one to encrypt with first.

    Raises:
        UsageError: it is not set, or not in the form 'id:key,id:key'.
    """
    text = os.environ.get(variable, "").strip()
    if not text:
        raise UsageError(f"This store is encrypted, and ${variable} is not set. Set it to 'id:key'. {_HOW}")
    keys: dict[str, str] = {}
    for number, part in enumerate(text.split(","), 1):
        name, separator, key = part.strip().partition(":")
        if not separator or name in keys:
            # The part itself may be a key, and is not shown.
            problem = f"has the key id '{name}' twice" if separator else f"is not in the form 'id:key' at part {number}"
            raise UsageError(f"${variable} {problem}. {_HOW}")
        keys[name] = key
    return keys


def generate_key() -> str:
    """Return a new random key, as text."""
    return b64encode(os.urandom(_SIZE)).decode()


def key_id(sealed: bytes) -> str | None:
    """Return the id of the key that bytes were sealed with, None if they are not sealed."""
    start = len(SEALED) + 1
    if not sealed.startswith(SEALED) or len(sealed) < start:
        return None
    return sealed[start : start + sealed[start - 1]].decode("ascii", "replace")


def to_text(sealed: bytes) -> str:
    """Return sealed bytes as text, for what a store keeps as text."""
    return b64encode(sealed).decode()


def from_text(place: Place, text: object) -> bytes:
    """Return the sealed bytes of a text; those of anything else are not sealed.

    Raises:
        CheckpointCorrupt: it is not such a text.
    """
    try:
        return b64decode(text, validate=True) if isinstance(text, str) else b""
    except (NotBase64, ValueError):
        _refuse(place, "is not encrypted")


def _encoded(place: Place) -> bytes:
    try:
        return _encoder.encode(place)
    except UnicodeEncodeError as error:
        raise NotStorable("id", error.object, f"It must be text that UTF-8 can hold: {error}.") from error


def _refuse(place: Place, what: str, remedy: str = "Restore a backup") -> NoReturn:
    raise CheckpointCorrupt(f"{place} {what}", place.session, remedy=remedy)


def _secret(id: object, key: object) -> bytes:
    if not isinstance(id, str) or not _ID.fullmatch(id):
        raise UsageError(f"{id!r} is not the id of a key: use up to 64 letters, digits, '.', '_' and '-'.")
    try:
        secret = b64decode(key, validate=True) if isinstance(key, str) else key
    except (NotBase64, ValueError):
        raise UsageError(f"The key '{id}' is not base64. {_HOW}") from None
    if not isinstance(secret, bytes) or len(secret) != _SIZE:
        size = f"{len(secret)} bytes long" if isinstance(secret, bytes) else f"a {type(secret).__name__}"
        raise UsageError(f"The key '{id}' is {size}. {_HOW}")
    return secret


def _derived(secret: bytes, purpose: str) -> bytes:
    from cryptography.hazmat.primitives.hashes import SHA256  # noqa: PLC0415 - of the extra
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF  # noqa: PLC0415

    return HKDF(algorithm=SHA256(), length=_SIZE, salt=None, info=f"adjourn.stores 1 {purpose}".encode()).derive(secret)


def _aes_gcm() -> tuple[type[AESGCM], type[Exception]]:
    """Return the cipher, and what it raises for bytes that it did not write."""
    try:
        from cryptography.exceptions import InvalidTag  # noqa: PLC0415 - of the extra
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415 - of the extra
    except ImportError as error:
        raise UsageError(
            "EncryptedStore needs the library cryptography, which is not installed. "
            "Run: pip install 'adjourn[encryption]'."
        ) from error
    return AESGCM, InvalidTag
