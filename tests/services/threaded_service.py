"""A service in another thread of the test's process."""

import asyncio
import threading
from contextlib import contextmanager

from services.common.server import GrpcService
from services.common.settings import ServiceSettings


@contextmanager
def in_thread(register):
    """Serve what `register` adds to a server; yield the address."""
    service = GrpcService(ServiceSettings(bind_address="127.0.0.1:0"), register)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    asyncio.run_coroutine_threadsafe(service.start(), loop).result()
    yield f"127.0.0.1:{service.port}"
    asyncio.run_coroutine_threadsafe(service.stop(), loop).result()
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()
