"""The profile: what the YAML says, and nothing else."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import Discriminator, Field, PrivateAttr, Tag, ValidationError, field_validator, model_validator
from typing_extensions import Self

from specbuild import yamlfile
from specbuild.errors import Fault, ProfileError
from specbuild.record import Record
from specbuild.yamlfile import Keys, YamlFile

Precision = Literal["fp16", "bf16", "int8", "int4"]
Numerics = Literal["exact", "fast"]
BudgetKey = Literal[
    "ttft_p50_ms", "ttft_p90_ms", "ttft_p95_ms", "ttft_p99_ms",
    "tpot_p50_ms", "tpot_p90_ms", "tpot_p95_ms", "tpot_p99_ms",
    "itl_p50_ms", "itl_p90_ms", "itl_p95_ms", "itl_p99_ms",
    "e2e_p50_ms", "e2e_p90_ms", "e2e_p95_ms", "e2e_p99_ms",
]  # fmt: skip
Milliseconds = Annotated[float, Field(gt=0)]
Budget = Annotated[
    Annotated[Literal["max_throughput"], Tag("<word>")]
    | Annotated[dict[BudgetKey, Milliseconds], Field(min_length=1), Tag("<limits>")],
    Discriminator(lambda value: "<word>" if isinstance(value, str) else "<limits>"),
]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$")]


class Calibration(Record):
    """Text that a data-aware weight compression looks at."""

    data: str = "traffic"
    """``traffic`` (the profile's own) or a text file, one sample a line."""
    size: Annotated[int, Field(ge=1, le=4096)] = 32
    """Samples taken."""
    max_seq_length: Annotated[int, Field(ge=8)] = 256
    """Tokens kept of each sample."""


class ModelSpec(Record):
    """One model of the pair."""

    model: Annotated[str, Field(min_length=1)]
    """A folder in the Hugging Face layout (relative to the profile), or a hub id."""
    revision: str | None = None
    """Commit, tag or branch of a hub id."""
    precision: Precision
    """Weights of the compiled engine."""
    calibration: Calibration | None = None
    """Given: int4 weights are compressed data-aware (AWQ and scale estimation)."""

    @model_validator(mode="after")
    def _calibrated(self) -> Self:
        if self.calibration is not None and self.precision != "int4":
            raise ValueError(f"calibration is for int4 weights; {self.precision} takes none")
        return self


class Limits(Record):
    """What the engines must hold; tokens, and requests at once."""

    max_batch_size: Annotated[int, Field(ge=1, le=256)] = 8
    """Requests decoded at once."""
    max_input_len: Annotated[int, Field(ge=1)] = 1536
    """Prompt tokens of one request."""
    max_seq_len: Annotated[int, Field(ge=2)] = 2048
    """Prompt and output tokens of one request."""
    max_draft_len: Annotated[int, Field(ge=1, le=32)] = 8
    """Longest draft in one round."""
    kv_cache_gib: Annotated[int, Field(ge=1)] = 1
    """KV cache pool of each model, whole GiB."""

    @model_validator(mode="after")
    def _room_for_output(self) -> Self:
        if self.max_input_len >= self.max_seq_len:
            raise ValueError(
                f"max_input_len ({self.max_input_len}) leaves no room for output in max_seq_len ({self.max_seq_len})"
            )
        return self


class Traffic(Record):
    """The requests that a plan is tuned on, and how they arrive."""

    file: str
    """Trace in JSONL (relative to the profile)."""
    arrivals: Literal["recorded", "closed"] = "closed"
    """``recorded``: open loop at the trace's own times; ``closed``: a new request when one ends."""
    concurrency: Annotated[int, Field(ge=1, le=1024)] = 1
    """Requests at once in a closed loop."""
    speed: Annotated[float, Field(gt=0)] = 1.0
    """Recorded times are divided by this."""
    max_requests: Annotated[int, Field(ge=4)] | None = None
    """Use an evenly spread part of the trace of this size."""


class Serving(Record):
    """The served model and where it listens."""

    model_name: Name | None = None
    """Triton model name; the profile's name by default."""
    host: str = "127.0.0.1"
    """Address to listen on; loopback unless you say otherwise."""
    http_port: Annotated[int, Field(ge=1, le=65535)] = 8000
    """HTTP and ``generate_stream``."""
    grpc_port: Annotated[int, Field(ge=1, le=65535)] = 8001
    """gRPC."""
    metrics_port: Annotated[int, Field(ge=1, le=65535)] = 8002
    """/metrics."""

    @model_validator(mode="after")
    def _own_ports(self) -> Self:
        if len({self.http_port, self.grpc_port, self.metrics_port}) < 3:
            raise ValueError("http_port, grpc_port and metrics_port must differ")
        return self


class Profile(Record):
    """A draft/target pair, the precision of each, what it must hold and how fast it must be."""

    schema_version: Literal[1] = Field(1, alias="schema")
    """Version of this file's schema."""
    name: Name
    """Names the outputs of this profile."""
    stack: Literal["openvino"] = "openvino"
    """Engine software that the pair is built for."""
    numerics: Numerics = "fast"
    """``exact``: greedy output equals the target alone in every request; ``fast``: the engine's default arithmetic."""
    target: ModelSpec
    """The model whose output is served."""
    draft: ModelSpec
    """The model that proposes tokens; it shares the target's tokenizer."""
    limits: Limits = Limits()
    """What the engines must hold."""
    budgets: Annotated[dict[Name, Budget], Field(min_length=1)]
    """Latency budgets by name, each ``max_throughput`` or metric limits such as ``tpot_p95_ms: 40``."""
    traffic: Traffic
    """The requests to tune on."""
    serving: Serving = Serving()
    """How the result is served."""

    _file: YamlFile | None = PrivateAttr(None)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a profile.

        Raises ProfileError with every fault of the file at once, each with its line.
        """
        file = yamlfile.load(Path(path))
        if not isinstance(file.data, dict):
            raise ProfileError("a profile is a mapping of keys to values", where=f"{file.path}:1")
        try:
            profile = cls.model_validate(file.data, strict=True)
        except ValidationError as error:
            raise ProfileError(_faults(error, file)) from error
        profile._file = file  # noqa: SLF001 - set once, here
        return profile

    @field_validator("budgets", mode="after")
    @classmethod
    def _known_words(cls, budgets: dict[str, Budget]) -> dict[str, Budget]:
        if "off" in budgets:
            raise ValueError("'off' is what a policy says, not the name of a budget")
        return budgets

    @property
    def folder(self) -> Path:
        """The folder that relative paths of the profile start from."""
        return self._file.path.resolve().parent if self._file else Path.cwd()

    @property
    def path(self) -> Path | None:
        """The file this profile was read from."""
        return self._file.path if self._file else None

    @property
    def out(self) -> Path:
        """Where the commands write what they make of this profile: ``out/<name>`` beside it."""
        return self.folder / "out" / self.name

    @property
    def model_name(self) -> str:
        """The Triton model's name."""
        return self.serving.model_name or self.name

    def where(self, *keys: str | int) -> str:
        """``file:line`` of a key path, for messages of later checks."""
        return self._file.where(keys) if self._file else ".".join(map(str, keys))

    def resolve(self, relative: str) -> Path:
        """A path of the profile as an absolute one."""
        return (self.folder / Path(relative).expanduser()).resolve()


_WORDS = {
    "string_type": "text is wanted here; put it in quotes",
    "model_type": "a mapping of keys to values is wanted here",
    "dict_type": "a mapping of names to budgets is wanted here, each max_throughput or {tpot_p95_ms: 40} and the like",
    "string_pattern_mismatch": "letters, digits, '.', '_' and '-', at most 64, the first a letter or digit",
    "too_short": "at least one is needed",
}
"""pydantic's type of an error → what to say instead."""


def _faults(error: ValidationError, file: YamlFile) -> list[Fault]:
    faults: dict[tuple[str, str], Fault] = {}
    for item in error.errors():
        fault = _fault(dict(item), file)
        faults.setdefault((fault.where or "", fault.what), fault)
    return sorted(faults.values(), key=lambda fault: int((fault.where or ":0").rsplit(":", 1)[-1]))


def _fault(item: dict[str, Any], file: YamlFile) -> Fault:
    keys: Keys = tuple(key for key in item["loc"] if key not in ("[key]", "<word>", "<limits>"))
    dotted, where = ".".join(map(str, keys)), file.where(keys)
    if item["type"] == "missing":
        return Fault(f"missing key {dotted!r}", file.where(keys[:-1]), f"add {keys[-1]!r}")
    if item["type"] == "extra_forbidden":
        return Fault(f"unknown key {dotted!r}", where, _close_match(str(keys[-1]), _keys_at(keys[:-1])))
    if item["type"] == "literal_error":
        words = [word.strip("' ") for word in item["ctx"]["expected"].replace(" or ", ", ").split(", ")]
        named = f"unknown key {dotted!r}" if item["loc"][-1] == "[key]" else f"{dotted}: {item['input']!r} is not known"
        return Fault(named, where, _close_match(str(item["input"]), words))
    said = _WORDS.get(item["type"], item["msg"].removeprefix("Value error, "))
    shown = "" if item["type"] == "value_error" else f" (given: {_short(item['input'])})"
    return Fault(f"{dotted}: {said}{shown}", where)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:79]}…"


def _keys_at(keys: Keys) -> list[str]:
    """The key names that the schema allows below a key path."""
    model: Any = Profile
    for key in keys:
        annotation = model.model_fields[str(key)].annotation
        options = [annotation, *get_args(annotation)]
        model = next(option for option in options if isinstance(option, type) and issubclass(option, Record))
    return [field.alias or name for name, field in model.model_fields.items()]


def _close_match(given: str, known: list[str]) -> str:
    close = difflib.get_close_matches(given, known, n=1, cutoff=0.6)
    return f"did you mean {close[0]!r}?" if close else f"known here: {', '.join(known)}"
