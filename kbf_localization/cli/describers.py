"""The options that choose the descriptor of images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

from typer import Option

from kbf_localization.cli.options import parse_image_size
from kbf_localization.errors import ParameterError

if TYPE_CHECKING:
    from kbf_localization.vision.recipe import Recipe

_NETWORK = "The network that the map was made with, if any."
_DESCRIPTOR = (
    "What describes images: sift, onnx, a product sift*onnx, or a weighted sum sift+onnx or "
    "0.3*sift+0.7*onnx"
)

Model = Annotated[Optional[Path], Option("--model", metavar="NET.onnx", help=_NETWORK)]
NewModel = Annotated[
    Optional[Path],
    Option("--model", metavar="NET.onnx", help="The network of the descriptor onnx."),
]
Descriptor = Annotated[str, Option(help=f"{_DESCRIPTOR}.")]
Descriptors = Annotated[
    Optional[list[str]],
    Option(
        "--descriptor",
        metavar="NAME",
        help=f"Repeated, a map with each is built and evaluated. {_DESCRIPTOR}; default: sift.",
    ),
]


@dataclass(frozen=True)
class Network:
    """A group of options: how the descriptor onnx uses its network."""

    input_size: Annotated[
        Optional[str], Option(metavar="WxH", help="The network's input, if it fixes no size.")
    ] = None
    normalize: Annotated[
        str,
        Option(help="Normalization: imagenet, none (grey levels in 0 to 1), or mean,std."),
    ] = "imagenet"
    output_name: Annotated[
        Optional[str], Option(help="The network's output to take; default: its first.")
    ] = None
    pool: Annotated[
        Optional[str], Option(help="How feature maps become a vector: gem (default), mean or none.")
    ] = None
    kernel: Annotated[
        str, Option(help="The network's kernel: gaussian or cosine; the map learns its scale.")
    ] = "gaussian"

    def recipes(self, texts: Sequence[str], model: Path | None) -> list[Recipe]:
        """Return the descriptors of these texts; their network is loaded and tried here, once."""
        from kbf_localization.vision.onnx_describer import OnnxDescriber
        from kbf_localization.vision.recipe import Recipe

        recipes = [Recipe(text) for text in dict.fromkeys(texts)]
        if not any(OnnxDescriber.name in recipe.names() for recipe in recipes):
            if model is not None:
                raise ParameterError(
                    f"--model {model}: --descriptor {', '.join(texts)} uses no network; write "
                    f"--descriptor onnx or '{texts[0]}*onnx'"
                )
            return recipes
        if model is None:
            raise ParameterError("--descriptor onnx needs a network: name it with --model NET.onnx")
        options = vars(self)
        if self.input_size is not None:
            options = options | {"input_size": parse_image_size(self.input_size, "--input-size")}
        network = OnnxDescriber(model, **options)
        return [Recipe(recipe.text, {OnnxDescriber.name: network}) for recipe in recipes]
