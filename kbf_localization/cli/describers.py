"""The options by which commands are told what describes images."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from kbf_localization.cli.options import parse_image_size
from kbf_localization.errors import ParameterError

if TYPE_CHECKING:
    from kbf_localization.vision.recipe import Recipe

Model = Annotated[
    Optional[Path],
    typer.Option(
        "--model", metavar="NET.onnx", help="The network that the map was made with, if any."
    ),
]
NewModel = Annotated[
    Optional[Path],
    typer.Option("--model", metavar="NET.onnx", help="The network of the describer onnx."),
]
_DESCRIBER = (
    "What describes images: sift, onnx, a product sift*onnx, or a weighted sum sift+onnx or "
    "0.3*sift+0.7*onnx"
)
Describer = Annotated[str, typer.Option(help=f"{_DESCRIBER}.")]
Describers = Annotated[
    Optional[list[str]],
    typer.Option(
        "--describer",
        metavar="NAME",
        help=f"Repeated, a map with each is built and evaluated. {_DESCRIBER}; default: sift.",
    ),
]
InputSize = Annotated[
    Optional[str],
    typer.Option(metavar="WxH", help="The network's input size, where it does not fix one."),
]
Normalize = Annotated[
    str,
    typer.Option(
        help="What the network wants: imagenet, none (grey levels in 0 to 1), or mean,std."
    ),
]
OutputName = Annotated[
    Optional[str], typer.Option(help="The network's output to take; default: its first.")
]
Pool = Annotated[
    Optional[str],
    typer.Option(help="How feature maps become a vector: gem (default), mean or none."),
]
Kernel = Annotated[
    str, typer.Option(help="The network's kernel: gaussian or cosine; the map learns its scale.")
]


def recipes_of(
    texts: Sequence[str],
    model: Path | None,
    input_size: str | None,
    normalize: str,
    output_name: str | None,
    pool: str | None,
    kernel: str,
) -> list[Recipe]:
    """The describers that these options ask for; the network is loaded and tried here, once."""
    from kbf_localization.vision.onnx_describer import OnnxDescriber
    from kbf_localization.vision.recipe import Recipe

    recipes = [Recipe(text) for text in dict.fromkeys(texts)]
    if not any(OnnxDescriber.name in recipe.names() for recipe in recipes):
        if model is not None:
            raise ParameterError(
                f"--model {model}: --describer {', '.join(texts)} uses no network; write "
                f"--describer onnx or '{texts[0]}*onnx'"
            )
        return recipes
    if model is None:
        raise ParameterError("--describer onnx needs a network: name it with --model NET.onnx")
    network = OnnxDescriber(
        model,
        input_size=None if input_size is None else parse_image_size(input_size, "--input-size"),
        normalize=normalize,
        output_name=output_name,
        pool=pool,
        kernel=kernel,
    )
    return [Recipe(recipe.text, {OnnxDescriber.name: network}) for recipe in recipes]
