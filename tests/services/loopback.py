"""Services on loopback in the test's process."""

import asyncio
import threading
from contextlib import asynccontextmanager, contextmanager

from modnorm.services.common.channels import open_service_channel
from modnorm.services.common.server import GrpcService, start_server
from modnorm.services.common.settings import ServiceSettings


@asynccontextmanager
async def on_loopback(register, registry=None):
    """Serve what `register` adds to a server; yield the server and a channel to it."""
    server = await start_server("127.0.0.1:0", register, registry)
    try:
        async with open_service_channel(f"127.0.0.1:{server.port}") as channel:
            yield server, channel
    finally:
        await server.stop(0)


@contextmanager
def in_thread(register):
    """Serve what `register` adds to a server in another thread; yield the address."""
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
