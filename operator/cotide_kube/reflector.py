"""List and watch one collection for ever: the only entry of cluster state into our processes.

Used by the operator's cache and by the fake nodes. The reflector keeps the last object of each name, so it misses
nothing. After a gap it resumes from the last version it saw. If the server no longer has that version (410), it lists
again and emits the difference, deletions included.

::

    list --> SYNCED --> watch --(closed, failed, silent)--> back-off --> look --> watch from the last version
      ^                   |                                               |
      |                   |                                               |
      `--back-off <-(410, or fruitless twice)--(other data, or unknown)

Before it resumes a watch, the reflector makes a look. It checks that the server still has the data that it reported
before. After the restore of a backup the data differ, and a watch from the last version would permanently miss the
changes between. API servers accept a version of the future and stay silent until they reach it. So the server must be
at that version or a later one. At the version of the last reported object it must have this object, because the same
number names something else in another history. Where the server was away and the look gives no answer, the reflector
lists everything again.

The back-off grows until a watch lasts `STEADY_SECONDS`. Lists and single lines leave it as it is. So a server that ends
every watch at once gets fewer and fewer requests. The longest wait is short for a small collection, so that a series of
faults delays little. It grows with the number of objects that a list brings. A watch is fruitless while it brings no
later version and does not last. After two of them in a row the reflector lists again, whatever the server answers (for
example a lasting 4xx).

Long work is done in turns: the lines that arrived together, and every list except the first. Everything else waits for
the first list anyway. Invariant: folding all changes in order gives the server's collection as of the last version
seen. Objects that can't be decoded appear in the log, are passed to `malformed`, and are skipped.
"""

from __future__ import annotations

import asyncio
import logging
import random
import re
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Final, Generic, Protocol, TypeVar
from urllib.parse import quote

import msgspec

from cotide_core.errors import ClusterError, CotideError
from cotide_kube.answers import ApiError
from cotide_kube.backoff import Backoff
from cotide_kube.client import KubeClient
from cotide_kube.decoding import Bookmark, ChangeKind, ListPage, Malformed, ObjectDecoder, WatchFailed
from cotide_kube.objects import Metadata
from cotide_kube.turns import Turn, in_turns
from cotide_kube.versions import order

_LOG = logging.getLogger(__name__)

PAGE_LIMIT: Final = 2000
"""Objects per list chunk. Chosen: a server makes 26 chunks of 2,000 from 50,000 pods in two thirds of the time of
kubectl's 101 chunks of 500. A chunk is 4 to 20 MB.
"""
SILENCE_SECONDS: Final = 95.0
"""API servers send a bookmark about once a minute; half as much again means that the connection is dead. Chosen."""
WATCH_SECONDS: Final = (300.0, 600.0)
"""How long each watch is asked to last, drawn for each watch: the official reflector's 5-10 minutes."""
RECONNECT: Final = Backoff(initial_seconds=0.4, cap_seconds=1.8, factor=1.2)
"""Between two attempts. With this factor a wait is about a fifth of the time that the fault has lasted, until it has
its cap after 9 s. Chosen: faults that follow each other add to one back-off, and a pod is bound within 2 s of the last
one. At the cap a resource gets one or two requests a second. client-go waits up to 30 s.
"""
MOST_RECONNECT_SECONDS: Final = 30.0
"""Cap for large collections, as client-go's for all."""
OBJECTS_A_SECOND: Final = 2000
"""Lists that a fault may cause: a larger collection has a higher cap, since an attempt may list all of it. Chosen: four
pages a second at most, so that 3,600 objects wait 1.8 s at most and 60,000 wait 30 s.
"""
STEADY_SECONDS: Final = 2.0
"""A watch of this length ends the back-off. Chosen: client-go's reflector calls a watch below 1 s very short."""
FRUITLESS_WATCHES: Final = 2
"""In a row, before the next list. Chosen: a single lost connection costs no list."""
GONE_KEPT: Final = 1000
"""Deletions to remember, to recognise objects that come back with a backup; chosen: 40 bytes each."""
_HEAD_BYTES: Final = 4096
_TOKEN: Final = re.compile(rb'"continue"\s*:\s*"([^"\\]+)"')


class HasMetadata(Protocol):
    """What a reflected type must have."""

    @property
    def metadata(self) -> Metadata:
        """Name, namespace, uid and version."""
        ...


T = TypeVar("T", bound=HasMetadata)


class BackupRestored(CotideError):
    """The server's data differ from the data reported before: their history differs from some version on."""


class Change(msgspec.Struct, Generic[T], frozen=True, gc=False):
    """One change of the collection.

    ``SYNCED`` carries no object. It comes once after each list, when everything that existed at the list has been
    emitted. A ``DELETED`` object is its last known state.
    """

    kind: ChangeKind
    object: T | None


class Reflector(Generic[T]):
    """Lists and watches one collection; iterate over it for single changes, or over `batches`.

    Parameters
    ----------
    client : KubeClient
        An open client.
    path : str
        The collection, as ``/api/v1/pods``.
    object_type : type
        The type to decode into: a msgspec struct with ``metadata`` (see `objects`).
    label_selector, field_selector : str, optional
        As the API takes them.
    keep : callable, optional
        Makes the object to emit and keep from each decoded object, with the same metadata. If it raises, the object is
        skipped like one that can't be decoded.
    malformed : callable, optional
        Receives each object that is skipped.
    most_bytes : int, optional
        See `decoding.ObjectDecoder`.
    ends_when_restored : bool
        Whether iterating ends with `BackupRestored` when the server's data are other ones: for callers that keep more
        than the collection. Otherwise the reflector lists and emits everything again.
    rng : random.Random, optional
        For jitter.

    Raises
    ------
    ApiError
        While iterating: when the server refuses the very first list (401, 403, 404 and other 4xx).
    BackupRestored
        While iterating, with ``ends_when_restored``.

    The reflector waits without end for an unreachable or failing server, since a controller can do nothing without it.
    The log shows the wait, and `failures` counts the failures in a row.
    """

    def __init__(
        self,
        client: KubeClient,
        path: str,
        object_type: type[T],
        label_selector: str | None = None,
        field_selector: str | None = None,
        *,
        keep: Callable[[T], T] | None = None,
        malformed: Callable[[Malformed], None] | None = None,
        most_bytes: int | None = None,
        page_limit: int = PAGE_LIMIT,
        silence_seconds: float = SILENCE_SECONDS,
        backoff: Backoff | None = None,
        ends_when_restored: bool = False,
        rng: random.Random | None = None,
    ) -> None:
        self._client, self._path = client, path
        self._selectors: dict[str, str] = {}
        if label_selector:
            self._selectors["labelSelector"] = label_selector
        if field_selector:
            self._selectors["fieldSelector"] = field_selector
        self._decoder = ObjectDecoder(object_type, most_bytes)
        self._keep, self._hear = keep, malformed
        self._page_limit, self._silence_seconds = page_limit, silence_seconds
        self._backoff, self._rng = backoff or RECONNECT, rng or random.Random()
        self._setbacks = 0
        """Pauses since a watch lasted."""
        self._fruitless = 0
        """Watches in a row that brought no later version and did not last."""
        self._known: dict[tuple[str, str], T] = {}
        self._version = ""
        self._ends_when_restored = ends_when_restored
        self._resumes = False
        """Whether there was a watch since the last list."""
        self._restored = False
        """Whether the next list is one of other data, where the same version may name another object."""
        self._landmark: Metadata | None = None
        """Metadata of the last object that a watch added or changed; the object may be gone since."""
        self._landmark_is_latest = False
        """Whether nothing came after the landmark, neither a list nor a deletion."""
        self._gone: deque[str] = deque(maxlen=GONE_KEPT)
        """The uids of the latest deleted objects."""
        self.failures = 0
        self.malformed = 0
        self.lists = 0
        self.watches = 0

    @property
    def keys(self) -> frozenset[tuple[str, str]]:
        """The (namespace, name) pairs that exist, as far as we know."""
        return frozenset(self._known)

    @property
    def version(self) -> str:
        """The version of the last change of the collection that was emitted, as the server wrote it; empty before a
        list.
        """
        return self._version

    def __aiter__(self) -> AsyncIterator[Change[T]]:
        return self._singly()

    async def _singly(self) -> AsyncIterator[Change[T]]:
        async for batch in self.batches():
            for change in batch:
                yield change

    async def batches(self) -> AsyncIterator[list[Change[T]]]:
        """Yield changes as they arrive, those that arrived together in one list; never ends on its own."""
        while True:
            try:
                if not self._version:
                    async for batch in self._list():
                        yield batch
                elif self._resumes:
                    await self._look()
                    if not self._version:
                        continue
                async for batch in self._watch():
                    yield batch
            except ApiError as error:
                passing = error.status >= 500 or error.status == 429
                if error.status == 410:
                    self._version = ""
                elif passing:  # A busy server is not asked for a list.
                    self._fruitless = 0
                # A refusal at the start is a fault of the set-up, and the user must see it. Later on a refusal passes:
                # an API server that restarts may know neither its rights nor its custom resources yet.
                elif not self.lists:
                    raise
                await self._pause(error)
            except ClusterError as error:
                await self._pause(error)

    async def _pause(self, error: ClusterError) -> None:
        self.failures += 1
        self._setbacks += 1
        if self._fruitless >= FRUITLESS_WATCHES:
            self._version = ""
        cap = min(max(self._backoff.cap_seconds, len(self._known) / OBJECTS_A_SECOND), MOST_RECONNECT_SECONDS)
        wait = replace(self._backoff, cap_seconds=cap).wait_seconds(self._setbacks, self._rng)
        # One line when trouble starts, then silence: an outage of an hour must not fill the log.
        expired = isinstance(error, ApiError) and error.status == 410
        level = logging.DEBUG if self._setbacks > 1 else logging.INFO if expired else logging.WARNING
        _LOG.log(level, "%s; trying again in %.1f s", error, wait)
        await asyncio.sleep(wait)

    async def _list(self) -> AsyncIterator[list[Change[T]]]:
        """Yield the new changes; after an empty state that is each chunk, while the server makes the next one.

        Without ``resourceVersion`` the list is of a moment after the request. With ``resourceVersion=0`` a server might
        answer from a cache that is minutes old. The watch would catch up, but decisions made right after the list would
        rest on an old state with too much room. It costs nothing: servers from 1.31 on check that their cache is fresh,
        and answer from it.
        """
        anew = not self._known and not self._gone
        listed: dict[tuple[str, str], T] = {}
        version = ""
        async for objects, as_of in self._pages():
            version = as_of
            if objects is None:
                anew, listed = False, {}
                continue
            listed.update(((item.metadata.namespace, item.metadata.name), item) for item in objects)
            if anew and objects:
                self._known = listed  # What was emitted is known, even if the list fails half-way.
                yield [Change("ADDED", item) for item in objects]
        changes = [] if anew else await self._difference(listed)
        self._known, self._version = listed, version
        self._resumes = self._restored = self._landmark_is_latest = False
        self._fruitless = 0
        self.lists += 1
        changes.append(Change("SYNCED", None))
        yield changes

    async def _difference(self, listed: dict[tuple[str, str], T]) -> list[Change[T]]:
        changes: list[Change[T]] = []
        turn = Turn()
        for key, old in self._known.items():  # Stays unchanged meanwhile: the watch begins after the list.
            await turn.give_way()
            new = listed.get(key)
            if new is None or new.metadata.uid != old.metadata.uid:
                changes.append(Change("DELETED", old))
            elif not self._restored and _before(new.metadata.resource_version, old.metadata.resource_version):
                at, was = new.metadata.resource_version, old.metadata.resource_version
                self._is_other_data(f"{'/'.join(key)} is at version {at}, and was at {was}")
        gone = frozenset(self._gone)
        for key, new in listed.items() if gone else ():
            await turn.give_way()
            if new.metadata.uid in gone and not self._restored:
                self._is_other_data(f"{'/'.join(key)} exists, although its deletion was reported")
        for key, new in listed.items():
            await turn.give_way()
            known = self._known.get(key)
            if known is None or known.metadata.uid != new.metadata.uid:
                changes.append(Change("ADDED", new))
            elif self._restored or known.metadata.resource_version != new.metadata.resource_version:
                changes.append(Change("MODIFIED", new))
        return changes

    async def _pages(self) -> AsyncIterator[tuple[list[T] | None, str]]:
        """Yield the objects of each chunk and the list's version; None when the list starts over."""
        query = {**self._selectors, "limit": str(self._page_limit)}
        ahead: asyncio.Task[bytes] | None = None
        try:
            while True:
                try:
                    body = await (self._page(query) if ahead is None else ahead)
                    ahead = await self._page_after(body, query)
                    page = await self._decoder.page_in_turns(body) if self.lists else self._decoder.page(body)
                except ApiError as error:
                    if error.status != 410 or "continue" not in query:
                        raise
                    # The list took longer than the server keeps versions: read it in one piece.
                    query, ahead = dict(self._selectors), None
                    yield None, ""
                    continue
                except msgspec.DecodeError as error:
                    raise ClusterError(f"the list of {self._path} is unreadable: {error}") from error
                self._alive()
                items = page.items if self._keep is None else await self._kept(page.items, page.malformed)
                for bad in page.malformed:
                    self._report(bad)
                    if (before := self._known.get(bad.key)) is not None:
                        items.append(before)  # It exists: its last known state holds.
                yield items, page.resource_version
                if not page.continue_token:
                    return
                query["continue"] = page.continue_token
        finally:
            if ahead is not None:
                ahead.cancel()

    async def _page(self, query: dict[str, str]) -> bytes:
        # Compressed: five megabytes pass through TLS and unpack in half the time of a hundred uncompressed ones. The
        # server, which saves as much, uses no more.
        return await self._client.request("GET", self._path, params=query, compressed=True)

    async def _page_after(self, body: bytes, query: dict[str, str]) -> asyncio.Task[bytes] | None:
        """Ask for the next page before this one is decoded, so that the server makes it in the same time.

        The token is looked for before the items, where API servers write it. If a server writes it elsewhere, the next
        page is asked for after the decoding.
        """
        found = _TOKEN.search(body[:_HEAD_BYTES].partition(b'"items"')[0])
        if found is None:
            return None
        task = asyncio.ensure_future(self._page({**query, "continue": found.group(1).decode()}))
        await asyncio.sleep(0)  # Gives the request a turn to leave: decoding does not yield.
        return task

    async def _look(self) -> None:
        """Forget the version where the server's data may differ from the data reported before."""
        away = self.failures > 0
        landmark = await self._latest() if away else self._landmark
        try:
            why = await self._other_data(landmark)
        except ApiError as error:
            if error.status >= 500 or error.status == 429:
                raise
            if away:
                _LOG.info("%s: the last version is no longer available (%s), listing again", self._path, error)
                self._version = ""
            return
        if why:
            self._is_other_data(why)
        elif why is not None and away:
            # A backup may be of a moment between the landmark and the version, a bookmark's: only changes up to the
            # landmark are proved.
            self._version = landmark.resource_version if landmark is not None and self._landmark_is_latest else ""

    async def _other_data(self, landmark: Metadata | None) -> str | None:
        """Return what shows that the server's data are others: empty if they are the same, None if the server gives no
        proof.

        Raises
        ------
        ApiError
            When the server gives no answer; 410 where it has thrown away what it had at the landmark's version.
        """
        page = await self._where(landmark, {})
        versions = [self._version, page.resource_version, *([landmark.resource_version] if landmark else [])]
        if any(order(version) is None for version in versions):
            return None  # They are of another kind.
        if _before(page.resource_version, self._version):
            return f"the API server is at version {page.resource_version}, and was at {self._version}"
        if landmark is None or _has(page, landmark):
            return ""
        # It may have changed or gone since: its state at that version counts.
        at = landmark.resource_version
        page = await self._where(landmark, {"resourceVersion": at, "resourceVersionMatch": "Exact"})
        if _has(page, landmark):
            return ""
        name = "/".join(part for part in (landmark.namespace, landmark.name) if part)
        return f"the API server had no {name} at version {at}, although it reported it before"

    async def _latest(self) -> Metadata | None:
        """Return the landmark, or an object with a later version that a list brought."""
        if self._landmark_is_latest:
            return self._landmark
        latest, turn = self._landmark, Turn()
        for known in self._known.values():
            await turn.give_way()
            if latest is None or _before(latest.resource_version, known.metadata.resource_version):
                latest = known.metadata
        return latest

    async def _where(self, landmark: Metadata | None, how: dict[str, str]) -> ListPage[T]:
        """Return a list with a landmark or nothing; without a landmark a list of one object, for its version."""
        path, query = self._path, {**self._selectors, **how, "limit": "1"}
        if landmark is not None:
            own = self._selectors.get("fieldSelector")
            query["fieldSelector"] = f"{own},metadata.name={landmark.name}" if own else f"metadata.name={landmark.name}"
            if landmark.namespace and "/namespaces/" not in path:
                # By its key: over all namespaces a server would search the whole collection.
                head, _, plural = path.rpartition("/")
                path = f"{head}/namespaces/{quote(landmark.namespace, safe='')}/{plural}"
        body = await self._client.request("GET", path, params=query, compressed=True)
        try:
            return self._decoder.page(body)
        except msgspec.DecodeError as error:
            raise ClusterError(f"the list of {path} is unreadable: {error}") from error

    def _is_other_data(self, why: str) -> None:
        message = f"{self._path}: {why}: a backup was restored"
        if self._ends_when_restored:
            raise BackupRestored(message)
        _LOG.warning("%s; listing again", message)
        self._version, self._landmark, self._restored = "", None, True
        self._gone.clear()

    async def _watch(self) -> AsyncIterator[list[Change[T]]]:
        query = {
            **self._selectors,
            "resourceVersion": self._version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(round(self._rng.uniform(*WATCH_SECONDS))),
        }
        self.watches += 1
        self._fruitless += 1
        self._resumes = True
        opened = time.monotonic()
        try:
            async for lines in self._client.watch(self._path, query, self._silence_seconds):
                self._alive()
                self._note_age(opened)
                batch: list[Change[T]] = []
                failed = await self._take_all(lines, batch)
                if batch:
                    yield batch
                if failed is not None and failed.code == 410:
                    raise ApiError(410, "Expired", failed.message, f"watch {self._path}")
                if failed is not None:
                    raise ClusterError(f"watch {self._path}: {failed.code} {failed.message}")
        except ApiError:
            raise
        except ClusterError:  # It broke off.
            self._note_age(opened)
            raise
        self._note_age(opened)
        if time.monotonic() - opened < STEADY_SECONDS:
            # A server that closes every watch at once must not be asked in a tight loop.
            await self._pause(ClusterError(f"watch {self._path}: closed by the server at once"))

    async def _take_all(self, lines: list[bytes], batch: list[Change[T]]) -> WatchFailed | None:
        """Add the changes of some lines; return the failure that ended the watch, if a line reports one."""
        turn = Turn()
        for line in lines:
            await turn.give_way()
            failed = self._take(line, batch)
            if failed is not None:
                return failed
        return None

    def _note_age(self, opened: float) -> None:
        """End the back-off if the watch that was opened at this monotonic time has lasted."""
        if time.monotonic() - opened >= STEADY_SECONDS:
            self._setbacks = self._fruitless = 0

    def _advance(self, version: str, *, later_only: bool = False) -> None:
        """Adopt the version of an event or a bookmark; a version that is no number cannot follow one that is.

        Parameters
        ----------
        later_only : whether an earlier version is skipped, too.
        """
        if not version or version == self._version:
            return
        if order(version) is None and order(self._version) is not None:
            self.malformed += 1
            _LOG.debug("watch %s: version %.80r is no number and is skipped", self._path, version)
            return
        if later_only and _before(version, self._version):
            return
        self._version = version
        self._fruitless = 0

    def _take(self, line: bytes, batch: list[Change[T]]) -> WatchFailed | None:
        event = self._decoder.line(line)
        if isinstance(event, tuple):
            kind, found = event
            kept = found if self._keep is None else self._made(found)
            if not isinstance(kept, Malformed):
                self._fold(kind, kept, batch)
                return None
            event = replace(kept, kind=kind)
        if isinstance(event, Bookmark):
            self._advance(event.resource_version, later_only=True)
        elif isinstance(event, WatchFailed):
            return event
        else:
            self._report(event)
            if event.kind == "DELETED" and (known := self._known.get(event.key)) is not None:
                self._fold("DELETED", known, batch)
            self._advance(event.resource_version)
        return None

    async def _kept(self, items: list[T], malformed: list[Malformed]) -> list[T]:
        made = await in_turns(self._made, items) if self.lists else [self._made(item) for item in items]
        malformed += [item for item in made if isinstance(item, Malformed)]
        return [item for item in made if not isinstance(item, Malformed)]

    def _made(self, found: T) -> T | Malformed:
        assert self._keep is not None  # noqa: S101 - asked by both callers
        try:
            return self._keep(found)
        except Exception as error:  # noqa: BLE001 - one object that trips us must not end the stream of all others
            metadata = found.metadata
            fault = f"{type(error).__name__}: {error}"
            return Malformed(fault, (metadata.namespace, metadata.name), metadata.resource_version, uid=metadata.uid)

    def _fold(self, kind: ChangeKind, found: T, batch: list[Change[T]]) -> None:
        metadata = found.metadata
        key = (metadata.namespace, metadata.name)
        if kind == "DELETED":
            before = self._known.pop(key, None)
            if not self._selectors:  # With them it may have been taken out of the selection only.
                self._gone.append(metadata.uid)
            self._landmark_is_latest = False
            if before is not None and self._landmark is None:
                self._landmark = before.metadata
        else:
            # A watch may open with objects that the list brought already, or repeat an addition.
            kind = "MODIFIED" if key in self._known else "ADDED"
            self._known[key] = found
            self._landmark, self._landmark_is_latest = metadata, True
        self._advance(metadata.resource_version)
        batch.append(Change(kind, found))

    def _alive(self) -> None:
        self.failures = 0

    def _report(self, bad: Malformed) -> None:
        self.malformed += 1
        if self._hear is not None:
            self._hear(bad)
        else:
            _LOG.warning("%s %s can't be read and is skipped: %s", self._path, bad.name or "(unnamed)", bad.fault)


def _before(version: str, other: str) -> bool:
    """Return whether a version is surely before another one."""
    if version == other:
        return False
    left, right = order(version), order(other)
    return left is not None and right is not None and left < right


def _has(page: ListPage[T], landmark: Metadata) -> bool:
    return any(
        item.metadata.uid == landmark.uid and item.metadata.resource_version == landmark.resource_version
        for item in page.items
    )
