#!/bin/sh
# Finishes an environment of locked packages: installs the project's wheels, writes the list of
# packages (SBOM), removes files that a server never reads, and compiles bytecode.
#
#   finish_environment.sh ENVIRONMENT WHEELS
set -eu
environment=$1
wheels=$2
python=$environment/bin/python
packages=$("$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')

/build/bin/python -m pip --python "$python" install --no-index --no-deps "$wheels"/dragoman*.whl
/build/bin/python -m pip --python "$python" check

# CycloneDX, from the packages' own metadata.
/build/bin/cyclonedx-py environment --output-reproducible --of JSON \
    --output-file "$environment/sbom.cdx.json" "$python"

# Tests, headers, converters of Fortran and ONNX Runtime, type stubs: never imported by a server.
rm -rf "$packages"/numpy/f2py "$packages"/numpy/_core/include "$packages"/numpy/_core/lib \
    "$packages"/numpy/distutils \
    "$packages"/onnxruntime/transformers "$packages"/onnxruntime/quantization \
    "$packages"/onnxruntime/tools "$packages"/onnxruntime/backend "$packages"/onnxruntime/datasets
find "$packages" -type d \( -name tests -o -name test \) -prune -exec rm -rf {} +
find "$packages" -name '*.pyi' -delete

# One folder for the dynamic linker, with links to the libraries of all CUDA packages.
if [ -d "$packages/nvidia" ]; then
    mkdir -p "$environment/lib/cuda"
    find "$packages/nvidia" -name 'lib*.so*' -exec ln -s {} "$environment/lib/cuda/" \;
fi

# Unchecked: sources don't change in an image, and copying may change modification times.
"$python" -m compileall -q -j 0 --invalidation-mode unchecked-hash "$packages"
