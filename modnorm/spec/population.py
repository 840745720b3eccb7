"""The number of candidates and the reported ensembles."""

from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from modnorm.spec.section import Int, Section, field_fault
from modnorm.spec_limits import MAX_SEED

MAX_POPULATION = 100_000
"""Largest allowed N; the paper's largest population is 3,000."""
MAX_REPORTED = 1_000
"""Largest number of prefixes and of ensemble sizes; the paper has ten."""


class PopulationSpec(Section):
    """The number of candidates, the nested prefixes and the ensembles."""

    added_fields: ClassVar[frozenset[str]] = frozenset({"statistics"})

    size: Int = Field(ge=1, le=MAX_POPULATION)
    """N: candidates sampled and scored."""
    prefixes: tuple[Int, ...] = Field(default=(), max_length=MAX_REPORTED)
    """Nested population sizes to report; by default only N."""
    ensemble_sizes: tuple[Int, ...] = Field(default=(1,), max_length=MAX_REPORTED)
    """Ensemble sizes K to report."""
    seed: Int = Field(default=42, ge=0, le=MAX_SEED)
    pool: Literal["nested", "published"] = "nested"
    """`nested`: the first n candidates do not depend on N.

    `published`: numpy's choice, as in the published pools, which depends on N.
    """
    noise: str = "portable-v1"
    """Name of the noise scheme; `randopt-reseed-v1` is the published one."""
    statistics: Literal["experts", "full"] = "experts"
    """`experts`: skip work that can change no expert, no vote and no metric (docs/early-stop.md).

    `full`: every candidate and every expert answers every row.
    """

    @model_validator(mode="after")
    def _prefixes_fit(self) -> Self:
        prefixes = self.reported_prefixes
        if sorted(set(prefixes)) != list(prefixes) or prefixes[0] < 1:
            raise field_fault("prefixes", "must be positive, distinct and ascending")
        if prefixes[-1] != self.size:
            raise field_fault("prefixes", f"the largest prefix must equal size ({self.size})")
        return self

    @model_validator(mode="after")
    def _ensembles_fit(self) -> Self:
        sizes, smallest = self.ensemble_sizes, self.reported_prefixes[0]
        if not sizes:
            raise field_fault("ensemble_sizes", "must name at least one K")
        if min(sizes) < 1:
            raise field_fault("ensemble_sizes", f"K must be at least 1, not {min(sizes)}")
        if sorted(set(sizes)) != list(sizes):
            raise field_fault("ensemble_sizes", "must be distinct and ascending")
        if sizes[-1] > smallest:
            least, raised = ("the smallest prefix", "prefix") if self.prefixes else ("N", "size")
            raise field_fault(
                "ensemble_sizes",
                f"K = {sizes[-1]} is greater than {least} ({smallest}); lower K or raise the "
                f"{raised}, since an ensemble is K of the first N candidates",
            )
        return self

    @property
    def reported_prefixes(self) -> tuple[int, ...]:
        """The reported population sizes, ascending."""
        return self.prefixes or (self.size,)
