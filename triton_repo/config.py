"""``config.pbtxt`` through Triton's own protobuf: built, printed and parsed, never pasted together."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from specbuild.errors import Fault, ToolchainError
from specbuild.triton_repo.models.speculate.contract import INPUTS, OUTPUTS, Tensor

FILE = "config.pbtxt"


def build(model_name: str) -> Any:
    """The ``ModelConfig`` of the served model; complete, for servers that do not complete configs themselves."""
    pb, _ = _protobuf()
    config = pb.ModelConfig(
        name=model_name,
        backend="python",
        max_batch_size=0,
        input=[pb.ModelInput(optional=True, **_tensor(tensor)) for tensor in INPUTS],
        output=[pb.ModelOutput(**_tensor(tensor)) for tensor in OUTPUTS],
        instance_group=[pb.ModelInstanceGroup(kind=pb.ModelInstanceGroup.KIND_CPU, count=1)],
        model_transaction_policy=pb.ModelTransactionPolicy(decoupled=True),
    )
    config.version_policy.latest.num_versions = 1
    return config


def to_text(config: Any) -> str:
    """A config as ``config.pbtxt``; a zero max_batch_size is written out, which protobuf itself would not do."""
    _, text_format = _protobuf()
    return ("" if config.max_batch_size else "max_batch_size: 0\n") + str(text_format.MessageToString(config))


def parse(text: str) -> Any:
    """The config of a text. Raises ``google.protobuf.text_format.ParseError`` with line and column."""
    pb, text_format = _protobuf()
    return text_format.Parse(text, pb.ModelConfig())


def faults(path: Path, model_name: str) -> Iterator[Fault]:
    """What keeps the config at ``path`` from serving this model; fields that we do not set are the user's own."""
    _, text_format = _protobuf()
    try:
        text = path.read_text(encoding="utf-8")
        actual = parse(text)
    except (OSError, UnicodeDecodeError, text_format.ParseError) as error:
        yield Fault(f"cannot be read: {error}", str(path), "render the repository again")
        return
    if "max_batch_size" not in text:
        yield Fault("max_batch_size is not written", str(path), "add max_batch_size: 0")
    wanted = build(model_name)
    for name in ("max_batch_size", *(field.name for field, _ in wanted.ListFields())):
        if getattr(actual, name) != getattr(wanted, name):
            yield Fault(
                f"{name} is not what the model was written for: {_short(getattr(actual, name))}",
                str(path),
                f"the model needs: {_short(getattr(wanted, name))}",
            )


def _tensor(tensor: Tensor) -> dict[str, Any]:
    return {"name": tensor.name, "data_type": f"TYPE_{tensor.data_type}", "dims": tensor.dims}


def _short(value: Any) -> str:
    text = " ".join(str(value).split())
    return text if len(text) <= 120 else f"{text[:120]}…"


def _protobuf() -> tuple[Any, Any]:
    """``model_config_pb2`` and ``text_format``."""
    try:
        from google.protobuf import text_format
        from tritonclient.grpc import model_config_pb2
    except ImportError as error:
        raise ToolchainError(
            f"tritonclient is not installed: {error}", fix="pip install 'specbuild[client]'"
        ) from error
    return model_config_pb2, text_format
