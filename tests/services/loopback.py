"""Services on loopback in the test's process."""

from contextlib import asynccontextmanager

from modnorm.services.common.channels import open_service_channel
from modnorm.services.common.server import start_server


@asynccontextmanager
async def on_loopback(register, registry=None):
    """Serve what `register` adds to a server; yield the server and a channel to it."""
    server = await start_server("127.0.0.1:0", register, registry)
    try:
        async with open_service_channel(f"127.0.0.1:{server.port}") as channel:
            yield server, channel
    finally:
        await server.stop(0)
