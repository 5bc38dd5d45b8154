"""The encoder on a device."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import onnxruntime as ort

from model.bundle.bundle import Bundle
from model.bundle.sessions import Device, SessionSettings, launch_options, open_session
from service.domain.plan import EncodeItem
from service.runtime.cpu.kv_cache import cache_names
from service.runtime.cuda.staging import Staging
from service.runtime.source_batches import padded, similar_lengths

_MAX_ENCODE_PADDING = 2_048

ENCODE_TOKEN_BUDGET = 4_096
"""Most source tokens encoded in one iteration: enough to replace the rows that end in a step."""

MAX_ENCODE_TOKENS = ENCODE_TOKEN_BUDGET + _MAX_ENCODE_PADDING
"""Most tokens of one run, padding included; a longer source has its own run. A run of any size is a
hundred launches, so a few large runs are best."""


class DeviceEncoder:
    """The encoder's session: sources in, keys and values on the device out.

    Attributes:
        session: the session itself, for scoring.
    """

    def __init__(self, bundle: Bundle, settings: SessionSettings) -> None:
        self.session = open_session(bundle, bundle.encoder_path, settings)
        self._device = Device.parse(settings.device)
        self._pad_id = bundle.config.pad_id
        self._kept = bundle.config.num_memory_rows
        self._options = launch_options(settings)
        self._names = cache_names(bundle.config.num_decoder_layers)

    def encode(
        self, items: Sequence[EncodeItem], staging: Staging
    ) -> Iterator[tuple[list[EncodeItem], dict[str, ort.OrtValue]]]:
        """Encode items in batches, each with outputs key_0, value_0, key_1 ...: [B, H, S, Dh].

        The batches are launched, not waited for. When the caller drops the outputs, a later run on
        the stream may reuse their memory.
        """
        # Low-rank attention keeps the same number of positions for short and long sources.
        sizes = [len(item.source_ids) for item in items]
        lengths = [max(size, self._kept(size)) for size in sizes]
        for numbers in similar_lengths(lengths, MAX_ENCODE_TOKENS, _MAX_ENCODE_PADDING):
            batch = [items[number] for number in numbers]
            yield batch, self._encode(batch, staging)

    def _encode(self, batch: list[EncodeItem], staging: Staging) -> dict[str, ort.OrtValue]:
        source_ids, lengths = padded([item.source_ids for item in batch], self._pad_id)
        io: Any = self.session.io_binding()
        inputs = ("source_ids", "source_lengths")
        for name, array in zip(inputs, staging.upload(source_ids, lengths), strict=True):
            array.bind(io.bind_input, name)
        for name in self._names:
            io.bind_output(f"cross_{name}", self._device.kind, self._device.index)
        self.session.run_with_iobinding(io, self._options)
        return dict(zip(self._names, io.get_outputs(), strict=True))
