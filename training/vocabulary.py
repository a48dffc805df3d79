"""The default model's tokenizer: a small byte-fallback BPE with location tokens.

Whole words for the task, colour and shape names, single characters for the rest of ASCII, and bytes
for everything else, so any Unicode phrase encodes.  Text is lower-cased, so "Red Circle" asks for the
same thing as "red circle".
"""

from __future__ import annotations

import string

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, trainers
from transformers import PreTrainedTokenizerFast

from training.scenes import COLOURS, SHAPES

PAD, EOS, BOS, UNK, IMAGE, OBJECT = "<pad>", "<eos>", "<bos>", "<unk>", "<image>", "<obj>"
LOCATIONS = tuple(f"<loc{i:04d}>" for i in range(1024))
SEGMENTS = tuple(f"<seg{i:03d}>" for i in range(128))  # PaliGemmaProcessor adds these to any tokenizer
WORDS = (*COLOURS, "grey", *SHAPES, "shape", "the", "a", "all", "every")


def build_tokenizer() -> PreTrainedTokenizerFast:
    """The tokenizer, with ids: specials, bytes, word pieces, then `<obj>`, locations, segments."""
    specials = [PAD, EOS, BOS, UNK, IMAGE]
    bytes_ = [f"<0x{i:02X}>" for i in range(256)]
    tokenizer = Tokenizer(models.BPE(unk_token=UNK, byte_fallback=True, fuse_unk=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Lowercase(), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    trainer = trainers.BpeTrainer(
        vocab_size=4096,
        min_frequency=1,
        show_progress=False,
        special_tokens=specials + bytes_,
        initial_alphabet=[*string.ascii_lowercase, *string.digits, *string.punctuation, "\n", "▁"],
    )
    texts = ["detect", "point"]
    texts += [f" {word}" for word in WORDS] + [f" {shape}s" for shape in (*SHAPES, "shape")]
    tokenizer.train_from_iterator(texts * 4, trainer=trainer)
    # Training registers the byte pieces as special tokens; rebuild so that they are ordinary vocabulary.
    trained = tokenizer.to_str()
    clean = Tokenizer.from_str(trained)
    clean = _without_added_bytes(clean)
    clean.add_special_tokens([AddedToken(t, normalized=False, special=True) for t in specials])
    clean.add_tokens([AddedToken(t, normalized=False) for t in (OBJECT, *LOCATIONS, *SEGMENTS)])
    return PreTrainedTokenizerFast(
        tokenizer_object=clean,
        pad_token=PAD,
        eos_token=EOS,
        bos_token=BOS,
        unk_token=UNK,
        extra_special_tokens={"image_token": IMAGE},
        model_max_length=1024,
        clean_up_tokenization_spaces=False,
    )


def _without_added_bytes(tokenizer: Tokenizer) -> Tokenizer:
    import json

    data = json.loads(tokenizer.to_str())
    data["added_tokens"] = []
    return Tokenizer.from_str(json.dumps(data))
