"""`randopt-reseed-v1`: the noise of the published RandOpt and Modular Norm RandOpt results.

For every tensor a torch generator on the weights' device is seeded with the candidate seed, and
draws in the weight dtype. So tensors of equal shape get equal noise; they are not independent.
The values depend on the device type and the torch release, and for large tensors on the model of
the GPU. A candidate can be rebuilt only on the kind of machine that scored it. Use this scheme
only to compare with published numbers.
"""

import torch

from modnorm.noise.protocol import Block


class PublishedNoise:
    """Noise from a torch generator that is seeded with the candidate seed for each tensor."""

    name = "randopt-reseed-v1"
    portable = False

    def sample(  # noqa: PLR0913 - all of these identify a tensor of a candidate
        self,
        seed: int,
        tensor: str,  # noqa: ARG002 - part of the protocol; all tensors share the stream
        shape: tuple[int, ...],
        *,
        dtype: torch.dtype,
        device: torch.device,
        block: Block | None = None,
    ) -> torch.Tensor:
        """Return a block of the whole tensor's noise; see `NoiseScheme.sample`."""
        block = block or Block.whole(shape)
        size = block.shape_in(shape)
        generator = torch.Generator(device=device).manual_seed(seed)
        noise = torch.randn(shape, generator=generator, dtype=dtype, device=device)
        part = block.of(noise)
        return part.to(torch.float32) if size == shape else part.to(torch.float32, copy=True)
