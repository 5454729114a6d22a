"""One side's student as an ONNX graph.

    unit(Gemm(LayerNorm(unit(x)))),   unit(v) = v / |v|, a zero row staying zero,

in float32 over a free number of rows: input `embeddings` `[n, d]`, output `shared`
`[n, k]`. The operators are those of every runtime with operator set 17.
"""

from typing import Any

import numpy as np

from anchordot_jax.extras import needs
from anchordot_jax.students import LAYER_NORM_EPSILON, Params

OPERATOR_SET = 17
# The oldest file format that has this operator set, for the oldest runtimes.
FORMAT_VERSION = 8

INPUT, OUTPUT = "embeddings", "shared"


def student_graph(side: Params, *, logit_scale: float) -> Any:
    """Return one side's student as an `onnx.ModelProto`.

    Args:
        side: the side's parameters, `params["x"]` or `params["y"]`.
        logit_scale: kept as the graph's metadata; no operator uses it.

    Raises:
        InputError: onnx is not installed.
    """
    onnx = needs("onnx", extra="export", what="The ONNX format")
    make = onnx.helper
    arrays = {
        "scale": side["norm"]["scale"],
        "shift": side["norm"]["bias"],
        "weight": side["linear"]["kernel"],
        "bias": side["linear"]["bias"],
        "one": np.ones((), np.float32),
        "zero": np.zeros((), np.float32),
    }
    d, k = np.shape(arrays["weight"])
    nodes = [
        *_unit(make, INPUT, "unit"),
        make.make_node(
            "LayerNormalization",
            ["unit", "scale", "shift"],
            ["normed"],
            axis=-1,
            epsilon=LAYER_NORM_EPSILON,
        ),
        make.make_node("Gemm", ["normed", "weight", "bias"], ["projected"]),
        *_unit(make, "projected", OUTPUT),
    ]
    graph = make.make_graph(
        nodes,
        "student",
        [make.make_tensor_value_info(INPUT, onnx.TensorProto.FLOAT, ["n", d])],
        [make.make_tensor_value_info(OUTPUT, onnx.TensorProto.FLOAT, ["n", k])],
        [
            onnx.numpy_helper.from_array(np.asarray(array, np.float32), name)
            for name, array in arrays.items()
        ],
    )
    model = make.make_model(
        graph,
        producer_name="anchordot-jax",
        opset_imports=[make.make_opsetid("", OPERATOR_SET)],
        ir_version=FORMAT_VERSION,
    )
    make.set_model_props(model, {"logit_scale": repr(logit_scale)})
    onnx.checker.check_model(model)
    return model


def _unit(make: Any, given: str, result: str) -> list[Any]:
    """Return the nodes that scale rows to unit norm."""
    norm, positive, safe = (f"{given}_{name}" for name in ("norm", "positive", "safe"))
    return [
        make.make_node("ReduceL2", [given], [norm], axes=[-1], keepdims=1),
        make.make_node("Greater", [norm, "zero"], [positive]),
        make.make_node("Where", [positive, norm, "one"], [safe]),
        make.make_node("Div", [given, safe], [result]),
    ]
