"""A lake in a bucket of S3 or of a store that speaks its protocol.

Manifests go through obstore, whose `mode="create"` has one winner; the file system of pyarrow would overwrite. Data
files go through pyarrow, in parts, with bounded memory. Credentials, region and endpoint come from the usual
environment (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION, AWS_ENDPOINT_URL, ...).
"""

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from ...errors import AlreadyExists, FileMissing, Forbidden, Refused, Unavailable
from .store import OWN_FOLDERS, HashingFile, StoredFile

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow.fs import S3FileSystem

# A store that is away is said so after some tries, not after the minutes that its libraries would take.
RETRIES = 3
RETRY_S = 20
CONNECT_S = 5
REQUEST_S = 30
_SECRETS = ("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
_ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
_VARIABLES = (*_ENDPOINTS, "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ACCESS_KEY_ID", *_SECRETS)
_TEXT_CHARACTERS_MAX = 200
# How pyarrow tells that a store refused; obstore has classes for it. A name, a port or a time may hold "403" too.
_DENIED = re.compile(r"AWS Error ACCESS_DENIED|\(HTTP status 403\)")


def checked_address(written: str) -> str:
    """Returns `s3://bucket/path` without a slash at its end. Refused: it has no bucket, or holds a credential."""
    found = urlsplit(written)
    if "@" in found.netloc:
        raise Refused("credentials of a store come from the environment, not from its address")
    if not found.netloc or found.query or found.fragment:
        raise Refused(f"{written[:100]}: the address of a lake is s3://bucket/path")
    return f"s3://{found.netloc}{found.path.rstrip('/')}"


def without_secrets(error: object) -> str:
    """Returns the first line of an error, without secrets of the environment."""
    text = (str(error).splitlines() or [type(error).__name__])[0]
    for name in _SECRETS:
        if secret := os.environ.get(name):
            text = text.replace(secret, "...")
    return text[:_TEXT_CHARACTERS_MAX]


def endpoint() -> str:
    """Returns the address of the store, if the environment names another than that of AWS."""
    return next((found for name in _ENDPOINTS if (found := os.environ.get(name))), "")


def variables_here() -> tuple[str, ...]:
    """Returns the names of the variables by which this process finds a store, not their values."""
    return tuple(name for name in _VARIABLES if os.environ.get(name))


def storage_options() -> dict[str, str]:
    """Returns settings for deltalake, which takes the rest from the environment."""
    found = endpoint()
    options = {"aws_endpoint": found} if found else {}
    return options | ({"allow_http": "true"} if found.startswith("http://") else {})


class S3Store:
    """A lake in a bucket. There are no renames, so files are written where they stay, under names of one attempt."""

    stages = False

    def __init__(self, url: str) -> None:
        """Refused: obstore is not installed, or the address is wrong."""
        self.url = checked_address(url)
        address = urlsplit(self.url)
        self._bucket, self._prefix = address.netloc, address.path.strip("/")
        try:
            from obstore.store import S3Store as ObjectStore
        except ImportError:
            raise Refused("a lake in s3:// needs obstore: pip install 'penstock[s3]'") from None
        found = endpoint()
        config: Any = {"endpoint": found} if found else {}
        self._objects = ObjectStore(
            self._bucket,
            prefix=self._prefix or None,
            config=config,
            client_options={
                "allow_http": found.startswith("http://"),
                "connect_timeout": timedelta(seconds=CONNECT_S),
                "timeout": timedelta(seconds=REQUEST_S),
            },
            retry_config={"max_retries": RETRIES, "retry_timeout": timedelta(seconds=RETRY_S)},
        )

    @cached_property
    def _files(self) -> "S3FileSystem":
        from pyarrow import fs

        address = urlsplit(endpoint())
        more = {"endpoint_override": address.netloc, "scheme": address.scheme}
        region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
        return fs.S3FileSystem(
            region=region,
            connect_timeout=CONNECT_S,
            request_timeout=REQUEST_S,
            retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=RETRIES),
            **(more if address.netloc else {}),
        )

    @contextmanager
    def translated(self, path: str) -> Iterator[None]:
        """Raises the errors of both libraries as ours, in one line without secrets."""
        from obstore import exceptions

        try:
            yield
        except FileNotFoundError:
            raise FileMissing(self.location(path)) from None
        except exceptions.AlreadyExistsError:
            raise AlreadyExists("file", self.location(path)) from None
        except (OSError, exceptions.BaseError) as error:
            text = without_secrets(error)
            refusals = (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError)
            if isinstance(error, refusals) or _DENIED.search(str(error)):
                raise Forbidden(f"{self.location(path)}: the store refuses: {text}") from None
            raise Unavailable(f"{self.location(path)}: the store failed: {text}") from None

    def read(self, path: str) -> bytes:
        import obstore

        with self.translated(path):
            return bytes(obstore.get(self._objects, path).bytes())

    def create(self, path: str, data: bytes) -> None:
        import obstore

        with self.translated(path):
            try:
                obstore.put(self._objects, path, data, mode="create")
            except obstore.exceptions.AlreadyExistsError:
                # A request whose answer was lost is sent again, and then meets what it has made itself.
                if bytes(obstore.get(self._objects, path).bytes()) != data:
                    raise

    def names(self, folder: str, after: str = "") -> list[str]:
        import obstore

        offset = f"{folder}/{after}" if after else None
        with self.translated(folder):
            pages = obstore.list(self._objects, prefix=folder, offset=offset)
            return sorted(one["path"].rpartition("/")[2] for page in pages for one in page)

    def files(self) -> Iterable[StoredFile]:
        import obstore

        with self.translated(""):
            for page in obstore.list(self._objects):
                for one in page:
                    path = one["path"]
                    if path.endswith(".parquet") and not path.startswith(OWN_FOLDERS):
                        yield StoredFile(path, one["size"], one["last_modified"])

    def has(self, path: str) -> bool:
        import obstore

        try:
            with self.translated(path):
                obstore.head(self._objects, path)
        except FileMissing:
            return False
        return True

    def remove(self, path: str) -> None:
        import obstore

        with self.translated(path):
            obstore.delete(self._objects, path)

    def _key(self, path: str) -> str:
        return "/".join(one for one in (self._bucket, self._prefix, path) if one)

    def open_read(self, path: str) -> "pa.NativeFile":
        with self.translated(path):
            return self._files.open_input_file(self._key(path))

    def open_write(self, path: str) -> HashingFile:
        with self.translated(path):
            stream = self._files.open_output_stream(self._key(path))
        return HashingFile(_TranslatedStream(self, path, stream), is_synced=False)

    def location(self, path: str) -> str:
        return f"{self.url}/{path}" if path else self.url


class _TranslatedStream:
    """An upload whose errors are ours: parts are sent while the file is written."""

    def __init__(self, store: S3Store, path: str, stream: "pa.NativeFile") -> None:
        self._store, self._path, self._stream = store, path, stream

    def write(self, data: Any) -> None:
        with self._store.translated(self._path):
            self._stream.write(data)

    def close(self) -> None:
        with self._store.translated(self._path):
            self._stream.close()
