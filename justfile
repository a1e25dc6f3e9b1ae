# The commands of this project, the same for people and for CI. `just` lists them.
# They use the `python` on the PATH: activate a virtual environment first.

# Keep bytecode: otherwise each process of the tests compiles every module again.
export PYTHONDONTWRITEBYTECODE := ""

# The image builder: docker, podman and buildah understand the same arguments.
builder := env("NPU_DRA_BUILDER", "docker")
# In shell's words: a changed tree has another revision, and its image another name.
revision := "python requirements/revision.py"
image := "python -m requirements.image"
version := replace_regex(read(justfile_directory() / "trio_npu_dra/__init__.py"), \
    '(?s).*__version__ = "([^"]+)".*', '$1')

_list:
    @just --list --unsorted

# install the locked dependencies and this project (editable)
setup:
    python -m pip install --quiet --require-hashes --requirement requirements/dev.txt
    @# setuptools warns of folders that hide a package of ours: those of `python -m` are the same.
    PYTHONWARNINGS=ignore::UserWarning \
        python -m pip install --quiet --no-deps --no-build-isolation --editable .

# run the daemon on a simulated board against stand-ins; no cluster, no root
demo *arguments:
    npu-dra demo {{arguments}}

# unit, port and loop tests, two processes for each core; arguments go to pytest
test *arguments:
    python -m pytest -n auto --dist worksteal --durations 20 \
        --override-ini faulthandler_timeout=900 {{arguments}}

# the same tests with the lines and branches that they reach; takes twice as long
coverage *arguments: (test "--cov" arguments)

# test what Helm makes of the chart; builds Helm and Kubernetes the first time, which takes minutes
chart *arguments:
    python -m pytest tests/helm {{arguments}}

# test on real Kubernetes: kind if it is there, else kind and clusters built here (`--on kind|all`); root, Debian, long
e2e *arguments:
    python -m dev.cluster.suite {{arguments}}

# a cluster of kind with the driver on simulated boards: `up`; `load` rebuilds the driver; `kubectl`; `down`
kind command *arguments:
    python -m dev.kind {{command}} {{arguments}}

# attack the daemon in every way that docs/security.md lists and print its tables anew; half an hour
abuse *words:
    python -m dev.abuse {{words}}

# time the image beside dra-example-driver (`--compare BASE`: and a commit), or `health`, `scale N`; root
bench *arguments:
    python -m dev.cluster.packages
    python -m dev.benchmarks {{arguments}}

# format the code
fmt:
    ruff check --fix-only --quiet
    ruff format

# formatting and lint rules
lint:
    ruff format --check
    ruff check

# static types, also as the oldest Python has them
types:
    mypy
    mypy --python-version 3.11

# which package may import which
imports:
    lint-imports

# regenerate the gRPC messages from protos/; `just protos --check` only compares
protos *arguments:
    python protos/generate.py {{arguments}}

# draw the simulated nodes of docs/topology.md, and examine those of docs/doctor.md
pictures:
    python -m dev.site.topology_pictures
    python -m dev.site.doctor_outputs

# write every page and schema that is made from the code: flags, metrics, errors, Events, values, configs
generated:
    python -m dev.site.generated

# build the docs site into build/site; `serve` shows it, `check` opens it in Chromium (needs node, npm)
docs *arguments:
    python -m dev.site {{arguments}}

# write what the pages show of kubectl npu
explanations:
    python -m dev.explain.page

# hold `kubectl npu explain` against a real scheduler over random claims and pools; a Kubernetes version
agreement *version:
    python -m dev.explain.agreement {{version}}

# everything that needs no root and no cluster
check: lint types imports (protos "--check") test

# collect what goes into the image: locked wheels for amd64 and arm64, and our own
wheels:
    rm -rf build/wheels build/dist build/lib build/bdist.* build/made-of
    for machine in x86_64 aarch64; do \
        python -m pip download --quiet --no-deps --require-hashes --only-binary=:all: \
            --python-version 3.13 --platform manylinux2014_$machine \
            --platform manylinux_2_17_$machine --platform manylinux_2_28_$machine \
            --dest build/wheels --requirement requirements/runtime.txt || exit; \
    done
    # The same tree makes the same wheel, so that builders can reuse the image that they have built.
    SOURCE_DATE_EPOCH=315532800 python -m build --wheel --no-isolation --outdir build/dist >/dev/null

# build the driver's image, and say its name; arguments go to the builder (--target simulator, ...)
image *arguments: wheels
    name=$({{image}}) && {{builder}} build --tag "$name" --build-arg VERSION={{version}} \
        --build-arg REVISION="$({{revision}})" {{arguments}} .
    @{{image}}

# write build/overlay, for `kubectl apply -k`: a folder of k8s/ with the image that `just image` made
overlay folder="k8s/base":
    {{image}} {{quote(folder)}}

# write build/sbom.json: what is in the image, as CycloneDX; arguments go to the builder
sbom *arguments: wheels
    rm -rf build/inventory
    {{builder}} build --target inventory --output type=local,dest=build/inventory {{arguments}} .
    python requirements/sbom.py build/inventory build/sbom.json

# build the image twice and compare; buildah or podman (NPU_DRA_BUILDER); arguments go to the builder
reproduce *arguments: wheels
    python requirements/reproduce.py "{{builder}}" {{arguments}}

# make all that is published of a version, unsigned: URIs of who builds and of the source; buildah or podman
release builder_id source: wheels
    python -m requirements.release --builder "{{builder}}" --builder-id {{quote(builder_id)}} \
        --source {{quote(source)}} --version {{version}} build/release

# renew the digest of the Dockerfile's base image; needs skopeo or docker buildx, and a registry
pin-base:
    python requirements/pin_base.py

# list known vulnerabilities of the locked packages; status 75 if the package index cannot tell
audit:
    python requirements/audit.py

# pin the newest dependencies anew; run it under Debian bookworm's Python, the oldest: its pins hold for all
lock:
    python -c 'import sys; sys.exit(sys.version_info[:3] != (3, 11, 2) and "needs Python 3.11.2")'
    python -m piptools compile {{lock_options}} --strip-extras --upgrade --extra node \
        --output-file requirements/runtime.txt pyproject.toml
    @# With extras, because pip 23 takes no pin without them for one with them.
    python -m piptools compile {{lock_options}} --no-strip-extras --upgrade --all-extras --all-build-deps \
        --constraint requirements/runtime.txt --output-file requirements/dev.txt pyproject.toml

lock_options := "--quiet --generate-hashes --allow-unsafe --no-header" + \
    " --no-emit-options --no-emit-index-url --no-emit-trusted-host --no-emit-find-links"
