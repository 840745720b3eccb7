"""Access control: tokens, roles, and the protection of a server's port."""

from modnorm.services.common.access.callers import Caller, current_caller
from modnorm.services.common.access.exposure import open_port

__all__ = ["Caller", "current_caller", "open_port"]
