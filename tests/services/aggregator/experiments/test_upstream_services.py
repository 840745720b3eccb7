import pytest

from modnorm.errors import InvalidInputError
from modnorm.services.aggregator.experiments.upstream_services import Sampler
from modnorm.services.common.channels import MESSAGE_BYTES, open_service_channel
from modnorm.tasks import Message
from modnorm.wire.connection import Credentials
from modnorm.wire.conversions import spec_from_proto


async def test_prompts_beyond_one_message_are_an_error_of_the_task(spec):
    row = [Message("user", "x" * (MESSAGE_BYTES // 4))]
    async with open_service_channel("127.0.0.1:1", Credentials()) as channel:
        with pytest.raises(InvalidInputError) as caught:
            await Sampler(channel, Credentials()).inspect(spec_from_proto(spec()), [row] * 4, 16)
    assert caught.value.field == "task"
    assert str(MESSAGE_BYTES) in caught.value.message
