"""A model for long sources through a real server: limits of both sides, unsupported options."""

from __future__ import annotations

from pathlib import Path

from tests.client_errors import refused
from tests.factories import tiny_bundle
from tests.integration.servers import running_bundle

SENTENCE = "A dog is running across the green field and two men are playing the guitar."


async def test_a_long_source_is_read_at_once(tmp_path: Path) -> None:
    tiny_bundle(
        tmp_path / "tiny",
        name="tiny",
        precision="int8",
        positions="concatenated",
        encoder_attention="linformer",
        cross_attention="linformer",
        attention_rank=8,
        max_source_positions=300,
        max_target_positions=20,
    )
    async with running_bundle(tmp_path / "tiny") as server:
        client = server.client
        [model] = await client.list_models()
        limits = model.limits
        assert (limits.max_source_tokens, limits.max_target_tokens) == (300, 20)
        text = " ".join([SENTENCE.rstrip(".")] * 4)
        [alone] = (await client.translate([text], split_sentences=False)).translations
        assert alone.error is None
        assert not alone.was_split
        assert 64 < alone.num_source_tokens < 300
        assert alone.num_target_tokens <= 20
        among = await client.translate([SENTENCE, text, "The lake."], split_sentences=False)
        assert among.translations[1].text == alone.text
        [score] = (await client.score([(text, "Ein Hund.")])).scores
        assert score.log_probability < 0.0
        for call in (
            client.score([(text, "Ein Hund.")], return_alignments="hard"),
            client.translate([text], return_alignments="soft"),
        ):
            await refused(call, "FAILED_PRECONDITION", r"return_alignments.*weighted sums")
