"""Reading ahead: the next piece of work is prepared while the present one runs."""

from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
Read = TypeVar("Read")


def prefetched(
    read: Callable[[Item], Read], items: Iterable[Item]
) -> Generator[Read, None, None]:
    """Yield read(item) of every item in turn, one item ahead, from a thread.

    While the caller works on one result the next is read; no more than these two are
    held. What `read` raises is raised here when its turn comes. Close the iterator
    (`contextlib.closing`) where it may be left early: the thread has then ended.
    """
    pool = ThreadPoolExecutor(1, thread_name_prefix="prefetch")
    waiting: Future[Read] | None = None
    try:
        for item in items:
            coming = pool.submit(read, item)
            if waiting is not None:
                yield waiting.result()
            waiting = coming
        if waiting is not None:
            yield waiting.result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
