"""Messages between the ranks of a run on this machine, through sockets from the fork server.

A send offers its message, the receiver takes the offer when it has a receive for it, and only then
do the data travel: a message that is not received needs no memory (rendezvous protocol). They
travel in pieces, so that an offer or a take waits for a piece and not for a message: both
directions of a link are used at once. In each rank one thread reads from all others and writes
what a socket did not take, so that data move in all directions while the program computes or waits.
"""

import selectors
import struct
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from hashlib import blake2b
from itertools import count
from socket import socket
from typing import Any

import numpy as np

from labkit.collectives import errors
from labkit.collectives.messages import (
    LIBRARY_TAG,
    Context,
    End,
    Mailboxes,
    Meeting,
    OpenCall,
    SourceLine,
)
from labkit.collectives.records import Array
from labkit.kinds import LabError

# What it is, the message's number, the communicator, its tag or color, its bytes or key, its dtype
# or the name of the call.
HEADER = struct.Struct("<cQ16sqq24s")
OFFER, TAKE, DATA, MEET = b"o", b"t", b"d", b"m"
NO_LINE = SourceLine("")  # a rank that fails is named with its line by the run
PIECE = 1 << 17  # bytes
READ, WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE


class Peer:
    """Another rank: what is sent to it, and where its data go."""

    def __init__(self, rank: int, link: socket) -> None:
        self.rank, self.link = rank, link
        self.headers: list[bytes] = []  # to be written before any data
        self.data: deque[tuple[End, memoryview]] = deque()  # messages, and what is left of them
        self.writing: deque[memoryview] = deque()  # what must follow at once
        self.written: End | None = None  # complete when it has
        self.header = bytearray(HEADER.size)
        self.into = memoryview(self.header)  # what is still to be read
        self.reads_piece = False
        self.message: tuple[End, End] | None = None  # whose last piece is being read


class SocketTransport:
    """The sockets of one rank, and the messages under way."""

    def __init__(self, rank: int, links: dict[int, socket]) -> None:
        ranks = len(links) + 1
        self.rank = rank
        self.world = Context(tuple(range(ranks)), is_world=True)
        self._names = {self.world: bytes(16)}
        self._contexts = {bytes(16): self.world}  # also those that only other ranks know so far
        self._splits: dict[Context, int] = {}
        self._mail = Mailboxes(ranks)
        self._numbers = count()
        self._offered: dict[int, End] = {}  # sends, by number
        self._taken: dict[tuple[int, int], tuple[End, End]] = {}  # by sender and its number
        self._gone: set[int] = set()  # ranks whose process has ended
        self._fault: LabError | None = None
        self._changed = threading.Condition()  # its lock guards all of this
        self._selector = selectors.DefaultSelector()
        self._peers = {other: Peer(other, link) for other, link in links.items()}
        for peer in self._peers.values():
            peer.link.setblocking(False)
            self._selector.register(peer.link, READ, peer)
        threading.Thread(target=self._serve, name="labkit messages", daemon=True).start()

    # What the calls of a communicator are made of.

    def enter(
        self, rank: int, name: str, context: Context | None = None, inside: OpenCall | None = None
    ) -> OpenCall:
        """Note that a rank makes a call, perhaps inside a collective of the library."""
        return OpenCall(rank, inside.name if inside else name, NO_LINE, context or self.world)

    def fault(self, text: str) -> LabError:
        """Returns the error that ends this rank."""
        return LabError(text)

    def post(
        self, call: OpenCall, memory: Array, peer: int, tag: int, *, sends: bool, late: bool
    ) -> End:
        """Post one end of a message."""
        end = End(call, sends, peer, tag, memory, None, memory.size, memory.nbytes, memory)
        call.posts.append(end)
        with self._changed:
            if sends and peer != self.rank:
                end.number = next(self._numbers)
                self._offered[end.number] = end
                dtype = memory.dtype.name if memory.dtype.kind == "V" else memory.dtype.str
                self._write(peer, OFFER, end.number, call.context, tag, memory.nbytes, dtype)
            elif pair := self._mail.post(end):
                self._take(*pair)
        return end

    def wait_for(
        self, call: OpenCall, ends: list[End], enough: Callable[[Iterable[bool]], bool] = all
    ) -> None:
        """Wait until all of the ends are done, or `enough` of them."""
        left = ends[::-1]

        def all_done() -> bool:
            while left and left[-1].is_done:
                left.pop()  # do not check it again: a program may wait for many
            return not left

        goes_on = all_done if enough is all else lambda: enough(end.is_done for end in ends)
        self._wait(call, goes_on, lambda: self._lost(ends))

    def _lost(self, ends: Iterable[End]) -> Collection[int]:
        """Returns the ranks that have ended and that one of the ends waits for."""
        for end in ends:
            others = {end.peer} if end.peer >= 0 else {*end.call.context.ranks} - {self.rank}
            if not end.is_done and others and others <= self._gone:
                return others
        return ()

    def probe(self, call: OpenCall, peer: int, tag: int) -> End:
        """Wait for the message that such a receive would take, without taking it."""
        wanted = End(call, False, peer, tag, None, None, 0, 0)
        self._wait(call, lambda: bool(self._mail.offer(wanted)), lambda: self._lost([wanted]))
        return self._mail.offer(wanted)  # type: ignore[return-value]

    def finish(self, call: OpenCall, ends: Sequence[End | None] = ()) -> None:
        """Wait for the ends."""
        self.wait_for(call, [end for end in ends if end is not None])

    def meet(self, call: OpenCall, color: int = 0, key: int = 0) -> Meeting:
        """Make a call that all ranks of the communicator make. Barrier and Split wait for all."""
        context = call.context
        with self._changed:
            meeting = self._arrive(call, color, key)
            for other in context.ranks:
                if other != self.rank:
                    self._write(other, MEET, 0, context, color, key, call.name)
        waits = call.name in ("Barrier", "Split")
        self._wait(
            call,
            lambda: not waits or len(meeting.given) == len(context.ranks),
            lambda: self._gone.intersection(context.ranks) - {*meeting.given},
        )
        return meeting

    def _arrive(self, call: OpenCall, color: int, key: int) -> Meeting:
        meeting = call.context.arrive(call, (color, key))
        if text := errors.unlike_calls(meeting):
            self._fault = LabError(text)
        self._changed.notify_all()
        return meeting

    def split(self, call: OpenCall, color: int, key: int) -> Context:
        """Returns the communicator of the ranks with this color, under the same name on each."""
        meeting, parent = self.meet(call, color, key), call.context
        with self._changed:
            self._splits[parent] = number = self._splits.get(parent, 0) + 1
            text = self._names[parent] + struct.pack("<qq", number, color)
            context = self._context(blake2b(text, digest_size=16).digest())
            context.ranks = parent.part(meeting, color)
        return context

    def _wait(
        self, call: OpenCall, goes_on: Callable[[], bool], lost: Callable[[], Collection[int]]
    ) -> None:
        with self._changed:
            while self._fault or not goes_on():
                if self._fault is not None:
                    raise self._fault
                if self._gone and (gone := lost()):
                    raise LabError(
                        f"Connection to rank {min(gone)} lost: its process has ended, and "
                        f"{call.words.replace('R', 'r', 1)} waits for it."
                    )
                self._changed.wait()

    # What goes through the sockets; the caller has the lock.

    def _serve(self) -> None:
        while True:
            for key, events in self._selector.select():
                with self._changed:
                    if events & READ:
                        self._read(key.data)
                    if events & WRITE and key.data.rank not in self._gone:
                        self._flush(key.data)

    def _context(self, name: bytes) -> Context:
        if name not in self._contexts:
            self._contexts[name] = context = Context()
            self._names[context] = name
        return self._contexts[name]

    def _take(self, send: End, receive: End) -> None:
        """Take a message whose two ends have met here, at its receiver."""
        if text := errors.unlike_ends(send, receive):
            self._fault = LabError(text)
            self._changed.notify_all()
        elif send.rank == self.rank:
            receive.memory[: send.count] = send.memory  # type: ignore[index]
            self._complete(send, receive)
        else:
            self._taken[send.rank, send.number] = send, receive
            self._write(send.rank, TAKE, send.number)

    def _complete(self, send: End, receive: End | None = None) -> None:
        send.other = receive or send
        if receive is not None:
            receive.other = send
        self._changed.notify_all()

    def _write(
        self, to: int, what: bytes, number: int, context: Context | None = None,
        tag: int = 0, size: int = 0, text: str = "",
    ) -> None:  # fmt: skip
        if to not in self._gone:
            name, peer = self._names[context or self.world], self._peers[to]
            peer.headers.append(HEADER.pack(what, number, name, tag, size, text.encode()))
            self._flush(peer)

    def _flush(self, peer: Peer) -> None:
        """Write as much as the socket accepts now."""
        while peer.writing or self._next_piece(peer):
            try:
                sent = peer.link.sendmsg(peer.writing)
            except BlockingIOError:
                break
            except OSError:  # it has ended; what it sent before is still read
                for queue in (peer.writing, peer.headers, peer.data):
                    queue.clear()
                break
            while peer.writing and sent >= len(peer.writing[0]):
                sent -= len(peer.writing.popleft())
            if peer.writing:
                peer.writing[0] = peer.writing[0][sent:]
            elif peer.written is not None:
                self._complete(peer.written)
                peer.written = None
        self._selector.modify(peer.link, READ | (WRITE if peer.writing else 0), peer)

    def _next_piece(self, peer: Peer) -> bool:
        """Choose what to write next: all headers first, else a piece of a message."""
        if peer.headers:
            # In one piece of memory: a call of sendmsg takes 1,024 pieces at most.
            peer.writing.append(memoryview(b"".join(peer.headers)))
            peer.headers.clear()
        elif peer.data:
            send, left = peer.data.popleft()
            piece, left = left[:PIECE], left[PIECE:]
            header = HEADER.pack(DATA, send.number, bytes(16), len(left), len(piece), b"")
            peer.writing.extend((memoryview(header), piece))
            if left:
                peer.data.appendleft((send, left))
            else:
                peer.written = send
        return bool(peer.writing)

    def _read(self, peer: Peer) -> None:
        try:
            size = peer.link.recv_into(peer.into)
        except BlockingIOError:
            return
        except OSError:
            size = 0
        if not size:  # the other process has ended
            self._gone.add(peer.rank)
            self._selector.unregister(peer.link)
            peer.link.close()
            self._changed.notify_all()
            return
        peer.into = peer.into[size:]
        if not peer.into:
            was_piece, peer.reads_piece = peer.reads_piece, False
            peer.into = memoryview(peer.header)
            if not was_piece:
                self._obey(peer, *HEADER.unpack(peer.header))
            elif peer.message is not None:
                self._complete(*peer.message)
                peer.message = None

    def _obey(
        self, peer: Peer, what: bytes, number: int, name: bytes, tag: int, size: int, text: bytes
    ) -> None:
        """Do what a header says."""
        words = text.rstrip(b"\0").decode()
        if what == OFFER:
            called = "collective" if tag == LIBRARY_TAG else "Send"
            call = OpenCall(peer.rank, called, NO_LINE, self._context(name))
            held = _like(words, size)
            send = End(call, True, self.rank, tag, None, None, held.size, size, held)
            send.number = number
            if pair := self._mail.post(send):
                self._take(*pair)
            self._changed.notify_all()  # a Probe may wait for it
        elif what == TAKE:
            send = self._offered.pop(number)
            peer.data.append((send, _bytes_of(send.memory)))
            self._flush(peer)
        elif what == DATA:  # a piece; its tag counts the bytes that follow in others
            send, receive = self._taken[peer.rank, number]
            if not tag:
                del self._taken[peer.rank, number]
                peer.message = (send, receive) if size else None
            if size:
                whole = _bytes_of(receive.memory[: send.count])  # type: ignore[index]
                end = len(whole) - tag
                peer.into, peer.reads_piece = whole[end - size : end], True
            else:
                self._complete(send, receive)
        else:
            self._arrive(OpenCall(peer.rank, words, NO_LINE, self._context(name)), tag, size)


def _bytes_of(memory: Any) -> memoryview:
    return memory.view(np.uint8).data  # type: ignore[no-any-return]


def _like(dtype: str, nbytes: int) -> Array:
    """Returns an array of this dtype and size that takes no memory."""
    try:
        element = np.zeros((), dtype)
    except TypeError:  # of a library that is not loaded here, such as float8
        element = np.zeros((), "V1")
    return np.broadcast_to(element, nbytes // element.itemsize)
