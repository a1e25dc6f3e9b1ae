# Two images, built without network from what `just wheels` collects; docs/image.md says what is in them:
#   driver     the last stage: Python, the package, and what these and libdcmi.so need
#   simulator  driver, and a simulated Ascend board ready to be laid out on a node
# And inventory: the files that list what is in the driver's image, for `just sbom`.
# The base is Debian with Python 3.13, pip and cc. `just pin-base` looks the digest up anew.
ARG PYTHON_IMAGE=docker.io/library/python:3.13-trixie@sha256:7a23da3060583bd76c105beab149d388f493702246fdf68670c4ae7ea88b5ba3


FROM ${PYTHON_IMAGE} AS dependencies
COPY requirements/runtime.txt /src/runtime.txt
COPY build/wheels /src/wheels
RUN python3 -m venv --without-pip /opt/npu-dra \
    && python3 -m pip --python /opt/npu-dra/bin/python3 install --no-compile --no-index \
        --find-links /src/wheels --require-hashes --requirement /src/runtime.txt


FROM dependencies AS root
COPY requirements/image_root.py /src/
# Nothing in an image changes, so a start need not compare bytecode with its source. Its bytecode is
# that of -OO, under the usual names: the daemon's memory is 2.4 MiB (4 %) less without docstrings.
RUN python3 /src/image_root.py driver /image /opt/npu-dra \
    && python3 -m compileall -q -o 2 --invalidation-mode unchecked-hash -s /image -p / /image \
    && find /image -name '*.opt-2.pyc' -exec sh -c 'for f; do mv "$f" "${f%.opt-2.pyc}.pyc"; done' sh {} +


FROM dependencies AS install
COPY build/dist /src/dist
RUN python3 -m pip --python /opt/npu-dra/bin/python3 install --no-compile --no-index \
        --no-deps /src/dist/*.whl \
    && python3 -m compileall -q -o 2 --invalidation-mode unchecked-hash /opt/npu-dra \
    && find /opt/npu-dra -name '*.opt-2.pyc' -exec sh -c 'for f; do mv "$f" "${f%.opt-2.pyc}.pyc"; done' sh {} +


FROM install AS board
RUN /opt/npu-dra/bin/python3 -c 'from pathlib import Path; \
        from trio_npu_dra.lab.simulator.build import compile_simulator; \
        compile_simulator(Path("/usr/local/share/trio-npu-dra/simulator"))'


# Further programs that the init container of k8s/overlays/simulator runs.
FROM root AS board-root
RUN python3 /src/image_root.py commands /board --beside /image cat cp ln mkdir sha256sum stat


FROM dependencies AS hook
COPY native/libraries_hook /src/hook
RUN sh /src/hook/build.sh /npu-dra-libraries


FROM scratch AS runtime
COPY --from=root /image /
COPY LICENSE NOTICE /usr/share/doc/trio-npu-dra/
COPY --from=install /opt/npu-dra /opt/npu-dra
COPY --from=hook /npu-dra-libraries /opt/npu-dra/libexec/npu-dra-libraries
ENV PATH=/opt/npu-dra/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    PYTHONDONTWRITEBYTECODE=1
ARG VERSION=unknown
ARG REVISION=unknown
LABEL org.opencontainers.image.title="trio-npu-dra" \
      org.opencontainers.image.description="Kubernetes DRA driver for Huawei Ascend NPUs" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
ENTRYPOINT ["npu-dra", "serve"]


FROM runtime AS simulator
COPY --from=board-root /board /
COPY --from=board /usr/local/share/trio-npu-dra /usr/local/share/trio-npu-dra


FROM scratch AS inventory
COPY --from=runtime /var/lib/dpkg/status.d /var/lib/dpkg/status.d
COPY --from=runtime /usr/share/doc /usr/share/doc
COPY --from=runtime /opt/npu-dra/pyvenv.cfg /opt/npu-dra/pyvenv.cfg
COPY --from=runtime /opt/npu-dra/lib /opt/npu-dra/lib


FROM runtime AS driver
