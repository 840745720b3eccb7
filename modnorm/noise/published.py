"""`randopt-reseed-v1`: the noise of the published RandOpt and Modular Norm RandOpt results.

One torch generator on the weights' device is seeded with the candidate seed again for every
tensor, and draws in the weight dtype. So tensors of one shape get the same noise, and tensors of
one candidate are not independent. The values depend on the device type and, on CUDA, for large
tensors on the model of the GPU, and on the torch release: a candidate can be rebuilt only on the
kind of machine that scored it. Offered to compare with published numbers; `portable-v1` is the
default for everything else.
"""

import torch

from modnorm.noise.protocol import Block


class PublishedNoise:
    """A torch generator that every tensor starts again from the candidate seed."""

    name = "randopt-reseed-v1"
    portable = False

    def sample(  # noqa: PLR0913 - a tensor of a candidate is named by all of these
        self,
        seed: int,
        tensor: str,  # noqa: ARG002 - of the protocol; every tensor shares the stream
        shape: tuple[int, ...],
        *,
        dtype: torch.dtype,
        device: torch.device,
        block: Block | None = None,
    ) -> torch.Tensor:
        """Return the noise of a block, cut from that of the whole; see `NoiseScheme.sample`."""
        block = block or Block.whole(shape)
        size = block.shape_in(shape)
        generator = torch.Generator(device=device).manual_seed(seed)
        noise = torch.randn(shape, generator=generator, dtype=dtype, device=device)
        part = block.of(noise)
        return part.to(torch.float32) if size == shape else part.to(torch.float32, copy=True)
