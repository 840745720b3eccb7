"""Services on loopback in the test's process."""

from contextlib import asynccontextmanager

from modnorm.services.common.channels import open_service_channel
from modnorm.services.common.server import GrpcService
from modnorm.services.common.service_process import ANY_PORT
from modnorm.services.common.settings import ServiceSettings
from modnorm.wire.connection import Credentials


@asynccontextmanager
async def serving(service):
    """Run a service; yield a channel to it."""
    await service.start()
    try:
        async with open_service_channel(f"127.0.0.1:{service.port}", Credentials()) as channel:
            yield channel
    finally:
        await service.stop()


@asynccontextmanager
async def on_loopback(register, registry=None, grace=0.0):
    """Serve what `register` adds to a server; yield the service and a channel to it."""
    settings = ServiceSettings(bind_address=ANY_PORT, stop_grace=grace)
    service = GrpcService(settings, register, registry)
    async with serving(service) as channel:
        yield service, channel
