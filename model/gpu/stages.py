"""The stages of a plan: a teacher, its back-translations, and a student for each direction."""

from __future__ import annotations

import copy
import logging
import time
from pathlib import Path

import numpy as np
import sacrebleu
import torch

from model.data.corpus import Int64
from model.data.packed_corpus import MANIFEST_FILE, packed_side, write_pieces
from model.gpu.batches import MixedBatches
from model.gpu.packs import read_pairs, read_text
from model.gpu.plan import BackTranslationPlan, StudentPlan, TimedTraining, TranslationPlan
from model.gpu.text import StoredCorpus, StoredSide, TokenStore
from model.gpu.training import Guidance, links_by, reversed_links, train
from model.gpu.translation import StoredTranslations, translate
from model.network.checkpoint import load_checkpoint, save_checkpoint
from model.network.transformer import Transformer

logger = logging.getLogger(__name__)

FORWARD, BACKWARD = "forward", "backward"
_TEACHER_FILE = "teacher.pt"
_PIECE_BYTES = 15 * 2**20
_SEED = 1


class Stages:
    """The trainings of a plan, each with its results in `work`.

    Args:
        work: a folder that stays between two calls.
        init: the checkpoint that students start from. A head of its network has learnt to align.
        pairs, text: folders of pieces.

    Raises:
        PackError: a piece is missing or damaged.
        ValueError: the checkpoint has another vocabulary, or no head that aligns.
    """

    def __init__(
        self, plan: BackTranslationPlan, work: Path, init: Path, pairs: Path, text: Path
    ) -> None:
        self.plan, self.work = plan, work
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        torch.manual_seed(_SEED)
        torch.set_float32_matmul_precision("high")
        self.start = load_checkpoint(init)
        packed = read_pairs(pairs)
        self.tokenizer = packed.tokenizer
        if self.tokenizer.serialized() != self.start.tokenizer.serialized():
            raise ValueError(f"{init} has another vocabulary than {pairs}")
        if self.start.alignment_head is None:
            raise ValueError(f"{init} has no head that has learnt to align")
        self.head = self.start.alignment_head
        ids = {"pad_id": self.tokenizer.pad_id, "eos_id": self.tokenizer.eos_id}
        self.store = TokenStore(self.device, **ids)
        self.num_pieces = self.tokenizer.vocab_size
        # The teacher's tokens for the direction.
        self.directions = {FORWARD: self.num_pieces, BACKWARD: self.num_pieces + 1}
        sources, targets = self.store.add(packed.sources), self.store.add(packed.targets)
        self.pairs, first = [], 0
        for name, count, weight in packed.corpora:
            part = np.arange(first, first + count)
            weight = plan.weights.get(name, weight)
            self.pairs.append(StoredCorpus(name, sources.at(part), targets.at(part), weight))
            first += count
        self.tests = packed.tests
        self.text = []
        for one in read_text(text):
            places = self.store.add(one.side)
            self.text.append(StoredCorpus(one.name, places, places, one.weight))
        logger.info("%d pairs in %d corpora", first, len(self.pairs))

    def run(self) -> None:
        """All stages in order, without those that have ended."""
        if not self._has_ended(FORWARD):
            self._student(FORWARD, self.plan.forward, self._back_translations(self._teacher()))
        if not self._has_ended(BACKWARD):
            self._student(BACKWARD, self.plan.backward, [])

    def _has_ended(self, direction: str) -> bool:
        return (self._pieces(direction) / MANIFEST_FILE).exists()

    def _pieces(self, direction: str) -> Path:
        return self.work / f"{direction}-pieces"

    def _teacher(self) -> Transformer:
        """The teacher in bfloat16, from its file if there is one."""
        plan, file = self.plan.teacher, self.work / _TEACHER_FILE
        model = Transformer(plan.network_config(self.num_pieces)).to(self.device)
        logger.info("teacher: %.1f million parameters", model.num_parameters() / 1e6)
        if file.exists():
            model.load_state_dict(torch.load(file, map_location=self.device))
            return _in_bfloat16(model)
        forward = [corpus.with_prefix(self.directions[FORWARD]) for corpus in self.pairs]
        backward = [c.reversed().with_prefix(self.directions[BACKWARD]) for c in self.pairs]
        share = plan.forward_share
        batches = self._batches([(share, forward), (1.0 - share, backward)], plan)
        done = train(
            model,
            batches,
            plan.schedule(),
            label_smoothing=plan.label_smoothing,
            max_updates=plan.max_updates,
        )
        # A file of this name is complete.
        torch.save(model.state_dict(), file.with_suffix(".partial"))
        file.with_suffix(".partial").replace(file)
        logger.info("teacher: %d updates, %d target tokens", done.updates, done.target_tokens)
        for direction, token in self.directions.items():
            self.scores("teacher", direction, done.worker, (token,))
        return done.worker

    def _back_translations(self, teacher: Transformer) -> list[StoredCorpus]:
        """Pairs of a translation and the sentence that it was made from."""
        plan, began = self.plan.translation, time.monotonic()
        corpora = [_chosen(corpus, plan) for corpus in self.text]
        found = translate(
            teacher,
            self.store,
            StoredSide.joined([corpus.sources for corpus in corpora]),
            (self.directions[BACKWARD],),
            num_pieces=self.num_pieces,
            batch_tokens=plan.batch_tokens,
            most_rows=plan.most_rows,
        )
        logger.info("%d translations, %.1f s", len(found.side), time.monotonic() - began)
        pairs, first = [], 0
        for corpus in corpora:
            part = found.at(np.arange(first, first + len(corpus)))
            first += len(corpus)
            good = good_translations(corpus.sources, part, plan.left_out)
            logger.info("%s: %d of %d", corpus.name, len(good), len(corpus))
            sides = part.side.at(good), corpus.sources.at(good)
            pairs.append(StoredCorpus(f"back-translated-{corpus.name}", *sides, corpus.weight))
        return pairs

    def _student(self, direction: str, plan: StudentPlan, back: list[StoredCorpus]) -> None:
        model = copy.deepcopy(self.start.model).to(self.device)
        links = links_by(_in_bfloat16(model), self.head)
        real, languages = self.pairs, dict(self.start.languages)
        if direction == BACKWARD:
            real = [corpus.reversed() for corpus in real]
            links = reversed_links(links, model.config.bos_id)
            languages = {"source": languages["target"], "target": languages["source"]}
        batches = self._batches([(1.0 - plan.back_share, real), (plan.back_share, back)], plan)
        done = train(
            model,
            batches,
            plan.schedule(),
            label_smoothing=plan.label_smoothing,
            guidance=Guidance(self.head, plan.alignment_weight, links, plan.align_after),
            max_updates=plan.max_updates,
        )
        cuda = self.device.type == "cuda"
        folder = self.work / direction
        save_checkpoint(
            folder,
            model,
            self.start.tokenizer,
            languages=languages,
            provenance={
                "updates": done.updates,
                "target_tokens": done.target_tokens,
                "device": torch.cuda.get_device_name() if cuda else "CPU",
                "precision": "bf16",
                "corpora": [corpus.name for corpus in batches.corpora],
                "shares": [round(float(share), 5) for share in batches.shares],
            },
            alignment_head=self.head,
            trained_length=self.start.trained_length,
            dtype="fp16",
        )
        logger.info("%s: %d updates, %d target tokens", direction, done.updates, done.target_tokens)
        self.scores("student", direction, done.worker, ())
        # The pieces' manifest is written last, and says that this stage has ended.
        files = {file.name: file.read_bytes() for file in sorted(folder.iterdir())}
        write_pieces(files, self._pieces(direction), piece_bytes=_PIECE_BYTES, preset=0)

    def _batches(
        self, groups: list[tuple[float, list[StoredCorpus]]], plan: TimedTraining
    ) -> MixedBatches:
        return MixedBatches(
            self.store,
            groups,
            temperature=self.plan.temperature,
            batch_tokens=plan.batch_tokens,
            longest=self.plan.longest,
            seed=_SEED,
        )

    def scores(
        self, name: str, direction: str, model: Transformer, prefix: tuple[int, ...]
    ) -> dict[str, float]:
        """BLEU on each test set, also written to the log.

        Args:
            name: the model's name in the log.
            direction: the backward one swaps sources and references.
            model: the network, in evaluation mode.
            prefix: ids before every source.
        """
        plan, found = self.plan.translation, {}
        for test, sides in self.tests.items():
            began = time.monotonic()
            sources, references = sides if direction == FORWARD else sides[::-1]
            translations = translate(
                model,
                self.store,
                self.store.add(packed_side(self.tokenizer, sources)),
                prefix,
                num_pieces=self.num_pieces,
                batch_tokens=plan.batch_tokens,
                most_rows=plan.most_rows,
            )
            texts = [self.tokenizer.decode(ids) for ids in self.store.tokens(translations.side)]
            found[test] = sacrebleu.corpus_bleu(texts, [references]).score
            took = time.monotonic() - began
            logger.info(
                "%s, %s: BLEU %.1f on %s (%.1f s)", name, direction, found[test], test, took
            )
        return found


def good_translations(sources: StoredSide, found: StoredTranslations, left_out: float) -> Int64:
    """Indices of the translations to learn from.

    They have ended, are neither half as long as their sources nor twice as long, and are more
    confident than the share `left_out` of all.
    """
    if len(found.side) == 0:
        return np.zeros(0, np.int64)
    ratio = (found.side.lengths + 3) / (sources.lengths + 3)  # in short ones a token is much
    fits = (ratio > 0.5) & (ratio < 2.0) & found.ended & (found.side.lengths > 0)
    return np.flatnonzero(fits & (found.confidences >= np.quantile(found.confidences, left_out)))


def _chosen(corpus: StoredCorpus, plan: TranslationPlan) -> StoredCorpus:
    short = corpus.not_longer_than(plan.longest)
    return short.at(np.arange(0, len(short), plan.every))


def _in_bfloat16(model: Transformer) -> Transformer:
    return copy.deepcopy(model).bfloat16().eval()
