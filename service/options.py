"""What a client may ask for, and what the engine is asked in its place."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from service.errors import InvalidArgumentError
from service.plan import RunnerLimits
from service.requests import SearchOptions


@dataclass(frozen=True)
class TranslateOptions:
    """How to translate, and what to return.

    Attributes:
        split_sentences: translate sentence by sentence. Otherwise a text is one sequence, its
            inner line breaks are white space like any other, and it is cut only where it is longer
            than the model takes.
        max_new_tokens: most tokens for each sentence, EOS included; None follows its length.
        search: how; its `max_new_tokens` and `num_hypotheses` are not used.
        num_hypotheses: translations of each sentence to return, best first; None for the text only.
        return_tokens: whether to return the tokens of each hypothesis.
    """

    split_sentences: bool = True
    max_new_tokens: int | None = None
    search: SearchOptions = field(default_factory=SearchOptions)
    num_hypotheses: int | None = None
    return_tokens: bool = False

    @property
    def returns_sentences(self) -> bool:
        """Whether more than the text is asked for."""
        return self.num_hypotheses is not None or self.return_tokens

    def search_options(self, limits: RunnerLimits) -> SearchOptions:
        """What to ask of the engine.

        Raises:
            InvalidArgumentError: a value is out of range; names the client's field and the limit.
        """
        most, wanted = limits.max_target_positions, self.max_new_tokens
        if wanted is not None and not 1 <= wanted <= most:
            raise InvalidArgumentError(
                "options.max_new_tokens", f"must be between 1 and {most:,}, not {wanted:,}"
            )
        most = self.search.beam_size
        count = 1 if self.num_hypotheses is None else self.num_hypotheses
        if not 1 <= count <= most:
            raise InvalidArgumentError(
                "options.num_hypotheses",
                f"must be between 1 and options.search.beam_size, {most}, not {count}",
            )
        try:
            self.search.check_fits(limits)
        except InvalidArgumentError as exc:
            raise exc.within("options.search") from exc
        return replace(self.search, max_new_tokens=wanted, num_hypotheses=count)

    def check_streamable(self) -> None:
        """Whether a translation can be given out while it grows.

        Raises:
            InvalidArgumentError: it can't; names the field.
        """
        if self.search.beam_size > 1:
            raise InvalidArgumentError(
                "options.search.beam_size",
                f"must be 1 in a stream, not {self.search.beam_size}: the beginning of a "
                f"translation can change while a beam is searched",
            )
        for name in ("num_hypotheses", "return_tokens"):
            if getattr(self, name):
                raise InvalidArgumentError(f"options.{name}", "a stream returns only the text")
