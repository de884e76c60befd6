"""Writes the checkpoint as a Hub repository and checks it against transformers.

    python export.py --work DIR --out MODEL_DIR
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

import data
import scores
import tokenizer
from pictures import MAX_PIXELS, MIN_PIXELS
from model import MERGE, PATCH, TEMPORAL, TEXT, VISION, Demo, layer_types



def config(tok, vocab_size):
    ids = tok.token_to_id
    text = {
        "attention_bias": False, "attention_dropout": 0.0, "attn_output_gate": True, "bos_token_id": None, "dtype": "bfloat16",
        "eos_token_id": ids("<|endoftext|>"), "full_attention_interval": TEXT["full_attention_interval"], "head_dim": TEXT["head_dim"], "hidden_act": "silu",
        "hidden_size": TEXT["hidden_size"], "initializer_range": 0.02, "intermediate_size": TEXT["intermediate_size"], "layer_types": layer_types(),
        "linear_conv_kernel_dim": TEXT["linear_conv_kernel_dim"], "linear_key_head_dim": TEXT["linear_key_head_dim"],
        "linear_num_key_heads": TEXT["linear_num_key_heads"], "linear_num_value_heads": TEXT["linear_num_value_heads"],
        "linear_value_head_dim": TEXT["linear_value_head_dim"], "mamba_ssm_dtype": "float32", "max_position_embeddings": 4096,
        "model_type": "qwen3_5_text", "mtp_num_hidden_layers": 1, "mtp_use_dedicated_embeddings": False,
        "num_attention_heads": TEXT["num_attention_heads"], "num_hidden_layers": TEXT["num_hidden_layers"],
        "num_key_value_heads": TEXT["num_key_value_heads"], "pad_token_id": None, "partial_rotary_factor": TEXT["partial_rotary_factor"],
        "rms_norm_eps": 1e-06,
        "rope_parameters": {"mrope_interleaved": True, "mrope_section": TEXT["mrope_section"], "partial_rotary_factor": TEXT["partial_rotary_factor"],
                            "rope_theta": TEXT["rope_theta"], "rope_type": "default"},
        "tie_word_embeddings": True, "use_cache": True, "vocab_size": vocab_size,
    }
    vision = {
        "deepstack_visual_indexes": [], "depth": VISION["depth"], "hidden_act": "gelu_pytorch_tanh", "hidden_size": VISION["hidden_size"],
        "in_channels": 3, "initializer_range": 0.02, "intermediate_size": VISION["intermediate_size"], "model_type": "qwen3_5",
        "num_heads": VISION["num_heads"], "num_position_embeddings": VISION["side"] ** 2, "out_hidden_size": TEXT["hidden_size"],
        "patch_size": PATCH, "spatial_merge_size": MERGE, "temporal_patch_size": TEMPORAL,
    }
    return {
        "architectures": ["Qwen3_5ForConditionalGeneration"], "image_token_id": ids("<|image_pad|>"), "model_type": "qwen3_5", "text_config": text,
        "tie_word_embeddings": True, "transformers_version": "5.24.0", "video_token_id": ids("<|video_pad|>"), "vision_config": vision,
        "vision_end_token_id": ids("<|vision_end|>"), "vision_start_token_id": ids("<|vision_start|>"),
    }


def processor_config(kind):
    sizes = {"longest_edge": MAX_PIXELS * (1 if kind == "image" else 4), "shortest_edge": MIN_PIXELS}
    common = {"size": sizes, "patch_size": PATCH, "temporal_patch_size": TEMPORAL, "merge_size": MERGE, "image_mean": [0.5] * 3,
              "image_std": [0.5] * 3, "processor_class": "Qwen3VLProcessor"}
    return common | ({"image_processor_type": "Qwen2VLImageProcessorFast"} if kind == "image" else {"video_processor_type": "Qwen3VLVideoProcessor"})


def stored(name, tensor):
    """bf16, but these two in f32, as the family's dense checkpoints have them."""
    keep = name.endswith("A_log") or name.endswith("linear_attn.norm.weight")
    return tensor.detach().to(torch.float32 if keep else torch.bfloat16).contiguous()


def write(work, out):
    tok = tokenizer.load(work)
    saved = torch.load(work / "checkpoint.pt", weights_only=True)
    out.mkdir(parents=True, exist_ok=True)
    tensors = {name: stored(name, t) for name, t in sorted(saved["model"].items())}
    save_file(tensors, out / "model.safetensors", metadata={"format": "pt"})
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        shutil.copyfile(work / name, out / name)
    tokenizer.write_json(out / "config.json", config(tok, tokenizer.rows(tok)))
    end, text_end = tok.token_to_id("<|im_end|>"), tok.token_to_id("<|endoftext|>")
    # top_k 1 is greedy at any temperature: so small a model has one good answer and many bad ones. The penalty is named
    # because Loquat would otherwise take the one of the family's model cards.
    tokenizer.write_json(out / "generation_config.json", {
        "bos_token_id": text_end, "do_sample": True, "eos_token_id": [end, text_end], "pad_token_id": text_end, "temperature": 0.2, "top_k": 1,
        "top_p": 1.0, "presence_penalty": 0.0, "repetition_penalty": 1.0, "transformers_version": "5.24.0"})
    tokenizer.write_json(out / "preprocessor_config.json", processor_config("image"))
    tokenizer.write_json(out / "video_preprocessor_config.json", processor_config("video"))
    print(f"step {saved['step']}, {sum(t.numel() for t in tensors.values()):,} parameters, "
          f"{sum(f.stat().st_size for f in out.iterdir()) / 2**20:.2f} MiB")


def load_demo(folder):
    """The exported weights in the training's own model, f32, with its encoder."""
    encoder = data.Encoder(tokenizer.load(folder))
    model = Demo(tokenizer.rows(encoder.tokenizer))
    model.load_state_dict({k: v.float() for k, v in load_file(folder / "model.safetensors").items()})
    return model.eval(), encoder


def load_transformers(folder):
    import transformers

    transformers.logging.set_verbosity_error()
    reference, info = transformers.Qwen3_5ForConditionalGeneration.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager", output_loading_info=True)
    assert not info["missing_keys"] and not info["mismatched_keys"], info
    assert all(k.startswith("mtp.") for k in info["unexpected_keys"]), info["unexpected_keys"]
    return reference.eval(), transformers.AutoProcessor.from_pretrained(folder)


def messages(example):
    """The conversation as the chat template takes it."""
    turns = [{"role": "system", "content": example.system}] if example.system else []
    images = [{"type": "image"} for _ in example.pictures]
    said = [question for question, _ in example.history] + [example.question]
    content = [[{"type": "text", "text": text}] for text in said]
    content[example.picture_turn] = content[example.picture_turn] + images if example.picture_last else images + content[example.picture_turn]
    for parts, (_, answer) in zip(content, example.history):
        turns += [{"role": "user", "content": parts}, {"role": "assistant", "content": answer}]
    return turns + [{"role": "user", "content": content[-1]}]


def inputs(processor, example, resized=False):
    text = processor.apply_chat_template(messages(example), add_generation_prompt=True, tokenize=False, **({"enable_thinking": True} if example.thinking else {}))
    assert text == example.prompt(), (text, example.prompt())
    return processor(text=[text], images=(example.pictures if resized else example.originals) or None, return_tensors="pt")


@torch.no_grad()
def check(out):
    """Prompts, ids, pixels and logits of the two implementations, on some training examples."""
    demo, encoder = load_demo(out)
    reference, processor = load_transformers(out)
    worst = {"pixels": 0.0, "logits": 0.0}
    differ = total = 0
    for i in range(24):
        rng = data.stream("export check", i)
        example = data.picture_example(rng, "train", data.pictures.frame(rng), 1 + i % 3) if i % 2 else data.text_example(rng, "train")
        got = inputs(processor, example, resized=True)
        batch = encoder.batch([example], replies=[[]])
        n = len(encoder.prompt_ids(example))
        assert got["input_ids"][0].tolist() == batch["ids"][0, :n].tolist(), example
        if example.pictures:
            ours = batch["patches"].reshape(-1, 3, 1, 256).expand(-1, -1, 2, -1).flatten(1)
            worst["pixels"] = max(worst["pixels"], float((got["pixel_values"] - ours).abs().max()))
        want = reference(**got).logits[0]
        hidden, _, _ = scores.forward(demo, encoder, batch, 0)
        ours = demo.head(hidden)[0, :n]
        worst["logits"] = max(worst["logits"], float((want - ours).abs().max()))
        differ += int((want.argmax(-1) != ours.argmax(-1)).sum())
        total += n
    print(f"against transformers: largest difference of pixels {worst['pixels']:.2g}, of logits {worst['logits']:.2g}; {differ} of {total} argmax differ")
    assert worst["pixels"] < 1e-5 and worst["logits"] < 5e-3, worst


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--work", type=Path, required=True)
    ap.add_argument("--out", type=Path, required=True)
    args = ap.parse_args()
    torch.set_num_threads(1)
    write(args.work, args.out)
    check(args.out)


if __name__ == "__main__":
    main()
