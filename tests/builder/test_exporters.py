"""Both exporters against transformers on random models, and the paged attention of OpenVINO GenAI against both."""

import gc
import json
from pathlib import Path

import numpy as np
import pytest
from small_models import VOCAB, write_json, write_profile, write_tokenizer

from specbuild import builder
from specbuild.builder.stacks import llama
from specbuild.builder.stacks.optimum_export import export as export_with_optimum
from specbuild.errors import BuildError
from specbuild.profile import Profile

pytestmark = [
    pytest.mark.export,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # of transformers and torch themselves
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]
torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("optimum.intel", reason="optimum-intel is not installed")

EXACT = {"INFERENCE_PRECISION_HINT": "f32", "KV_CACHE_PRECISION": "f32", "DYNAMIC_QUANTIZATION_GROUP_SIZE": "0"}
SHAPE = {
    "vocab_size": VOCAB,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 4096,
}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 256,
}
MODELS = {
    "llama": ("Llama", {"tie_word_embeddings": True}),
    "llama3-untied": ("Llama", {"rope_parameters": LLAMA3, "tie_word_embeddings": False, "head_dim": 32}),
    "llama-linear-biased": (
        "Llama",
        {
            "rope_parameters": {"rope_type": "linear", "factor": 4.0, "rope_theta": 10000.0},
            "attention_bias": True,
            "mlp_bias": True,
        },
    ),
    "mistral": ("Mistral", {"sliding_window": None}),
    "qwen2": ("Qwen2", {"tie_word_embeddings": True}),
    "qwen3": ("Qwen3", {"head_dim": 32}),
}


def save_random(folder: Path, family: str, changes: dict, dtype=torch.float32, shards: str = "1GB") -> Path:
    """A random model of transformers' own making, with gains and biases away from their neutral start."""
    import transformers

    config = getattr(transformers, f"{family}Config")(**{**SHAPE, "eos_token_id": VOCAB - 2, **changes})
    torch.manual_seed(7)
    model = getattr(transformers, f"{family}ForCausalLM")(config).to(dtype)
    for parameter in model.parameters():
        noise = torch.randn_like(parameter)
        parameter.data = parameter + 0.2 * noise if parameter.dim() == 1 else 0.15 * noise
    model.save_pretrained(folder, max_shard_size=shards)
    write_tokenizer(folder)
    return folder


def reference(folder: Path, ids: np.ndarray) -> np.ndarray:
    """float32 [tokens, vocab] by transformers."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    with torch.no_grad():
        return model(torch.tensor(ids[None])).logits[0].numpy()


def by_graph(folder: Path, dtype="stored"):
    from specbuild.builder.stacks import llama_graph
    from specbuild.builder.weights import read_header, weight_files

    tensors = {name: item for file in weight_files(folder) for name, item in read_header(file).items()}
    config = json.loads((folder / "config.json").read_text())
    assert llama.refusal(config, {name: item.shape for name, item in tensors.items()}) is None
    assert llama.weight_faults(config, {name: item.shape for name, item in tensors.items()}) == []
    return llama_graph.build(llama.spec(config), tensors, dtype)


def run(model, ids: np.ndarray, parts=(30, 31, 36)) -> np.ndarray:
    """float32 [tokens, vocab] by a stateful request that is fed in parts."""
    import openvino as ov

    request = ov.Core().compile_model(model, "CPU", EXACT).create_infer_request()
    found = []
    for begin, end in zip((0, *parts), (*parts, len(ids)), strict=True):
        feed = {
            "input_ids": ids[None, begin:end],
            "attention_mask": np.ones((1, end), np.int64),
            "position_ids": np.arange(begin, end, dtype=np.int64)[None],
            "beam_idx": np.zeros(1, np.int32),
        }
        found.append(request.infer(feed)["logits"][0].copy())
    return np.concatenate(found)


IDS = np.random.default_rng(3).integers(0, VOCAB - 2, 700)


@pytest.mark.parametrize("name", MODELS)
def test_our_graph_gives_the_logits_of_transformers(name, tmp_path):
    folder = save_random(tmp_path / name, *MODELS[name])
    expected = reference(folder, IDS)
    assert expected.std() > 0.5
    np.testing.assert_allclose(run(by_graph(folder), IDS), expected, atol=2e-4, rtol=0)


def test_bf16_weights_in_shards(tmp_path):
    folder = save_random(tmp_path / "m", "Llama", {"num_hidden_layers": 3}, torch.bfloat16, shards="100KB")
    assert len(list(folder.glob("*.safetensors"))) > 1
    expected = reference(folder, IDS)
    np.testing.assert_allclose(run(by_graph(folder, "bf16"), IDS), expected, atol=2e-4, rtol=0)


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """One model by both exporters, fp16."""
    root = tmp_path_factory.mktemp("exported")
    folder = save_random(root / "model", *MODELS["llama3-untied"], torch.float16)
    return folder, by_graph(folder, "fp16"), export_with_optimum(folder, root / "scratch", "fp16")


def test_both_exporters_agree(exported, tmp_path):
    folder, ours, theirs = exported
    expected = reference(folder, IDS)
    np.testing.assert_allclose(run(ours, IDS), expected, atol=2e-4, rtol=0)
    np.testing.assert_allclose(run(theirs, IDS), expected, atol=2e-4, rtol=0)
    assert not (tmp_path / "scratch").exists()


def test_both_keep_their_matrices_in_16_bits(exported):
    _, ours, theirs = exported
    for model in (ours, theirs):
        constants = [node for node in model.get_ordered_ops() if node.get_type_name() == "Constant"]
        matrices = [node for node in constants if node.data.size >= 1 << 12]
        assert len(matrices) == 7 * 2 + 2
        assert {node.get_element_type().to_string() for node in matrices} == {"f16"}


def test_paged_attention_writes_the_same_text(exported, tmp_path):
    """OpenVINO GenAI turns both graphs into paged attention; greedy output equals transformers'."""
    from transformers import AutoModelForCausalLM

    folder, ours, theirs = exported
    prompt = IDS[:40]
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    options = {"max_new_tokens": 24, "do_sample": False, "eos_token_id": None, "pad_token_id": 0}
    expected = model.generate(torch.tensor(prompt[None]), **options)[0, len(prompt) :].tolist()
    del model
    gc.collect()
    assert greedy(folder, ours, tmp_path / "ours", prompt) == expected
    assert greedy(folder, theirs, tmp_path / "theirs", prompt) == expected


def greedy(source: Path, model, folder: Path, prompt: np.ndarray) -> list[int]:
    import openvino as ov
    import openvino_genai as genai

    from specbuild.builder import tokenizer

    folder.mkdir()
    tokenizer.convert(tokenizer.load(source), folder)
    ov.save_model(model, folder / "openvino_model.xml", compress_to_fp16=False)
    for name in ("config.json", "generation_config.json"):
        (folder / name).write_bytes((source / name).read_bytes())
    scheduler = genai.SchedulerConfig()
    scheduler.cache_size = 1
    pipeline = genai.ContinuousBatchingPipeline(str(folder), scheduler, "CPU", EXACT)
    settings = genai.GenerationConfig()
    settings.max_new_tokens, settings.ignore_eos = 24, True
    handle = pipeline.add_request(0, ov.Tensor(prompt[None]), settings)
    tokens: list[int] = []
    while pipeline.has_non_finished_requests():
        pipeline.step()
        while handle.can_read():
            tokens += [token for output in handle.read().values() for token in output.generated_ids]
    return tokens


def test_an_architecture_that_only_optimum_knows_is_compiled(tmp_path):
    import transformers

    folder = tmp_path / "gpt2"
    config = transformers.GPT2Config(
        vocab_size=VOCAB, n_embd=64, n_layer=2, n_head=4, n_positions=512, bos_token_id=0, eos_token_id=VOCAB - 2
    )
    torch.manual_seed(1)
    transformers.GPT2LMHeadModel(config).save_pretrained(folder)
    write_tokenizer(folder)
    same = {"model": "gpt2", "precision": "fp16"}
    profile = Profile.load(write_profile(tmp_path, target=same, draft=same))
    engine = builder.compile(profile, store=tmp_path / "store").target
    assert engine.manifest.inputs["exporter"] == "optimum"
    assert engine.manifest.inputs["torch version"] == torch.__version__
    assert (engine.manifest.layers, engine.manifest.max_position) == (2, 512)
    assert sorted(path.suffix for path in engine.folder.glob("openvino_*")) == [".bin"] * 3 + [".xml"] * 3
    found = run(engine.folder / "openvino_model.xml", IDS[:200])
    np.testing.assert_allclose(found, reference(folder, IDS[:200]), atol=2e-2, rtol=0)


def test_what_optimum_says_last_is_told(tmp_path):
    write_json(tmp_path / "config.json", {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"]})
    with pytest.raises(
        BuildError,
        match=r"optimum-intel could not export the model \(exit code 1\):[\s\S]*no file named model.safetensors",
    ):
        export_with_optimum(tmp_path, tmp_path / "scratch", "fp16")
    assert not (tmp_path / "scratch").exists()
